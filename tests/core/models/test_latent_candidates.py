"""Many candidates of a window at once: what the plain predictor says of each, and nothing of another window."""

from functools import partial
from itertools import product

import pytest
import torch
from latent_fixture import CFG
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.models import latent_candidates
from trajpilot_core.models.blocks import KeysValues
from trajpilot_core.models.latent import LatentPredictor, LatentShape, StepInputs, l1_between, normalised
from trajpilot_core.models.latent_candidates import Moves, StepsAsked, folded, values_of

SHAPES = [(1, 16, 1, 2), (3, 24, 4, 1), (2, 32, 2, 8)]
"""Layers, width, heads, tokens of a step."""
WINDOWS, CANDIDATES, FEATURES, MOTION, DIRECTIONS = 3, 7, 10, 6, 2


def predictor(layers: int, width: int, heads: int, tokens: int) -> LatentPredictor:
    """A predictor none of whose weights, norms and buffers is where it starts."""
    torch.manual_seed(0)
    target = "temporal" if tokens > 1 else "pooled"
    cfg = CFG.replace(layers=layers, width=width, heads=heads, hidden=2 * width, target=target)
    model = LatentPredictor(cfg, LatentShape(FEATURES, tokens, MOTION, 5, 8, 4)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    model.latent_mean.normal_()
    model.latent_scale.uniform_(0.5, 2.0)
    return model


def ends(model: LatentPredictor) -> tuple[Tensor, Tensor]:
    start, goal = normalised(torch.randn(2, WINDOWS, model.n_tokens, FEATURES))
    return start, goal


def latents(
    model: LatentPredictor, context: list[KeysValues], moves: Moves, asked: StepsAsked
) -> dict[tuple[int, int], Tensor]:
    """What is said of each candidate, (T, G, D), by window and place; it is read part by part."""
    found: dict[tuple[int, int], Tensor] = {}

    def keep(latent_TNGD: Tensor, window: int) -> Tensor:
        at = sum(1 for key in found if key[0] == window)
        found.update({(window, at + i): one for i, one in enumerate(latent_TNGD.unbind(1))})
        return latent_TNGD.new_zeros(latent_TNGD.shape[1])

    values_of(folded(model), context, moves, asked, keep)
    return found


@torch.no_grad()
def test_every_candidate_has_what_the_plain_predictor_says(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for with_goal, sees_goal, mids, shape in product((True, False), (True, False), (1, 6), SHAPES):
        with subtests.test(f"{with_goal}, {sees_goal}, {mids}, {shape}"):
            model, horizon, n_steps = predictor(*shape), mids + 2, mids + with_goal
            three_at_a_time = 3 * 4 * n_steps * shape[1]
            monkeypatch.setattr(latent_candidates, "CACHE_BYTES", three_at_a_time)
            start, goal = ends(model)
            context = model.encode(start, goal if sees_goal else None, horizon)
            points, directions = torch.randn(WINDOWS, CANDIDATES, mids, DIRECTIONS), torch.randn(DIRECTIONS, MOTION)
            told = torch.nn.functional.pad(points @ directions, (0, 0, 0, int(with_goal)))
            plain = model(context, StepInputs(told, torch.arange(n_steps) < mids), n_steps, horizon)
            for moves in (Moves(points, directions), Moves(points @ directions)):
                for last_alone in (True, False):
                    found = latents(model, context, moves, StepsAsked(horizon, n_steps, last_alone))
                    assert len(found) == WINDOWS * CANDIDATES
                    wanted = (plain[:, :, -1:] if last_alone else plain).flatten(0, 1)
                    assert_close(torch.stack([found[key] for key in sorted(found)]), wanted, atol=2e-5, rtol=1e-4)


def energies(model: LatentPredictor, context: list[KeysValues], points: Tensor, goal: Tensor) -> Tensor:
    def distance(latent_1NGD: Tensor, window: int) -> Tensor:
        return l1_between(latent_1NGD[0], goal[window])

    n_steps = points.shape[2]
    return values_of(folded(model), context, Moves(points), StepsAsked(n_steps + 2, n_steps, True), distance)


@torch.no_grad()
def test_energies_are_those_of_the_plain_predictor_and_a_context_of_another_window_is_seen() -> None:
    model = predictor(2, 32, 4, 2)
    start, goal = ends(model)
    points = torch.randn(WINDOWS, CANDIDATES, 3, MOTION)
    context = model.encode(start, goal, 5)
    plain = l1_between(model(context, StepInputs(points), 3, 5)[:, :, -1], goal[:, None])
    close = partial(torch.allclose, plain, atol=1e-5)
    assert close(energies(model, context, points, goal))
    others = [(keys.roll(1, 0), values.roll(1, 0)) for keys, values in context]
    assert not close(energies(model, others, points, goal)), "planted: the context of another window"
    assert not close(energies(model, context, points, goal.roll(1, 0))), "planted: the goal of another window"
    first_alone = [context[0], *others[1:]]
    assert not close(energies(model, first_alone, points, goal)), "planted: of another window in the last layer only"


@torch.no_grad()
def test_a_window_has_the_bits_that_it_has_alone() -> None:
    model = predictor(2, 32, 4, 1)
    start, goal = ends(model)
    points = torch.randn(WINDOWS, CANDIDATES, 3, MOTION)
    context = model.encode(start, goal, 5)
    alone = [(keys[1:2], values[1:2]) for keys, values in context]
    together = energies(model, context, points, goal)
    assert torch.equal(together[1:2], energies(model, alone, points[1:2], goal[1:2]))


def test_the_plain_predictor_still_has_a_gradient_and_folded_weights_have_none() -> None:
    model = predictor(2, 32, 4, 1)
    start, goal = ends(model)
    points = torch.randn(WINDOWS, CANDIDATES, 3, MOTION, requires_grad=True)
    context = model.encode(start, goal, 5)
    assert not energies(model, context, points, goal).requires_grad
    model(context, StepInputs(points), 3, 5).square().sum().backward()  # type: ignore[no-untyped-call]
    assert points.grad is not None
    assert all(weight.grad is not None for name, weight in model.named_parameters() if "text_in" not in name
               and name != "no_motion" and name != "no_goal")  # fmt: skip
