"""PDPP: plans are sampled by a diffusion that is conditioned on Start, Goal and the task.

Only the actions of a plan are free. The original keeps whole rows (task, action, features) and restores the known
channels after every step; here the state consists of the actions, and the known channels enter the network once.

Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), main_distributed.py, utils/training.py, model/diffusion.py and
model/helpers.py; Nichol and Dhariwal 2021 for the cosine; Song, Meng and Ermon 2021 for DDIM.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import PdppConfig
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
        # the original divides T + 1 points from 0 to T + 1 by T + 1: the published grid, t / T for t from 0 to T
        share = np.cos((np.linspace(0.0, 1.0, n_times + 1) + OFFSET) / (1 + OFFSET) * math.pi / 2) ** 2
        beta = torch.from_numpy(np.clip(1 - share[1:] / share[:-1], 0.0, LARGEST_BETA)).float()
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


def ddim_times(n_times: int, n_steps: int) -> list[int]:
    """Return the times of DDIM, ascending: n multiples of T // n from 0 on.

    The first step treats pure noise as if it were at the last of them (180 of 200 for 10 steps), as the original does.

    Raises ValueError: there are more steps than times, or none.
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


def sample(
    unet: TemporalUnet,
    schedule: NoiseSchedule,
    condition: PlanCondition,
    horizon: int,
    n_steps: int | None,
    noise: Noise,
) -> Tensor:
    """Return actions (B, H, A), raw, sampled in `n_steps` of DDIM; None: DDPM with all T.

    The first noise is the start; DDPM uses more after every step but the last. Estimates are not clamped: the original
    discards the result of its clamp to [-1, 1].
    """
    times = list(range(len(schedule))) if n_steps is None else ddim_times(len(schedule), n_steps)
    tables = unet.shifts(torch.tensor(times, device=condition.ends.device))
    empty_BHC = condition.ends.new_zeros(len(condition.tasks), horizon, unet.shape.total)
    fixed = unet.fixed_terms(project(empty_BHC, condition, unet.shape))
    x_BHA = noise()
    for place in reversed(range(len(times))):
        t, clean_BHA = times[place], unet.predict(x_BHA, fixed, [table[place : place + 1] for table in tables])
        if n_steps is None:
            mean_BHA = schedule.of_clean[t] * clean_BHA + schedule.of_noisy[t] * x_BHA
            x_BHA = mean_BHA + schedule.deviation[t] * noise() if place else mean_BHA
        elif place:  # without new noise (eta 0)
            share, next_share = schedule.alpha_bar[t], schedule.alpha_bar[times[place - 1]]
            noise_BHA = ((1.0 / share).sqrt() * x_BHA - clean_BHA) / (1.0 / share - 1.0).sqrt()
            x_BHA = next_share.sqrt() * clean_BHA + (1.0 - next_share).sqrt() * noise_BHA
        else:
            x_BHA = clean_BHA
    return x_BHA


def window_noise(
    seed: int, windows: Sequence[int], horizon: int, actions: int, device: torch.device | str = "cpu"
) -> Noise:
    """Return a source of noise (B, H, A), float32, that depends only on the seed and the number of each window.

    Each window has a counter-based generator (Philox), keyed by the seed and its number (both at least 0), so that its
    batch does not matter.
    """
    keys = [np.array([seed, window], dtype=np.uint64) for window in windows]
    generators = [np.random.Generator(np.random.Philox(key=key)) for key in keys]

    def draw() -> Tensor:
        numbers = np.empty((len(generators), horizon, actions), dtype=np.float32)
        for generator, block in zip(generators, numbers, strict=True):
            generator.standard_normal(dtype=np.float32, out=block)
        return torch.from_numpy(numbers).to(device)

    return draw


Averaged = TypeVar("Averaged", bound=nn.Module)


