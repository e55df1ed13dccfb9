"""PDPP next to its original and golden values; weights, inputs, noise from the formula (tests/fixtures/pdpp_cases.py).

Recorded from github.com/MCG-NJU/PDPP at e9fd98a4 in float64 and 12 digits (benchmarks/planners of our commit ca04742);
compared within 1e-9.
"""

from collections.abc import Callable
from typing import Any

import pdpp_cases as cases
import pytest
import torch
from planners_fixture import check_close, golden, recorded
from torch import Tensor, nn
from torch.testing import assert_close

from schemas.planners import PdppConfig
from trajpilot_core.models.planners import diffusion
from trajpilot_core.models.planners.diffusion import (
    NoiseSchedule,
    PlanCondition,
    cosine_betas,
    ddim_times,
    plan_loss,
    project,
    sample,
)
from trajpilot_core.models.planners.moving_average import MovingAverage
from trajpilot_core.models.planners.pdpp import Pdpp, learning_rate_multiplier
from trajpilot_core.models.planners.temporal_unet import PlanChannels, TemporalUnet

pytestmark = pytest.mark.usefixtures("double")
THEIRS = recorded("pdpp.json")
CLOSE = 1e-9
Projection = Callable[[Tensor, PlanCondition, PlanChannels], Tensor]


@pytest.fixture
def planner() -> Pdpp:
    """The small planner with weights of the formula."""
    return cases.pdpp()


@pytest.fixture
def facts() -> Any:
    """Values that were computed with the original, apart from this project."""
    return golden("pdpp")


def parameters(shape: PlanChannels) -> int:
    cfg = PdppConfig()
    with torch.device("meta"):
        network = TemporalUnet(shape, cfg.width, cfg.multiples)
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", cases.PUBLISHED_SHAPES)
def test_the_network_has_as_many_parameters_as_the_original(name: str) -> None:
    assert parameters(cases.PUBLISHED_SHAPES[name]) == THEIRS["parameters"][name]


@pytest.mark.parametrize("n_times", cases.SCHEDULES)
def test_the_schedule_is_that_of_the_original(n_times: int) -> None:
    schedule, theirs = NoiseSchedule(n_times), THEIRS["schedule"][str(n_times)]
    at = list(cases.SCHEDULES[n_times])
    for name, values in schedule.named_buffers():
        check_close(values[at], theirs[name])
    assert ddim_times(n_times, 10) == theirs["ddim_times"]


@pytest.mark.parametrize("horizon", cases.HORIZONS)
def test_the_network_answers_as_the_original(planner: Pdpp, horizon: int) -> None:
    out = planner.unet(cases.rows(horizon), torch.tensor(cases.TIMES))
    check_close(out, THEIRS[f"h{horizon}"]["network"])


@pytest.mark.parametrize("horizon", cases.HORIZONS)
def test_noise_is_added_as_in_the_original(horizon: int) -> None:
    x_BHC = cases.rows(horizon)
    noised = NoiseSchedule(cases.CONFIG.times).noised(x_BHC, torch.tensor(cases.TIMES), cases.draws()(*x_BHC.shape))
    check_close(noised, THEIRS[f"h{horizon}"]["noised"])


def check_projection(projection: Projection, horizon: int) -> None:
    check_close(projection(cases.rows(horizon), cases.condition(), cases.SHAPE), THEIRS[f"h{horizon}"]["projected"])


def with_seen_mids(x_BHC: Tensor, condition: PlanCondition, shape: PlanChannels) -> Tensor:
    """A projection that leaves something to be seen in the rows between."""
    out = project(x_BHC, condition, shape)
    out[:, 1:-1, shape.of_actions.stop :] = 0.2
    return out


@pytest.mark.parametrize("horizon", cases.HORIZONS)
def test_plans_are_projected_as_in_the_original(horizon: int) -> None:
    check_projection(project, horizon)


