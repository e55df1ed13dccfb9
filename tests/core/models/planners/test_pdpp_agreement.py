"""PDPP next to its original and golden values; weights, inputs, noise from the formula (tests/fixtures/formula.py).

Recorded from github.com/MCG-NJU/PDPP at e9fd98a4 in float64 and 12 digits (benchmarks/planners of our commit ca04742);
compared within 1e-9.
"""

from collections.abc import Callable, Mapping

import pytest
import torch
from formula import fill, filled, numbers
from planners_fixture import check_close, golden, recorded
from torch import Tensor, nn

from schemas.planners import PdppConfig
from trajpilot_core.models.planners import pdpp
from trajpilot_core.models.planners.decoding import TaskClassifier
from trajpilot_core.models.planners.pdpp import (
    MovingAverage,
    NoiseSchedule,
    Pdpp,
    PlanCondition,
    ddim_times,
    learning_rate_multiplier,
    project,
    sample,
)
from trajpilot_core.models.planners.temporal_unet import PlanChannels, TemporalUnet

pytestmark = pytest.mark.usefixtures("double")
THEIRS = recorded("pdpp.json")
CLOSE = 1e-9
Projection = Callable[[Tensor, PlanCondition, PlanChannels], Tensor]
SHAPE = PlanChannels(tasks=3, actions=7, features=12)
CONFIG = PdppConfig(width=32, times=50)
HORIZONS = (3, 5)
STEPS_OF_SAMPLING: Mapping[str, int | None] = {"ddim": 10, "ddpm": None}
TIMES = (3, 41)
"""Of the two windows, where the network and the loss are compared."""
SCHEDULES = {200: (0, 1, 50, 100, 198, 199), 50: (0, 1, 25, 48, 49)}
"""T -> the times that are compared."""
PUBLISHED_SHAPES = {"crosstask": PlanChannels(18, 105, 1536), "keystep": PlanChannels(16, 375, 1664)}
"""Whose numbers of parameters are compared; on `torch.device("meta")`, at the original's widths."""
TOTAL_STEPS, COMPARED_STEPS = (24_000, 1_000, 97), 25
"""Lengths of trainings, and at how many steps of each the learning rate is compared."""
AVERAGED_UNTIL, AVERAGED_AT = 461, (0, 5, 10, 390, 399, 400, 405, 410, 460)
"""Optimiser steps of the moving average, and those after which it is compared."""


@pytest.fixture
def planner() -> Pdpp:
    """The small planner; its average has the same weights."""
    planner = Pdpp(CONFIG, SHAPE).eval()
    fill(planner.unet, scale=0.5)
    planner.average.module.load_state_dict(planner.unet.state_dict())
    return planner


def condition() -> PlanCondition:
    """Return what is known of two plans."""
    return PlanCondition(numbers(2, 2, SHAPE.features, phase=0.1), torch.tensor([2, 0]))


def rows(horizon: int) -> Tensor:
    """Return noisy plans (2, H, C) that are projected onto nothing."""
    return numbers(2, horizon, SHAPE.total, phase=0.2)


def draws() -> Callable[..., Tensor]:
    """Return a source of noise: the n-th call returns the formula's numbers of the n-th phase, in a given shape."""
    number = iter(range(10_000))
    return lambda *shape: numbers(*shape, phase=0.9 * next(number), scale=1.7)


def action_draws(horizon: int) -> Callable[[], Tensor]:
    """Return the same source cut to the action channels."""
    source = draws()
    return lambda: source(2, horizon, SHAPE.total)[..., SHAPE.of_actions]


def averaged_weights(layer: nn.Linear, step: int) -> None:
    """Set a layer to what the optimiser is said to have made of it at a step."""
    with torch.no_grad():
        for place, parameter in enumerate(layer.parameters()):
            parameter.copy_(numbers(*parameter.shape, phase=0.01 * step + place))


def parameters(shape: PlanChannels) -> int:
    cfg = PdppConfig()
    with torch.device("meta"):
        network = TemporalUnet(shape, cfg.width, cfg.multiples)
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_network_has_as_many_parameters_as_the_original() -> None:
    assert {name: parameters(shape) for name, shape in PUBLISHED_SHAPES.items()} == THEIRS["parameters"]


def test_the_schedule_is_that_of_the_original() -> None:
    for n_times, at in SCHEDULES.items():
        theirs = THEIRS["schedule"][str(n_times)]
        for name, values in NoiseSchedule(n_times).named_buffers():
            check_close(values[list(at)], theirs[name])
        assert ddim_times(n_times, 10) == theirs["ddim_times"]


def test_the_network_answers_and_noise_is_added_as_in_the_original(planner: Pdpp) -> None:
    times = torch.tensor(TIMES)
    for horizon in HORIZONS:
        x_BHC, theirs = rows(horizon), THEIRS[f"h{horizon}"]
        check_close(planner.unet(x_BHC, times), theirs["network"])
        noised = NoiseSchedule(CONFIG.times).noised(x_BHC, times, draws()(*x_BHC.shape))
        check_close(noised, theirs["noised"])


