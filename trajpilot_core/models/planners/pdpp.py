"""PDPP: plans are sampled by a diffusion that is conditioned on Start, Goal and the task.

Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a): main_distributed.py, utils/training.py, model/helpers.py.
"""

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import PdppConfig
from trajpilot_core.models.planners.diffusion import (
    NoiseSchedule,
    PlanCondition,
    plan_loss,
    project,
    sample,
    window_noise,
)
from trajpilot_core.models.planners.temporal_unet import PlanChannels, TemporalUnet

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
        """Return the scalar loss at random times and with random noise, both from torch's global state.

        It is the sum over windows scaled to `PdppConfig.summed_windows` of them, so that its gradient does not depend
        on the size of the batch: the original sums over 32 windows on each of 8 GPUs and takes the mean of those.

        Args:
            features_B2D: features of Start and Goal, standardised.
            labels_BH: true actions, long.
            tasks_B: true tasks, long.
        """
        clean_BHA = F.one_hot(labels_BH, self.shape.actions).to(features_B2D.dtype)
        t_B = torch.randint(0, len(self.schedule), (len(labels_BH),), device=labels_BH.device)
        condition = PlanCondition(features_B2D, tasks_B)
        return self.loss_at(clean_BHA, condition, t_B, torch.randn_like(clean_BHA)) * (self.summed / len(labels_BH))

    def loss_at(self, clean_BHA: Tensor, condition: PlanCondition, t_B: Tensor, noise_BHA: Tensor) -> Tensor:
        """Return the summed loss of plans at times `t_B` (long) with that noise, a scalar."""
        noisy_BHA = self.schedule.noised(clean_BHA, t_B, noise_BHA)
        empty_BHC = clean_BHA.new_zeros(*clean_BHA.shape[:2], self.shape.total)
        fixed = self.unet.fixed_terms(project(empty_BHC, condition, self.shape))
        return plan_loss(self.unet.predict(noisy_BHA, fixed, self.unet.shifts(t_B)), clean_BHA, self.end_weight)

    def after_step(self) -> None:
        """Update the average; to be called after every step of the optimiser."""
        self.average.update(self.unet)

    @torch.no_grad()
    def plan(
        self, features_B2D: Tensor, tasks_B: Tensor, horizon: int, n_steps: int | None, seed: int, window_B: Tensor
    ) -> Tensor:
        """Return scores (B, H, A): the raw action channels of one sample per window, by the averaged weights.

        A window's noise depends on `seed` and its number alone; see `window_noise`.

        Args:
            features_B2D: features of Start and Goal, standardised.
            tasks_B: predictions of the classifier, long.
            horizon: H, at least the number of levels of the network.
            n_steps: of DDIM, `PdppConfig.sampling_steps`; None: DDPM at all times.
            window_B: numbers of the windows, long.
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
