"""Diffusion over the actions of a plan: noise schedule, projection onto the condition, loss and sampling.

Only the actions of a plan are free. The original keeps whole rows (task, action, features) and restores the known
channels after every step; here the state consists of the actions, and the known channels enter the network once.

Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), model/diffusion.py and model/helpers.py; Nichol and Dhariwal 2021
for the cosine; Song, Meng and Ermon 2021 for DDIM.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trajpilot_core.models.planners.temporal_unet import PlanChannels, TemporalUnet

OFFSET, LARGEST_BETA = 0.008, 0.999
"""Constants of the cosine schedule. Source: PDPP, model/helpers.py."""

Noise = Callable[[], Tensor]
"""Each call returns new standard normal numbers (B, H, A)."""


class PlanCondition(NamedTuple):
    """The known channels of B plans."""

    ends: Tensor
    """(B, 2, D) features of Start and Goal, at a scale near 1 (standardised)."""
    tasks: Tensor
    """(B,) long."""


class NoiseSchedule(nn.Module):
    """Share of a plan left at each of T times; constants that are not part of checkpoints.

    Shapes: T times, all float32; B windows, H steps, A actions.
    """

    beta: Tensor
    alpha_bar: Tensor
    """Share of the clean plan's variance."""
    of_clean: Tensor
    """Weight of the clean plan in the mean of the step before, given the noisy one."""
    of_noisy: Tensor
    """Weight of the noisy plan in that mean."""
    deviation: Tensor
    """Standard deviation around that mean."""

    def __init__(self, n_times: int) -> None:
        super().__init__()
        beta = cosine_betas(n_times)
        alpha_bar = torch.cumprod(1.0 - beta, dim=0)
        earlier = torch.cat([torch.ones(1), alpha_bar[:-1]])
        values = {
            "beta": beta,
            "alpha_bar": alpha_bar,
            "of_clean": beta * earlier.sqrt() / (1.0 - alpha_bar),
            "of_noisy": (1.0 - earlier) * (1.0 - beta).sqrt() / (1.0 - alpha_bar),
            "deviation": (beta * (1.0 - earlier) / (1.0 - alpha_bar)).sqrt(),
        }
        for name, value in values.items():
            self.register_buffer(name, value, persistent=False)

    def __len__(self) -> int:
        """T."""
        return len(self.beta)

    def noised(self, clean_BHA: Tensor, t_B: Tensor, noise_BHA: Tensor) -> Tensor:
        """Return (B, H, A): plans with the noise of times `t_B` (long)."""
        share_B11 = self.alpha_bar[t_B][:, None, None]
        return share_B11.sqrt() * clean_BHA + (1.0 - share_B11).sqrt() * noise_BHA

    def ddpm_step(self, noisy_BHA: Tensor, clean_BHA: Tensor, t: int, noise: Noise) -> Tensor:
        """Return (B, H, A), sampled at time t - 1 given the plans at t and the estimate of the clean ones.

        The estimate is not clamped: the original discards the result of its clamp to [-1, 1].
        """
        mean_BHA = self.of_clean[t] * clean_BHA + self.of_noisy[t] * noisy_BHA
        return mean_BHA + self.deviation[t] * noise() if t else mean_BHA

    def ddim_step(self, noisy_BHA: Tensor, clean_BHA: Tensor, t: int, earlier: int | None) -> Tensor:
        """Return (B, H, A) at time `earlier`, without new noise (eta 0); None: the estimate itself, unclamped."""
        if earlier is None:
            return clean_BHA
        share, next_share = self.alpha_bar[t], self.alpha_bar[earlier]
        noise_BHA = ((1.0 / share).sqrt() * noisy_BHA - clean_BHA) / (1.0 / share - 1.0).sqrt()
        return next_share.sqrt() * clean_BHA + (1.0 - next_share).sqrt() * noise_BHA


def cosine_betas(n_times: int) -> Tensor:
    """Return the noise (T,) float32 that each time adds.

    The original divides T + 1 points from 0 to T + 1 by T + 1, which is the published grid, t / T for t from 0 to T.
    """
    grid = np.linspace(0.0, 1.0, n_times + 1)
    share = np.cos((grid + OFFSET) / (1 + OFFSET) * math.pi / 2) ** 2
    return torch.from_numpy(np.clip(1 - share[1:] / share[:-1], 0.0, LARGEST_BETA)).float()


