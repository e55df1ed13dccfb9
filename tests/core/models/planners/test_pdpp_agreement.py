"""PDPP next to its original and golden values; weights, inputs, noise from the formula (tests/fixtures/pdpp_cases.py).

Recorded from github.com/MCG-NJU/PDPP at e9fd98a4 in float64 and 12 digits (benchmarks/planners of our commit ca04742);
compared within 1e-9.
"""

from collections.abc import Callable

import pdpp_cases as cases
import pytest
import torch
from planners_fixture import check_close, golden, recorded
from torch import Tensor, nn

from schemas.planners import PdppConfig
from trajpilot_core.models.planners import pdpp
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


@pytest.fixture
def planner() -> Pdpp:
    """The small planner with weights of the formula."""
    return cases.pdpp()


def parameters(shape: PlanChannels) -> int:
    cfg = PdppConfig()
    with torch.device("meta"):
        network = TemporalUnet(shape, cfg.width, cfg.multiples)
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_network_has_as_many_parameters_as_the_original() -> None:
    assert {name: parameters(shape) for name, shape in cases.PUBLISHED_SHAPES.items()} == THEIRS["parameters"]


def test_the_schedule_is_that_of_the_original() -> None:
    for n_times, at in cases.SCHEDULES.items():
        theirs = THEIRS["schedule"][str(n_times)]
        for name, values in NoiseSchedule(n_times).named_buffers():
            check_close(values[list(at)], theirs[name])
        assert ddim_times(n_times, 10) == theirs["ddim_times"]


def test_the_network_answers_and_noise_is_added_as_in_the_original(planner: Pdpp) -> None:
    times = torch.tensor(cases.TIMES)
    for horizon in cases.HORIZONS:
        x_BHC, theirs = cases.rows(horizon), THEIRS[f"h{horizon}"]
        check_close(planner.unet(x_BHC, times), theirs["network"])
        noised = NoiseSchedule(cases.CONFIG.times).noised(x_BHC, times, cases.draws()(*x_BHC.shape))
        check_close(noised, theirs["noised"])


def check_projection(projection: Projection, horizon: int) -> None:
    check_close(projection(cases.rows(horizon), cases.condition(), cases.SHAPE), THEIRS[f"h{horizon}"]["projected"])


def with_seen_mids(x_BHC: Tensor, condition: PlanCondition, shape: PlanChannels) -> Tensor:
    """A projection that leaves something to be seen in the rows between."""
    out = project(x_BHC, condition, shape)
    out[:, 1:-1, shape.of_actions.stop :] = 0.2
    return out


def test_plans_are_projected_as_in_the_original_and_features_in_the_rows_between_are_found(
    planner: Pdpp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for horizon in cases.HORIZONS:
        check_projection(project, horizon)
    with pytest.raises(AssertionError):
        check_projection(with_seen_mids, 5)
    monkeypatch.setattr(pdpp, "project", with_seen_mids)
    with pytest.raises(AssertionError):
        check_sampling(planner.unet, 5, "ddim", 10)


def test_loss_and_gradient_are_those_of_the_original(planner: Pdpp, subtests: pytest.Subtests) -> None:
    for horizon in cases.HORIZONS:
        with subtests.test(str(horizon)):
            theirs = THEIRS[f"h{horizon}"]
            planner.zero_grad()
            clean_BHA = nn.functional.one_hot(cases.labels(horizon), cases.SHAPE.actions).float()
            loss = planner.loss_at(
                clean_BHA, cases.condition(), torch.tensor(cases.TIMES), cases.action_draws(horizon)()
            )
            loss.backward()
            check_close(loss, theirs["loss"])
            for name, parameter in planner.unet.named_parameters():
                assert parameter.grad is not None
                assert parameter.grad.norm().item() == pytest.approx(theirs["gradient"][name], rel=CLOSE, abs=CLOSE), (
                    name
                )


def test_a_step_of_ddpm_is_that_of_the_original(planner: Pdpp, subtests: pytest.Subtests) -> None:
    for horizon in cases.HORIZONS:
        for t in cases.STEPS_COMPARED:
            with subtests.test(f"{horizon}, {t}"):
                theirs = THEIRS[f"h{horizon}"]
                projected = torch.tensor(theirs["projected"])
                noisy_BHA = projected[..., cases.SHAPE.of_actions]
                clean_BHA = planner.unet(projected, torch.full((2,), t))[..., cases.SHAPE.of_actions]
                stepped = planner.schedule.ddpm_step(noisy_BHA, clean_BHA, t, cases.action_draws(horizon))
                check_close(stepped, torch.tensor(theirs["ddpm_step"][str(t)])[..., cases.SHAPE.of_actions].tolist())


@torch.no_grad()
def check_sampling(unet: TemporalUnet, horizon: int, name: str, n_steps: int | None) -> None:
    schedule, noise = NoiseSchedule(cases.CONFIG.times), cases.action_draws(horizon)
    check_close(sample(unet, schedule, cases.condition(), horizon, n_steps, noise), THEIRS[f"h{horizon}"][name])


def test_plans_are_sampled_as_by_the_original(
    planner: Pdpp, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of steps and a clamp of the estimate, the planted faults, are found."""
    for name, n_steps in cases.STEPS_OF_SAMPLING.items():
        for horizon in cases.HORIZONS:
            with subtests.test(f"{horizon}, {name}"):
                check_sampling(planner.unet, horizon, name, n_steps)
    for n_steps in (9, 50):
        with pytest.raises(AssertionError):
            check_sampling(planner.unet, 5, "ddim", n_steps)
    unclamped = planner.unet.predict
    monkeypatch.setattr(planner.unet, "predict", lambda *args: unclamped(*args).clamp(-1, 1))
    for name, n_steps in cases.STEPS_OF_SAMPLING.items():
        with pytest.raises(AssertionError):
            check_sampling(planner.unet, 5, name, n_steps)


def test_the_task_classifier_answers_as_the_original() -> None:
    check_close(cases.classifier()(cases.condition().ends), THEIRS["classifier"])


def test_the_learning_rate_follows_the_original() -> None:
    for total in cases.TOTAL_STEPS:
        ours = [learning_rate_multiplier(step, total) for step in cases.compared_steps(total)]
        assert ours == pytest.approx(THEIRS["learning_rate"][str(total)], rel=CLOSE)


def check_average() -> None:
    layer = nn.Linear(3, 2)
    cfg = PdppConfig()
    average = MovingAverage(layer, cfg.average_decay, cfg.average_every, cfg.average_start)
    for step in range(cases.AVERAGED_UNTIL):
        cases.averaged_weights(layer, step)
        average.update(layer)
        if step in cases.AVERAGED_AT:
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
