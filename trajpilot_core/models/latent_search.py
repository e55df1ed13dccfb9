"""The cross-entropy method over head motion, all windows and samples at once.

Shapes: B windows, S samples, M middle steps, P directions of the search, U numbers of a step's head motion, I
iterations. Source: the search of V-JEPA 2-AC, described in docs/decisions/latent-planning.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.latent import SearchConfig


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


class SearchResult(NamedTuple):
    """Result of the search."""

    controls: Tensor
    """(B, M, P), the candidate with the lowest energy of all iterations."""
    energy: Tensor
    """(B,), its energy."""
    mean: Tensor
    """(B, M, P), mean of the last proposal, which the original returns."""


def noise_of(cfg: SearchConfig, mids: int, directions: int, seed: int, device: str | torch.device) -> Tensor:
    """Return (I, S, M, P) standard normal noise: the same for every window, independent of batches."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(cfg.iterations, cfg.samples, mids, directions, generator=generator).to(device)


def cross_entropy_search(
    energy: Callable[[Tensor], Tensor], n_windows: int, noise_ISMP: Tensor, cfg: SearchConfig
) -> SearchResult:
    """Refine a proposal, an independent normal distribution per number, towards candidates of low energy.

    Args:
        energy: (B, S, M, P) points of the search -> (B, S) energies.
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
    return SearchResult(best, least, mean)