def ddim_times(n_times: int, n_steps: int) -> list[int]:
    """Return the times of DDIM, ascending: n multiples of T // n from 0 on.

    The first step treats pure noise as if it were at the last of them (180 of 200 for 10 steps), as the original does.

    Raises:
        ValueError: there are more steps than times, or none.
    """
    if not 1 <= n_steps <= n_times:
        raise ValueError(f"{n_steps} steps of sampling; from 1 to {n_times}, the times of the diffusion, are possible")
    return [step * (n_times // n_steps) for step in range(n_steps)]


def project(x_BHC: Tensor, condition: PlanCondition, shape: PlanChannels) -> Tensor:
    """Return plans (B, H, C) with the action channels of `x_BHC` and the other channels of the condition.

    Every row has the task; the first and last row have the features of Start and Goal, the others zeros.
    """
    horizon = x_BHC.shape[1]
    tasks_BHK = F.one_hot(condition.tasks, shape.tasks).to(x_BHC.dtype)[:, None].expand(-1, horizon, -1)
    start_B1D, goal_B1D = condition.ends.to(x_BHC.dtype).chunk(2, dim=1)
    unseen_BMD = x_BHC.new_zeros(len(x_BHC), horizon - 2, shape.features)
    seen_BHD = torch.cat([start_B1D, unseen_BMD, goal_B1D], dim=1)
    return torch.cat([tasks_BHK, x_BHC[..., shape.of_actions], seen_BHD], dim=-1)


def plan_loss(predicted_BHA: Tensor, actions_BHA: Tensor, end_weight: float) -> Tensor:
    """Return the weighted *sum* of squared errors, a scalar; the first and last row have the weight `end_weight`.

    The original sums over all channels of the projected prediction, whose other channels equal the target's.
    """
    squares_H = (predicted_BHA - actions_BHA).square().sum(dim=(0, 2))
    return squares_H.sum() + (end_weight - 1.0) * (squares_H[0] + squares_H[-1])


def sample(
    unet: TemporalUnet,
    schedule: NoiseSchedule,
    condition: PlanCondition,
    horizon: int,
    n_steps: int | None,
    noise: Noise,
) -> Tensor:
    """Return sampled actions (B, H, A), raw.

    Args:
        n_steps: steps of DDIM; None: DDPM with all T.
        noise: its first numbers are the start; DDPM uses more after every step but the last.
    """
    times = list(range(len(schedule))) if n_steps is None else ddim_times(len(schedule), n_steps)
    tables = unet.shifts(torch.tensor(times, device=condition.ends.device))
    empty_BHC = condition.ends.new_zeros(len(condition.tasks), horizon, unet.shape.total)
    fixed = unet.fixed_terms(project(empty_BHC, condition, unet.shape))
    x_BHA = noise()
    for place in reversed(range(len(times))):
        clean_BHA = unet.predict(x_BHA, fixed, [table[place : place + 1] for table in tables])
        if n_steps is None:
            x_BHA = schedule.ddpm_step(x_BHA, clean_BHA, times[place], noise)
        else:
            x_BHA = schedule.ddim_step(x_BHA, clean_BHA, times[place], times[place - 1] if place else None)
    return x_BHA


def window_noise(
    seed: int, windows: Sequence[int], horizon: int, actions: int, device: torch.device | str = "cpu"
) -> Noise:
    """Return a source of noise that depends only on the seed and the number of each window.

    Each window has a counter-based generator (Philox), keyed by both, so that its batch does not matter.

    Args:
        seed: seed of the sampling, from 0 on.
        windows: numbers of the B windows, from 0 on.
        device: device of the numbers (B, H, A), float32.
    """
    keys = [np.array([seed, window], dtype=np.uint64) for window in windows]
    generators = [np.random.Generator(np.random.Philox(key=key)) for key in keys]

    def draw() -> Tensor:
        numbers = np.empty((len(generators), horizon, actions), dtype=np.float32)
        for generator, block in zip(generators, numbers, strict=True):
            generator.standard_normal(dtype=np.float32, out=block)
        return torch.from_numpy(numbers).to(device)

    return draw