def test_features_in_the_rows_between_are_found(planner: Pdpp, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_projection(with_seen_mids, 5)
    monkeypatch.setattr(diffusion, "project", with_seen_mids)
    with pytest.raises(AssertionError):
        check_sampling(planner.unet, 5, "ddim", 10)


@pytest.mark.parametrize("horizon", cases.HORIZONS)
def test_loss_and_gradient_are_those_of_the_original(planner: Pdpp, horizon: int) -> None:
    theirs = THEIRS[f"h{horizon}"]
    planner.zero_grad()
    clean_BHA = nn.functional.one_hot(cases.labels(horizon), cases.SHAPE.actions).float()
    loss = planner.loss_at(clean_BHA, cases.condition(), torch.tensor(cases.TIMES), cases.action_draws(horizon)())
    loss.backward()
    check_close(loss, theirs["loss"])
    for name, parameter in planner.unet.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.norm().item() == pytest.approx(theirs["gradient"][name], rel=CLOSE, abs=CLOSE), name


@pytest.mark.parametrize("t", cases.STEPS_COMPARED)
@pytest.mark.parametrize("horizon", cases.HORIZONS)
def test_a_step_of_ddpm_is_that_of_the_original(planner: Pdpp, horizon: int, t: int) -> None:
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


@pytest.mark.parametrize("name", cases.STEPS_OF_SAMPLING)
@pytest.mark.parametrize("horizon", cases.HORIZONS)
def test_plans_are_sampled_as_by_the_original(planner: Pdpp, horizon: int, name: str) -> None:
    check_sampling(planner.unet, horizon, name, cases.STEPS_OF_SAMPLING[name])


@pytest.mark.parametrize("n_steps", [1, 9, 50])
def test_another_number_of_steps_is_found(planner: Pdpp, n_steps: int) -> None:
    with pytest.raises(AssertionError):
        check_sampling(planner.unet, 5, "ddim", n_steps)


@pytest.mark.parametrize("name", cases.STEPS_OF_SAMPLING)
def test_a_clamp_of_the_estimate_is_found(planner: Pdpp, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unclamped = planner.unet.predict
    monkeypatch.setattr(planner.unet, "predict", lambda *args: unclamped(*args).clamp(-1, 1))
    with pytest.raises(AssertionError):
        check_sampling(planner.unet, 5, name, cases.STEPS_OF_SAMPLING[name])


def test_the_task_classifier_answers_as_the_original() -> None:
    check_close(cases.classifier()(cases.condition().ends), THEIRS["classifier"])


@pytest.mark.parametrize("total", cases.TOTAL_STEPS)
def test_the_learning_rate_follows_the_original(total: int) -> None:
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


def test_weights_are_averaged_as_by_the_original() -> None:
    check_average()


def test_an_average_that_is_never_updated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovingAverage, "update", lambda self, module: None)
    with pytest.raises(AssertionError):
        check_average()


def test_the_golden_schedule_is_met(facts: dict[str, Any]) -> None:
    for n_times in (200, 50):
        betas = facts[f"cosine_betas_T{n_times}"]
        ours = cosine_betas(n_times)[[int(at) for at in betas]]
        assert_close(ours, torch.tensor(list(betas.values())), rtol=1e-4, atol=1e-8)
    shares = facts["alphas_cumprod_T200"]
    ours = NoiseSchedule(200).alpha_bar[[int(at) for at in shares]]
    assert_close(ours, torch.tensor(list(shares.values())), rtol=1e-5, atol=1e-8)
    assert ddim_times(200, 10) == facts["ddim_timesteps_T200"]


def test_the_golden_projection_is_met(facts: dict[str, Any]) -> None:
    case = {key: torch.tensor(value) for key, value in facts["condition_projection"].items()}
    shape = PlanChannels(*(int(case[key]) for key in ("class_dim", "action_dim", "obs_dim")))
    condition = PlanCondition(torch.stack([case["cond_first"], case["cond_last"]], 1), case["task_onehot"].argmax(1))
    assert_close(project(case["x"], condition, shape), case["projected"])


def test_the_golden_loss_is_met_with_the_channels_that_a_condition_fixes(facts: dict[str, Any]) -> None:
    case = facts["weighted_mse"]
    predicted_BHC, target_BHC = torch.tensor(case["pred"]), torch.tensor(case["target"])
    own = PlanChannels(2, 3, 2).of_actions
    squares_BHC = (predicted_BHC - target_BHC).square()
    rest = squares_BHC.sum() - squares_BHC[..., own].sum()
    loss = plan_loss(predicted_BHC[..., own], target_BHC[..., own], PdppConfig().end_weight) + rest
    assert loss.item() == pytest.approx(case["loss_sum"], rel=1e-6)


def test_the_golden_learning_rates_are_met(facts: dict[str, Any]) -> None:
    for step, multiplier in facts["lr_multiplier_for_24000_steps"].items():
        assert learning_rate_multiplier(int(step), 24_000) == pytest.approx(multiplier, rel=1e-9)


def test_the_golden_numbers_of_parameters_are_met(facts: dict[str, Any]) -> None:
    assert parameters(PlanChannels(18, 105, 1536)) == facts["unet_params_crosstask_1659"]
    assert parameters(PlanChannels(16, 375, 1664)) == facts["unet_params_keystep_375_1664_16"]


def test_the_golden_lengths_of_plans_are_met(facts: dict[str, Any]) -> None:
    network = TemporalUnet(PlanChannels(16, 375, 1664), 32, (1, 2, 4))
    for horizon, expected in facts["unet_output_shape_by_H"]:
        x_BHC, t_B = torch.zeros(1, horizon, network.shape.total), torch.zeros(1, dtype=torch.long)
        if expected == "fails":
            with pytest.raises(ValueError, match="at least 3"):
                network(x_BHC, t_B)
        else:
            assert list(network(x_BHC, t_B).shape) == expected
