"""Groups of segments (takes, labels) as two layers of Gaussians: how well a query's segments fit each group.

Shapes: S segments, C numbers of a segment, W directions, G groups, B queries, N segments of a query.
Method: linear discriminant analysis by group, then the likelihood ratio of a Gaussian between groups and one within
them (Ioffe, "Probabilistic Linear Discriminant Analysis", 2006). Source: docs/decisions/scorer-plus.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupSpace:
    """Directions in which segments of one group vary by 1 around a mean, which varies between groups."""

    mean: Tensor
    """(C,)."""
    project: Tensor
    """(C, W)."""
    between: Tensor
    """(W,) variance of the groups' means."""
    group_mean: Tensor
    """(G, W) posterior mean of each group's mean, 0 for a group without segments."""
    group_variance: Tensor
    """(G, W) posterior variance of it."""


def fit_groups(x_SC: Tensor, group_S: Tensor, n_groups: int, directions: int, floor: float) -> GroupSpace:
    """Fit the directions of largest variance between groups against that within them, and every group's mean.

    Args:
        x_SC: (S, C) numbers of any scale.
        group_S: (S,) long.
        n_groups: G.
        directions: W, cut at C.
        floor: share of the average variance that is added to the variance within groups, so that it can be inverted.
    """
    x = x_SC.double()
    mean_C, scale_C = x.mean(0), x.std(0, correction=0)
    scale_C = torch.where(scale_C > 1e-6 * scale_C.mean(), scale_C, torch.inf)
    x = (x - mean_C) / scale_C
    count_G, sums_GC = torch.bincount(group_S, minlength=n_groups).double(), group_sums(x, group_S, n_groups)
    there_G = count_G > 0
    own_GC = sums_GC / count_G.clamp_min(1)[:, None]
    inner = x - own_GC[group_S]
    within = inner.T @ inner / max(1, len(x) - int(there_G.sum()))
    between = own_GC[there_G].T @ own_GC[there_G] / max(1, int(there_G.sum()))
    between = between - within * (1 / count_G[there_G]).mean()
    project_CW, spread_W = _discriminant(within, between, directions, floor)
    variance_GW = 1 / (1 / spread_W + count_G[:, None])
    parts = mean_C, project_CW / scale_C[:, None], spread_W, variance_GW * (sums_GC @ project_CW), variance_GW
    return GroupSpace(*(part.float() for part in parts))


def group_sums(x_SC: Tensor, group_S: Tensor, n_groups: int) -> Tensor:
    """Return (G, C): the sums of the rows (S, C) of each group."""
    return x_SC.new_zeros(n_groups, x_SC.shape[1]).index_add_(0, group_S, x_SC)


def _discriminant(within: Tensor, between: Tensor, directions: int, floor: float) -> tuple[Tensor, Tensor]:
    """Return (C, W) directions, within which (C, C) `within` has variance 1, and (W,) the variance between there."""
    added = floor * within.diagonal().mean().clamp_min(torch.finfo(within.dtype).tiny)
    root = torch.linalg.cholesky(within + added * torch.eye(len(within), dtype=within.dtype, device=within.device))
    half = torch.linalg.solve_triangular(root, between, upper=False)
    whitened = torch.linalg.solve_triangular(root, half.T, upper=False)
    values, vectors = torch.linalg.eigh((whitened + whitened.T) / 2)
    kept = vectors[:, -directions:]
    return torch.linalg.solve_triangular(root.T, kept, upper=True), values[-directions:].clamp_min(1e-3)


def group_fit(space: GroupSpace, x_BNC: Tensor) -> Tensor:
    """Return (B, G): log likelihood ratio of a query's segments coming from each group against coming from any.

    Args:
        space: the groups.
        x_BNC: (B, N, C), segments that come from one group.
    """
    n = x_BNC.shape[1]
    query_BW = ((x_BNC - space.mean) @ space.project).mean(1)
    variance_GW, any_W = space.group_variance + 1 / n, space.between + 1 / n
    inverse_GW = 1 / variance_GW
    square_BG = query_BW.square() @ inverse_GW.T - 2 * query_BW @ (space.group_mean * inverse_GW).T
    square_BG = square_BG + (space.group_mean.square() * inverse_GW).sum(1)
    own_BG = -0.5 * (square_BG + variance_GW.log().sum(1))
    any_B = -0.5 * (query_BW.square() / any_W + any_W.log()).sum(1)
    return own_BG - any_B[:, None]
