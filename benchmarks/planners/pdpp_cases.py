"""The small PDPP and the inputs that the fixtures and the tests share; every number comes from the formula."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from benchmarks.planners.formula import fill, numbers
from schemas.planners import PdppConfig
from trajpilot_core.models.planners.diffusion import PlanCondition
from trajpilot_core.models.planners.pdpp import Pdpp
from trajpilot_core.models.planners.task_classifier import TaskClassifier
from trajpilot_core.models.planners.temporal_unet import PlanChannels

SHAPE = PlanChannels(tasks=3, actions=7, features=12)
CONFIG = PdppConfig(width=32, times=50)
HORIZONS = (3, 5)
STEPS_OF_SAMPLING: Mapping[str, int | None] = {"ddim": 10, "ddpm": None}
TIMES = (3, 41)
"""Of the two windows, where the network and the loss are compared."""
STEPS_COMPARED = (0, 37)
"""Times of the single steps of DDPM that are compared."""
SCHEDULES = {200: (0, 1, 50, 100, 198, 199), 50: (0, 1, 25, 48, 49)}
"""T -> the times that are compared."""
PUBLISHED_SHAPES = {"crosstask": PlanChannels(18, 105, 1536), "keystep": PlanChannels(16, 375, 1664)}
"""Whose numbers of parameters are compared; on `torch.device("meta")`, at the original's widths."""
TOTAL_STEPS, COMPARED_STEPS = (24_000, 1_000, 97), 25
"""Lengths of trainings, and at how many steps of each the learning rate is compared."""
AVERAGED_UNTIL, AVERAGED_AT = 461, (0, 5, 10, 390, 399, 400, 405, 410, 460)
"""Optimiser steps of the moving average, and those after which it is compared."""


def pdpp() -> Pdpp:
    """Return the small planner; its average has the same weights."""
    planner = Pdpp(CONFIG, SHAPE).eval()
    fill(planner.unet, scale=0.5)
    planner.average.module.load_state_dict(planner.unet.state_dict())
    return planner


def classifier() -> TaskClassifier:
    """Return the small task classifier."""
    network = TaskClassifier(SHAPE.features, SHAPE.tasks).eval()
    fill(network)
    return network


def condition() -> PlanCondition:
    """Return what is known of two plans."""
    return PlanCondition(numbers(2, 2, SHAPE.features, phase=0.1), torch.tensor([2, 0]))


def labels(horizon: int) -> Tensor:
    """Return true actions (2, H)."""
    return torch.arange(2 * horizon).reshape(2, horizon) * 3 % SHAPE.actions


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


def compared_steps(total: int) -> list[int]:
    """Return the steps at which the learning rate of a training of `total` steps is compared."""
    return [step * (total - 1) // (COMPARED_STEPS - 1) for step in range(COMPARED_STEPS)]