def check_projection(projection: Projection, horizon: int) -> None:
    check_close(projection(rows(horizon), condition(), SHAPE), THEIRS[f"h{horizon}"]["projected"])


def with_seen_mids(x_BHC: Tensor, condition: PlanCondition, shape: PlanChannels) -> Tensor:
    """A projection that leaves something to be seen in the rows between."""
    out = project(x_BHC, condition, shape)
    out[:, 1:-1, shape.of_actions.stop :] = 0.2
    return out


def test_plans_are_projected_as_in_the_original_and_features_in_the_rows_between_are_found(
    planner: Pdpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for horizon in HORIZONS:
        check_projection(project, horizon)
    with pytest.raises(AssertionError):
        check_projection(with_seen_mids, 5)
    monkeypatch.setattr(pdpp, "project", with_seen_mids)
    with pytest.raises(AssertionError):
        check_sampling(planner.unet, 5, "ddim", 10)


def test_loss_and_gradient_are_those_of_the_original(planner: Pdpp, subtests: pytest.Subtests) -> None:
    for horizon in HORIZONS:
        with subtests.test(str(horizon)):
            theirs = THEIRS[f"h{horizon}"]
            planner.zero_grad()
            labels_BH = torch.arange(2 * horizon).reshape(2, horizon) * 3 % SHAPE.actions
            clean_BHA = nn.functional.one_hot(labels_BH, SHAPE.actions).float()
            loss = planner.loss_at(clean_BHA, condition(), torch.tensor(TIMES), action_draws(horizon)())
            loss.backward()
            check_close(loss, theirs["loss"])
            for name, parameter in planner.unet.named_parameters():
                assert parameter.grad.norm().item() == pytest.approx(theirs["gradient"][name], rel=CLOSE, abs=CLOSE), (
                    name
                )


@torch.no_grad()
def check_sampling(unet: TemporalUnet, horizon: int, name: str, n_steps: int | None) -> None:
    schedule, noise = NoiseSchedule(CONFIG.times), action_draws(horizon)
    check_close(sample(unet, schedule, condition(), horizon, n_steps, noise), THEIRS[f"h{horizon}"][name])


def test_plans_are_sampled_as_by_the_original(
    planner: Pdpp, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of steps and a clamp of the estimate, the planted faults, are found."""
    for name, n_steps in STEPS_OF_SAMPLING.items():
        for horizon in HORIZONS:
            with subtests.test(f"{horizon}, {name}"):
                check_sampling(planner.unet, horizon, name, n_steps)
    for n_steps in (9, 50):
        with pytest.raises(AssertionError):
            check_sampling(planner.unet, 5, "ddim", n_steps)
    unclamped = planner.unet.predict
    monkeypatch.setattr(planner.unet, "predict", lambda *args: unclamped(*args).clamp(-1, 1))
    for name, n_steps in STEPS_OF_SAMPLING.items():
        with pytest.raises(AssertionError):
            check_sampling(planner.unet, 5, name, n_steps)


def test_the_task_classifier_answers_as_the_original() -> None:
    classifier = filled(TaskClassifier(SHAPE.features, SHAPE.tasks))
    check_close(classifier(condition().ends), THEIRS["classifier"])


def test_the_learning_rate_follows_the_original() -> None:
    for total in TOTAL_STEPS:
        steps = [step * (total - 1) // (COMPARED_STEPS - 1) for step in range(COMPARED_STEPS)]
        ours = [learning_rate_multiplier(step, total) for step in steps]
        assert ours == pytest.approx(THEIRS["learning_rate"][str(total)], rel=CLOSE)


def check_average() -> None:
    layer = nn.Linear(3, 2)
    cfg = PdppConfig()
    average = MovingAverage(layer, cfg.average_decay, cfg.average_every, cfg.average_start)
    for step in range(AVERAGED_UNTIL):
        averaged_weights(layer, step)
        average.update(layer)
        if step in AVERAGED_AT:
            check_close(average.module.weight, THEIRS["average"][str(step)])


def test_weights_are_averaged_as_by_the_original_and_an_average_that_is_never_updated_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_average()
    monkeypatch.setattr(MovingAverage, "update", lambda self, module: None)
    with pytest.raises(AssertionError):
        check_average()


def test_the_golden_lengths_of_plans_are_met() -> None:
    """Computed with the original, apart from this project."""
    network = TemporalUnet(PlanChannels(16, 375, 1664), 32, (1, 2, 4))
    for horizon, expected in golden("pdpp")["unet_output_shape_by_H"]:
        x_BHC, t_B = torch.zeros(1, horizon, network.shape.total), torch.zeros(1, dtype=torch.long)
        if expected == "fails":
            with pytest.raises(ValueError, match="at least 3"):
                network(x_BHC, t_B)
        else:
            assert list(network(x_BHC, t_B).shape) == expected
