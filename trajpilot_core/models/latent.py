"""Predicting the latents of future steps, labels from latents, and the cross-entropy method over head motion.

Shapes: B windows, S samples or candidate motions of each, M middle steps, P directions of the search, C tokens of a
clip, D feature width, G predicted tokens of a step, T steps that are predicted, U numbers of a step's head motion, E
text width, V labels, W width, I iterations. Source: V-JEPA 2-AC for the search; docs/decisions/latent-planning.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.latent import LatentConfig, SearchConfig
from trajpilot_core.models.blocks import DataSizes, KeysValues, TransformerBlock, table

START, GOAL = 0, 1


@dataclass(frozen=True)
class LatentShape(DataSizes):
    """Sizes that follow from the data."""

    feature_width: int
    tokens: int
    """C."""
    motion: int
    """U."""
    text_width: int
    max_horizon: int
    labels: int


class StepInputs(NamedTuple):
    """Inputs of a predictor about the steps that it predicts."""

    motion: Tensor | None
    """(B, S, T, U) standardised head motion; None: no step has one."""
    is_moved: Tensor | None = None
    """(T,) bool, steps whose motion is given; None: all."""
    text: Tensor | None = None
    """(B, S, T, E) texts of the steps' actions; None: no step has one."""


def normalised(clip_xD: Tensor) -> Tensor:
    """Return (..., D) float32 latents, each token with mean 0 and variance 1 over its components."""
    return F.layer_norm(clip_xD.float(), clip_xD.shape[-1:])


def targets_of(features_xCD: Tensor, target: str) -> Tensor:
    """Return (..., G, D) normalised latents: the mean over tokens, or each token."""
    clip = features_xCD.float()
    return normalised(clip.mean(-2, keepdim=True) if target == "pooled" else clip)


def l1_between(one_xGD: Tensor, other_xGD: Tensor) -> Tensor:
    """Return (...) mean absolute differences over tokens and components."""
    return (one_xGD - other_xGD).abs().mean((-2, -1))


class LatentPredictor(nn.Module):
    """Predict normalised latents of steps from Start, Goal (if it is seen), and inputs about the steps.

    Start and Goal attend to each other; step t attends to them and to the steps up to t. So a context is encoded once
    for all candidates of a window. Buffers of shape (D,) standardise normalised latents by the fitted takes.
    """

    latent_mean: Tensor
    latent_scale: Tensor

    def __init__(self, cfg: LatentConfig, shape: LatentShape) -> None:
        super().__init__()
        self.n_tokens = shape.tokens if cfg.target == "temporal" else 1
        width = cfg.width
        self.register_buffer("latent_mean", torch.zeros(shape.feature_width))
        self.register_buffer("latent_scale", torch.ones(shape.feature_width))
        self.clip_in = nn.Linear(shape.feature_width, width)
        self.place, self.role = table(self.n_tokens, width), table(2, width)
        self.no_goal, self.no_motion, self.no_text = table(1, width), table(1, width), table(1, width)
        self.motion_in = nn.Sequential(nn.Linear(shape.motion, width), nn.GELU(), nn.Linear(width, width))
        self.text_in = nn.Linear(shape.text_width, width)
        self.step, self.horizon = table(shape.max_horizon, width), table(shape.max_horizon + 1, width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, cfg.heads, cfg.hidden, cfg.dropout) for _ in range(cfg.layers)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, self.n_tokens * shape.feature_width)

    def encode(
        self, start_BGD: Tensor, goal_BGD: Tensor | None, horizon: int, goal_seen_B: Tensor | None = None
    ) -> list[KeysValues]:
        """Return keys and values of every layer, each (B, heads, 2 G, width of a head), from normalised latents of the
        first and the last segment.

        Without `goal_BGD`, or where `goal_seen_B` (bool; None: all true) is false, a window is encoded without a goal.
        """
        start_BGW = self._clip(start_BGD, START)
        hidden_BGW = (self.no_goal + self.place + self.role[GOAL]).expand_as(start_BGW)
        goal_BGW = hidden_BGW if goal_BGD is None else self._clip(goal_BGD, GOAL)
        if goal_seen_B is not None:
            goal_BGW = torch.where(goal_seen_B[:, None, None], goal_BGW, hidden_BGW)
        x = torch.cat([start_BGW, goal_BGW], 1) + self.horizon[horizon]
        context = []
        for block in self.blocks:
            x, keys_values = block(x)
            context.append(keys_values)
        return context

    def forward(self, context: list[KeysValues], steps: StepInputs, n_steps: int, horizon: int) -> Tensor:
        """Return (B, S, T, G, D) normalised latents of the steps; S is 1 if the steps have no inputs."""
        n_windows = len(context[0][0])
        given = steps.motion if steps.motion is not None else steps.text
        n_plans = 1 if given is None else given.shape[1]
        motion = self.no_motion if steps.motion is None else self.motion_in(steps.motion.flatten(0, 1))
        if steps.is_moved is not None:
            motion = torch.where(steps.is_moved[:, None], motion, self.no_motion)
        text = self.no_text if steps.text is None else self.text_in(steps.text.flatten(0, 1))
        placed = self.step[1 : 1 + n_steps] + self.horizon[horizon]
        x_NTW = (motion + text + placed).expand(n_windows * n_plans, n_steps, -1)
        seen = context[0][0].shape[2]
        causal_TT = torch.ones(n_steps, n_steps, dtype=torch.bool, device=x_NTW.device).tril()
        mask_TX = torch.cat([causal_TT.new_ones(n_steps, seen), causal_TT], 1)
        for block, (keys, values) in zip(self.blocks, context, strict=True):
            shared = (keys.repeat_interleave(n_plans, 0), values.repeat_interleave(n_plans, 0))
            x_NTW = block(x_NTW, mask_TX, shared)[0]
        out = self.out(self.norm(x_NTW)).float().view(n_windows, n_plans, n_steps, self.n_tokens, -1)
        return normalised(self.latent_mean + self.latent_scale * out)

    def _clip(self, clip_BGD: Tensor, role: int) -> Tensor:
        """(B, G, D) -> (B, G, W)."""
        standard = (clip_BGD - self.latent_mean) / self.latent_scale
        projected: Tensor = self.clip_in(standard)
        return projected + self.place + self.role[role]


