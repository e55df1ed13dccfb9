"""Segments as the sum of what is done and of who does it where: effects of labels, effects of takes, and noise.

Every number of a segment is mean + effect of its label + effect of its take + noise, all three Gaussian. The effects
of labels and takes are found by turns, their covariances by expectation maximisation.

Shapes: S segments, C numbers of a segment, W directions, V labels, T takes, B queries, N segments of a query.
Source: the mixed model of Henderson (Biometrics 31, 1975); docs/decisions/scorer-plus.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import EffectsConfig

TINY = {torch.float32: 1e-30, torch.float64: 1e-300}
"""Below it a sum is lost in a product of exponentials of this precision: terms that count may have become 0."""
MANY_LABELS = 1024
"""From here on that product is in double precision, where few sums are lost: each of them costs all labels. So many
rows of it are made at a time. Below, it is in the precision of the numbers, in which models were trained."""
LOST_AT_ONCE = 1 << 24
"""Terms of the sums that a product of exponentials has lost, computed again in one call: 64 MiB a copy in float32."""


class Sizes(NamedTuple):
    """How many groups there are, with or without segments."""

    labels: int
    takes: int


@dataclass(frozen=True)
class RandomEffects:
    """Effects in directions in which the noise has variance 1."""

    mean: Tensor
    """(C,)."""
    project: Tensor
    """(C, W)."""
    label: Tensor
    """(V, W) expected effect of each label; 0 without segments."""
    take: Tensor
    """(T, W) expected effect of each take; 0 without segments."""
    take_spread: Tensor
    """(W, W) covariance of the effects of takes."""


def fit_effects(
    x_SC: Tensor, label_S: Tensor, take_S: Tensor, sizes: Sizes, directions: int, config: EffectsConfig
) -> RandomEffects:
    """Fit the effects.

    Args:
        x_SC: (S, C) numbers of any scale.
        label_S: (S,) long.
        take_S: (S,) long.
        sizes: V and T.
        directions: W, those in which labels differ most against the noise; cut at C.
        config: steps and floors.
    """
    x = x_SC.double()
    mean_C, scale_C = x.mean(0), x.std(0, correction=0)
    scale_C = torch.where(scale_C > 1e-6 * scale_C.mean(), scale_C, torch.inf)
    x = (x - mean_C) / scale_C
    count_V, count_T = (torch.bincount(g, minlength=n).double() for g, n in zip((label_S, take_S), sizes, strict=True))
    label_VC, take_TC = x.new_zeros(sizes.labels, x.shape[1]), x.new_zeros(sizes.takes, x.shape[1])
    for _ in range(config.steps):
        label_VC = group_sums(x - take_TC[take_S], label_S, sizes.labels) / (count_V + 1)[:, None]
        take_TC = group_sums(x - label_VC[label_S], take_S, sizes.takes) / (count_T + 1)[:, None]
    noise = x - label_VC[label_S] - take_TC[take_S]
    freedom = max(1, len(x) - int((count_V > 0).sum()) - int((count_T > 0).sum()))
    project_CW = _directions(noise.T @ noise / freedom, label_VC[count_V > 0], directions, config.floor)
    label_VW, take_TW, spread = _effects(x @ project_CW, label_S, take_S, count_V, count_T, config.steps)
    parts = mean_C, project_CW / scale_C[:, None], label_VW, take_TW, spread
    return RandomEffects(*(part.float() for part in parts))


def group_sums(x_SC: Tensor, group_S: Tensor, n_groups: int) -> Tensor:
    """Return (G, C): the sums of the rows (S, C) of each group, `group_S` long of shape (S,)."""
    return x_SC.new_zeros(n_groups, x_SC.shape[1]).index_add_(0, group_S, x_SC)


def _directions(noise: Tensor, effect_VC: Tensor, directions: int, floor: float) -> Tensor:
    """Return (C, W): directions of (C, C) noise 1 in which the (V, C) effects are largest."""
    added = floor * noise.diagonal().mean().clamp_min(torch.finfo(noise.dtype).tiny)
    root = torch.linalg.cholesky(noise + added * torch.eye(len(noise), dtype=noise.dtype, device=noise.device))
    white_VC = torch.linalg.solve_triangular(root, effect_VC.T, upper=False).T
    _, vectors = torch.linalg.eigh(white_VC.T @ white_VC)
    project_CW: Tensor = torch.linalg.solve_triangular(root.T, vectors[:, -directions:], upper=True)
    return project_CW


def _effects(
    z_SW: Tensor, label_S: Tensor, take_S: Tensor, count_V: Tensor, count_T: Tensor, steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the expected effects (V, W) and (T, W), and the covariance (W, W) of those of takes."""
    one = torch.eye(z_SW.shape[1], dtype=z_SW.dtype, device=z_SW.device)
    label_spread, take_spread = one, one
    take_TW = z_SW.new_zeros(len(count_T), len(one))
    label_VW = z_SW.new_zeros(len(count_V), len(one))
    for _ in range(steps):
        sums_VW = group_sums(z_SW - take_TW[take_S], label_S, len(count_V))
        label_VW, label_spread = _expected(sums_VW, count_V, label_spread)
        sums_TW = group_sums(z_SW - label_VW[label_S], take_S, len(count_T))
        take_TW, take_spread = _expected(sums_TW, count_T, take_spread)
    return label_VW, take_TW, take_spread


