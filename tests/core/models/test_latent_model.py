"""The predictor of latents: causal, blind where the goal is hidden, one context for all candidates; and the search."""

import torch
from latent_fixture import CFG, TRAIN, fitted, made_up
from torch import Tensor
from torch.testing import assert_close

from schemas.latent import SearchConfig
from trajpilot_core.models.latent import (
    LatentPredictor,
    LatentShape,
    StepInputs,
    cross_entropy_search,
    fit_controls,
    l1_between,
    noise_of,
    targets_of,
)
from trajpilot_core.training.fit_latent import LatentTask

SHAPE = LatentShape(feature_width=8, tokens=2, motion=6, text_width=5, max_horizon=6, labels=3)
CONFIG = CFG.replace(target="temporal", layers=2)


def predictor() -> LatentPredictor:
    torch.manual_seed(0)
    return LatentPredictor(CONFIG, SHAPE).eval()


def clips(n: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    start, goal = torch.randn(2, n, 2, 8, generator=generator)
    return targets_of(start, "temporal"), targets_of(goal, "temporal")


@torch.no_grad()
def test_a_later_motion_does_not_change_an_earlier_step() -> None:
    model, (start, goal) = predictor(), clips()
    motion = torch.randn(3, 4, 5, 6)
    other = torch.cat([motion[:, :, :3], torch.randn(3, 4, 2, 6)], 2)
    context = model.encode(start, goal, 6)
    one, two = (model(context, StepInputs(each), 5, 6) for each in (motion, other))
    assert one.shape == (3, 4, 5, 2, 8)
    assert_close(one[:, :, :3], two[:, :, :3])
    assert not torch.allclose(one[:, :, 3], two[:, :, 3])


@torch.no_grad()
def test_a_hidden_goal_is_not_read_and_a_seen_one_is() -> None:
    model, (start, goal) = predictor(), clips()
    hidden = torch.zeros(3, dtype=torch.bool)
    motion = StepInputs(torch.randn(3, 1, 2, 6))
    blind = model(model.encode(start, None, 4), motion, 2, 4)
    assert_close(model(model.encode(start, goal, 4, hidden), motion, 2, 4), blind)
    assert not torch.allclose(model(model.encode(start, goal, 4, ~hidden), motion, 2, 4), blind)


@torch.no_grad()
def test_a_shared_context_gives_what_each_candidate_gets_alone() -> None:
    model, (start, goal) = predictor(), clips()
    motion = torch.randn(3, 4, 2, 6)
    shared = model(model.encode(start, goal, 4), StepInputs(motion), 2, 4)
    repeated = model.encode(start.repeat_interleave(4, 0), goal.repeat_interleave(4, 0), 4)
    alone = model(repeated, StepInputs(motion.flatten(0, 1)[:, None]), 2, 4)
    assert_close(shared.flatten(0, 1), alone[:, 0])


def test_64_windows_without_any_rule_are_memorised() -> None:
    task = made_up(looks=False, moves=False, n=96)  # 64 of them are fitted
    same = LatentTask(**{**vars(task), "dev": task.fit})
    start = targets_of(task.features[task.fit[3][:, 1]], "pooled")
    spread = float(l1_between(start, start.roll(1, 0)).mean())
    _, l1 = fitted(same, "plan_trajectory", 150, batch=64, lr=1e-2)
    assert TRAIN.epochs < 150
    assert l1 < 0.35 * spread, f"{l1:.3f} after training, {spread:.3f} between strangers"


SEARCH = SearchConfig(samples=256, iterations=12, elites=26)
MIDS, DIRECTIONS = 2, 3


def linear_gaussian(n: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Map, goals and optima of a world whose last latent is linear in the controls, these normal a priori.

    The energy is the squared distance to the goal plus the squared controls, whose least point is that of ridge
    regression.
    """
    generator = torch.Generator().manual_seed(3)
    size = MIDS * DIRECTIONS
    map_ZC = torch.randn(6, size, generator=generator)
    goals = torch.randn(n, 6, generator=generator)
    best = torch.linalg.solve(map_ZC.T @ map_ZC + 0.1 * torch.eye(size), map_ZC.T @ goals.T).T
    return map_ZC, goals, best.view(n, MIDS, DIRECTIONS)


def energy_of(map_ZC: Tensor, goals: Tensor, sign: float = 1.0):
    def energy(controls_BSMP: Tensor) -> Tensor:
        flat = controls_BSMP.flatten(2)
        return sign * ((flat @ map_ZC.T - goals[:, None]).square().sum(-1) + 0.1 * flat.square().sum(-1))

    return energy


def test_the_optimum_of_a_linear_gaussian_world_is_found() -> None:
    map_ZC, goals, optimum = linear_gaussian()
    noise = noise_of(SEARCH, MIDS, DIRECTIONS, 0, "cpu")
    energy = energy_of(map_ZC, goals)
    least = energy(optimum[:, None])[:, 0]
    found = cross_entropy_search(energy, len(goals), noise, SEARCH)
    away = cross_entropy_search(energy_of(map_ZC, goals, -1.0), len(goals), noise, SEARCH)
    reached, fled = (energy(controls[:, None])[:, 0] for controls in (found, away))
    assert bool((reached >= least - 1e-4).all())
    start = energy(torch.zeros(len(goals), 1, MIDS, DIRECTIONS))[:, 0]
    assert bool((reached - least < 0.1 * (start - least)).all())
    assert not bool((fled - least < 0.1 * (start - least)).any()), "a search that climbs must fail this test"


def test_a_window_is_searched_as_it_would_be_alone() -> None:
    map_ZC, goals, _ = linear_gaussian()
    noise = noise_of(SEARCH, MIDS, DIRECTIONS, 0, "cpu")
    together = cross_entropy_search(energy_of(map_ZC, goals), len(goals), noise, SEARCH)
    alone = cross_entropy_search(energy_of(map_ZC, goals[5:6]), 1, noise, SEARCH)
    assert_close(together[5:6], alone, atol=1e-3, rtol=1e-3)


def test_controls_are_white_and_keep_the_variance_that_is_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(400, 5, generator=generator) * torch.tensor([9.0, 5.0, 2.0, 0.2, 0.1])
    motions = (few @ torch.randn(5, 96, generator=generator)).view(400, 16, 6) * 0.01
    controls = fit_controls(motions, 0.95)
    assert 1 <= len(controls.directions) <= 3
    standard = controls.standardised(motions)
    white = standard @ torch.linalg.pinv(controls.directions)
    assert_close(white.T @ white / len(white), torch.eye(len(controls.directions)), atol=1e-2, rtol=1e-2)
    kept = controls.motions(white).square().sum() / standard.square().sum()
    assert 0.95 <= float(kept) <= 1.0
    assert len(fit_controls(motions, 1.0).directions) >= 5