class MovingAverage(nn.Module, Generic[Averaged]):
    """A moving average of a module's parameters, which no optimiser changes.

    Its state, including the number of steps, is in the state_dict, so that a resumed training ends with the same bits.
    Every `every` steps it copies the parameters during the first `start` steps, and averages them afterwards.
    Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), utils/training.py, Trainer.
    """

    steps: Tensor
    """Updates so far, long scalar."""

    def __init__(self, module: Averaged, decay: float, every: int, start: int) -> None:
        super().__init__()
        self.decay, self.every, self.start = decay, every, start
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Update the average; to be called after every step of the optimiser of `module`."""
        step = int(self.steps)
        self.steps += 1
        if step % self.every:
            return
        for average, current in zip(self.module.parameters(), module.parameters(), strict=True):
            if step < self.start:
                average.copy_(current)
            else:
                average.mul_(self.decay).add_((1 - self.decay) * current)


class Pdpp(nn.Module):
    """The trained network and the average of its weights, which is used for planning.

    Shapes: B windows, H steps, K tasks, A actions, D feature width. It does not depend on H, but the original trains
    one model per horizon. A training step: `loss`, a step of the optimiser with its learning rate times
    `learning_rate_multiplier`, then `after_step`.
    """

    def __init__(self, cfg: PdppConfig, shape: PlanChannels) -> None:
        super().__init__()
        self.shape, self.end_weight, self.summed = shape, cfg.end_weight, cfg.summed_windows
        self.schedule = NoiseSchedule(cfg.times)
        self.unet = TemporalUnet(shape, cfg.width, cfg.multiples)
        self.average = MovingAverage(self.unet, cfg.average_decay, cfg.average_every, cfg.average_start)

    def loss(self, features_B2D: Tensor, labels_BH: Tensor, tasks_B: Tensor) -> Tensor:
        """Return the scalar loss of standardised features at random times and with noise from torch's global state.

        It is the sum over windows scaled to `PdppConfig.summed_windows` of them, so that its gradient does not depend
        on the size of the batch: the original sums over 32 windows on each of 8 GPUs and takes the mean of those.
        """
        clean_BHA = F.one_hot(labels_BH, self.shape.actions).to(features_B2D.dtype)
        t_B = torch.randint(0, len(self.schedule), (len(labels_BH),), device=labels_BH.device)
        condition = PlanCondition(features_B2D, tasks_B)
        return self.loss_at(clean_BHA, condition, t_B, torch.randn_like(clean_BHA)) * (self.summed / len(labels_BH))

    def loss_at(self, clean_BHA: Tensor, condition: PlanCondition, t_B: Tensor, noise_BHA: Tensor) -> Tensor:
        """Return the weighted *sum* of squared errors of plans at times `t_B` (long) with that noise, a scalar.

        The first and last row have the weight `end_weight`. The original sums over all channels of the projected
        prediction, whose other channels equal the target's.
        """
        noisy_BHA = self.schedule.noised(clean_BHA, t_B, noise_BHA)
        empty_BHC = clean_BHA.new_zeros(*clean_BHA.shape[:2], self.shape.total)
        fixed = self.unet.fixed_terms(project(empty_BHC, condition, self.shape))
        predicted_BHA = self.unet.predict(noisy_BHA, fixed, self.unet.shifts(t_B))
        squares_H = (predicted_BHA - clean_BHA).square().sum(dim=(0, 2))
        return squares_H.sum() + (self.end_weight - 1.0) * (squares_H[0] + squares_H[-1])

    def after_step(self) -> None:
        """Update the average; to be called after every step of the optimiser."""
        self.average.update(self.unet)

    @torch.no_grad()
    def plan(
        self, features_B2D: Tensor, tasks_B: Tensor, horizon: int, n_steps: int | None, seed: int, window_B: Tensor
    ) -> Tensor:
        """Return scores (B, H, A): the raw action channels of one sample per window, by the averaged weights.

        Args:
            features_B2D: features of Start and Goal, standardised.
            tasks_B: predictions of the classifier, long.
            horizon: H, at least the number of levels of the network.
            n_steps: of DDIM, `PdppConfig.sampling_steps`; None: DDPM at all times.
            window_B: numbers of the windows, long; with `seed` they decide the noise (`window_noise`).
        """
        noise = window_noise(seed, window_B.tolist(), horizon, self.shape.actions, features_B2D.device)
        condition = PlanCondition(features_B2D, tasks_B)
        return sample(self.average.module, self.schedule, condition, horizon, n_steps, noise)


def learning_rate_multiplier(step: int, total_steps: int) -> float:
    """Return the factor of the learning rate at a step, counted from 0.

    It rises linearly over a sixth of all steps and is halved after each further quarter of them.
    """
    warmup = total_steps / 6
    if step <= warmup:
        return step / max(1.0, warmup)
    return float(0.5 ** ((step - warmup) // (total_steps / 4)))