def _expected(sums_GW: Tensor, count_G: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (G, W) expected effects under noise 1 and the covariance `spread`, and the next covariance (W, W)."""
    one = torch.eye(len(spread), dtype=spread.dtype, device=spread.device)
    sizes, which_G = torch.unique(count_G, return_inverse=True)
    left = torch.linalg.inv(torch.linalg.inv(spread)[None] + sizes[:, None, None] * one)
    effect_GW = torch.einsum("gij,gj->gi", left[which_G], sums_GW)
    there_G = count_G > 0
    total = effect_GW[there_G].T @ effect_GW[there_G] + left[which_G[there_G]].sum(0)
    return effect_GW, total / there_G.sum().clamp_min(1) + 1e-4 * one


def placed(effects: RandomEffects, x_xC: Tensor) -> Tensor:
    """Return segments (..., C) in the directions of the effects, (..., W)."""
    return (x_xC - effects.mean) @ effects.project


def take_ratios(effects: RandomEffects, ends_BNW: Tensor) -> Tensor:
    """Return (B, T): log likelihood ratio of each take's effect against none, for N placed segments of one take."""
    ratio_BT = ends_BNW.sum(1) @ effects.take.T
    out: Tensor = ratio_BT - 0.5 * ends_BNW.shape[1] * effects.take.square().sum(1)
    return out


def label_ratios(effects: RandomEffects, ends_B2W: Tensor, tempering: float) -> Tensor:
    """Return (B, 2, V): log likelihood ratios of the labels of two segments of one unknown take, read together.

    The two share the effect of their take, so what is known of one label says something of the other. Their sum has
    the noise and twice the take's spread, their difference has the noise alone; each end is summed over the labels of
    the other.

    Args:
        effects: of labels and takes.
        ends_B2W: (B, 2, W) placed segments.
        tempering: factor of all log likelihoods, below 1 where the numbers are not as independent as the model says.
    """
    one = torch.eye(len(effects.take_spread), device=effects.take_spread.device)
    of_sum = torch.linalg.inv(one + 2 * effects.take_spread)
    same, other = (of_sum + one) / 2, (of_sum - one) / 2
    seen_B2W = ends_B2W @ same + ends_B2W.flip(1) @ other
    size_V = torch.einsum("vi,ij,vj->v", effects.label, same, effects.label)
    own_B2V: Tensor = tempering * (seen_B2W @ effects.label.T - 0.5 * size_V)
    both_VV = -tempering * (effects.label @ other @ effects.label.T)
    return own_B2V + _summed_out(own_B2V.flip(1), both_VV)


def _summed_out(of_other_B2V: Tensor, both_VV: Tensor) -> Tensor:
    """Return (B, 2, V): log of the sum over the other end's labels of exp(its own + what both share).

    As a product of exponentials, which is fast; the few sums that are lost in it are computed exactly.
    """
    precision = both_VV.dtype if len(both_VV) < MANY_LABELS else torch.float64
    highest_V, top_B21 = both_VV.amax(1), of_other_B2V.amax(-1, keepdim=True)
    own_B2V = (of_other_B2V - top_B21).to(precision).exp()
    blocks = torch.split(both_VV - highest_V[:, None], MANY_LABELS)
    summed_B2V = torch.cat([own_B2V @ block_NV.to(precision).exp_().T for block_NV in blocks], dim=-1)
    out_B2V = (top_B21 + highest_V + summed_B2V.clamp_min(TINY[precision]).log()).to(both_VV.dtype)
    at_once = max(1, LOST_AT_ONCE // len(both_VV))
    for lost_N3 in torch.split((summed_B2V < TINY[precision]).nonzero(), at_once):
        query, end, label = lost_N3.unbind(1)
        out_B2V[query, end, label] = torch.logsumexp(of_other_B2V[query, end] + both_VV[label], dim=1)
    return out_B2V
