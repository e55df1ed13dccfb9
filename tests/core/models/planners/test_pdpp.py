"""PDPP by itself: it learns, its two forms agree, windows do not see their batch, and a training can be resumed."""

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from schemas.planners import PdppConfig
from trajpilot_core.models.planners.pdpp import Pdpp, learning_rate_multiplier, window_noise
from trajpilot_core.models.planners.temporal_unet import PlanChannels

SHAPE, HORIZON, WINDOWS = PlanChannels(tasks=3, actions=12, features=256), 4, 64
SMALL = PdppConfig(
    width=32, multiples=(1, 2), times=50, end_weight=1.0, average_decay=0.9, average_every=2, average_start=50
)
"""Small enough to learn in seconds; equal weights, so that the actions between are learned as soon as the ends."""
ONE_LEVEL = SMALL.replace(multiples=(1,), average_start=40)
"""Measured: .996 to 1 of the actions with three seeds; two levels take half as many steps again."""
STEPS, TOTAL_STEPS, LEARNING_RATE = 110, 150, 1e-2
"""Stopped after three quarters of the schedule."""


class Windows(NamedTuple):
    """What `Pdpp.loss` reads."""

    features: Tensor
    labels: Tensor
    tasks: Tensor


def windows(count: int = WINDOWS) -> Windows:
    """Windows without any rule."""
    generator = torch.Generator().manual_seed(0)
    return Windows(
        torch.randn(count, 2, SHAPE.features, generator=generator),
        torch.randint(SHAPE.actions, (count, HORIZON), generator=generator),
        torch.randint(SHAPE.tasks, (count,), generator=generator),
    )


class Fit:
    """A planner and its optimiser."""

    def __init__(self, cfg: PdppConfig, total_steps: int) -> None:
        self.planner, self.total_steps = Pdpp(cfg, SHAPE), total_steps
        learned = [parameter for parameter in self.planner.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(learned, lr=LEARNING_RATE, weight_decay=0.0, fused=True)

    def go(self, data: Windows, first: int, last: int) -> None:
        """Do the steps from `first` to `last`, without it."""
        for step in range(first, last):
            for group in self.optimizer.param_groups:
                group["lr"] = LEARNING_RATE * learning_rate_multiplier(step, self.total_steps)
            self.optimizer.zero_grad()
            self.planner.loss(*data).backward()
            self.optimizer.step()
            self.planner.after_step()


@pytest.fixture(scope="module")
def trained() -> Pdpp:
    """A planner of one level that has seen the same 64 windows at every step; some seconds of CPU."""
    torch.manual_seed(0)
    fit = Fit(ONE_LEVEL, TOTAL_STEPS)
    fit.go(windows(), 0, STEPS)
    return fit.planner.eval()


def share_right(planner: Pdpp, n_steps: int | None) -> float:
    """Share of the actions of all windows that the best score names."""
    data = windows()
    scores_BHA = planner.plan(data.features, data.tasks, HORIZON, n_steps, 0, torch.arange(WINDOWS))
    return (scores_BHA.argmax(-1) == data.labels).float().mean().item()


def test_64_windows_are_memorised_and_weights_that_were_never_averaged_are_found(trained: Pdpp) -> None:
    for n_steps in (ONE_LEVEL.sampling_steps, None):
        assert share_right(trained, n_steps) > 0.95, n_steps
    torch.manual_seed(0)
    stale = Pdpp(ONE_LEVEL, SHAPE)
    stale.unet.load_state_dict(trained.unet.state_dict())
    assert share_right(stale, ONE_LEVEL.sampling_steps) < 0.5


def test_as_many_channels_as_the_network_is_wide_are_possible() -> None:
    shape = PlanChannels(tasks=4, actions=8, features=20)
    planner = Pdpp(SMALL, shape)
    scores = planner.plan(torch.randn(2, 2, 20), torch.tensor([0, 3]), 3, 2, 0, torch.arange(2))
    assert scores.shape == (2, 3, 8)


def test_a_plan_does_not_depend_on_the_batch_of_its_window(trained: Pdpp) -> None:
    """Noise is equal to the bit. Plans are within 1e-6: matrix products of other sizes add in another order."""
    data, numbers = windows(), torch.arange(100, 100 + WINDOWS).flip(0)
    for sizes, n_steps in (([1] * 4 + [60], 10), ([5, 40, 19], 10), ([40, 24], None)):
        whole = trained.plan(data.features, data.tasks, HORIZON, n_steps, 7, numbers)
        parts = zip(*(part.split(sizes) for part in (data.features, data.tasks, numbers)), strict=True)
        cut = [trained.plan(ends, tasks, HORIZON, n_steps, 7, own) for ends, tasks, own in parts]
        assert_close(torch.cat(cut), whole, rtol=0.0, atol=1e-6)


def test_noise_is_that_of_the_window_and_the_seed_and_standard_normal() -> None:
    whole, alone = window_noise(3, [5, 6, 2**40], 4, 9), window_noise(3, [2**40], 4, 9)
    for _ in range(3):
        assert torch.equal(whole()[2:], alone())
    first, other_seed = window_noise(3, [5, 6], 4, 9)(), window_noise(4, [5, 6], 4, 9)()
    assert len({tuple(row.flatten().tolist()) for row in (*first, *other_seed)}) == 4
    noise = window_noise(0, range(400), 5, 50)()
    assert abs(noise.mean().item()) < 0.02
    assert abs(noise.std().item() - 1) < 0.02
    assert noise.dtype == torch.float32


def resumed(*, loses_count: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Final weights of a training in one go, and of one that was stopped after 5 of 9 steps and started again."""
    cfg, data = SMALL.replace(average_start=3), windows(8)
    torch.manual_seed(1)
    whole = Fit(cfg, 9)
    whole.go(data, 0, 5)
    kept = copy.deepcopy(whole.planner.state_dict())
    optimizer, random = copy.deepcopy(whole.optimizer.state_dict()), torch.get_rng_state()
    again = Fit(cfg, 9)
    again.planner.load_state_dict(kept)
    again.optimizer.load_state_dict(optimizer)
    if loses_count:
        again.planner.average.steps.zero_()
    for fit in (whole, again):
        torch.set_rng_state(random)
        fit.go(data, 5, 9)
    return whole.planner.state_dict(), again.planner.state_dict()


def test_a_training_that_is_resumed_ends_with_the_same_bits_and_an_average_that_forgets_its_steps_is_found() -> None:
    whole, again = resumed(loses_count=False)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    whole, again = resumed(loses_count=True)
    assert not all(torch.equal(whole[name], again[name]) for name in whole if name.startswith("average.module"))


def test_the_moving_average_is_not_trained() -> None:
    planner = Pdpp(SMALL, SHAPE)
    planner.loss(*windows(4)).backward()
    assert all(parameter.grad is None for parameter in planner.average.parameters())