class LatentHead(nn.Module):
    """Predict labels from normalised latents: a linear classifier, trained on true latents only."""

    latent_mean: Tensor
    latent_scale: Tensor

    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.register_buffer("latent_mean", torch.zeros(shape.feature_width))
        self.register_buffer("latent_scale", torch.ones(shape.feature_width))
        self.out = nn.Linear(shape.feature_width, shape.labels)

    def forward(self, latent_xGD: Tensor) -> Tensor:
        """Return (..., V) logits of latents whose tokens are averaged."""
        logits: Tensor = self.out((latent_xGD.mean(-2) - self.latent_mean) / self.latent_scale)
        return logits


class Controls(NamedTuple):
    """Head motion as independent numbers of variance 1 in the fitted takes, which the search varies."""

    mean: Tensor
    """(U,) mean of the raw motions."""
    scale: Tensor
    """(U,) scale of the raw motions."""
    directions: Tensor
    """(P, U) principal directions of standardised motions, scaled to the deviation along them."""

    def standardised(self, motions_x166: Tensor) -> Tensor:
        """Return (..., U) from raw (..., 16, 6) motions in metres and radians."""
        return (motions_x166.flatten(-2).float() - self.mean) / self.scale

    def motions(self, controls_xP: Tensor) -> Tensor:
        """Return (..., U) standardised motions for points of the search."""
        return controls_xP @ self.directions


def fit_controls(motions_S166: Tensor, variance: float) -> Controls:
    """Fit mean, scale per channel and principal directions of raw (S, 16, 6) motions; keep a share of the variance."""
    flat_SU = motions_S166.flatten(1).double()
    mean, channels = flat_SU.mean(0), motions_S166.double().std((0, 1), correction=0)
    channels = torch.where(channels > 0, channels, torch.ones_like(channels))
    scale = channels.repeat(motions_S166.shape[1])
    standard = (flat_SU - mean) / scale
    values, vectors = torch.linalg.eigh(standard.T @ standard / max(1, len(standard)))
    values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
    shares = values.cumsum(0) / values.sum().clamp_min(torch.finfo(torch.float64).tiny)
    kept = min(int((shares < variance - 1e-12).sum()) + 1, len(values))
    directions = (vectors[:, :kept] * values[:kept].sqrt()).T
    return Controls(mean.float(), scale.float(), directions.float())


def noise_of(cfg: SearchConfig, mids: int, directions: int, seed: int, device: str | torch.device) -> Tensor:
    """Return (I, S, M, P) standard normal noise: the same for every window, independent of batches."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(cfg.iterations, cfg.samples, mids, directions, generator=generator).to(device)


def cross_entropy_search(
    energy: Callable[[Tensor], Tensor], n_windows: int, noise_ISMP: Tensor, cfg: SearchConfig
) -> Tensor:
    """Refine a proposal, an independent normal distribution per number, towards candidates of low energy.

    Returns (B, M, P), the candidate with the lowest energy of all iterations (the original: mean of the last proposal).
    `energy` maps points of the search (B, S, M, P) to (B, S).
    """
    mean = noise_ISMP.new_zeros(n_windows, *noise_ISMP.shape[2:])
    std, best, least = torch.ones_like(mean), mean.clone(), mean.new_full((n_windows,), torch.inf)
    for noise_SMP in noise_ISMP:
        candidates_BSMP = mean[:, None] + std[:, None] * noise_SMP
        energy_BS = energy(candidates_BSMP)
        order_BE = energy_BS.topk(min(cfg.elites, energy_BS.shape[1]), dim=1, largest=False, sorted=True)
        chosen_BE = order_BE.indices
        elites = candidates_BSMP.gather(1, chosen_BE[:, :, None, None].expand(-1, -1, *mean.shape[1:]))
        is_less = order_BE.values[:, 0] < least
        best = torch.where(is_less[:, None, None], elites[:, 0], best)
        least = torch.minimum(order_BE.values[:, 0], least)
        mean = cfg.momentum * mean + (1 - cfg.momentum) * elites.mean(1)
        std = cfg.momentum * std + (1 - cfg.momentum) * elites.std(1)
    return best
