"""A linear discriminant in closed form: one Gaussian per label, with a shared, automatically shrunk covariance.

Shapes: S segments, C numbers of a segment, V labels, N queries.
Source: Ledoit and Wolf, J. Multivariate Analysis 88 (2004), for the shrinkage; docs/decisions/methods.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 4096
"""Segments that are converted to double precision at once."""
LEAST_VARIANCE = 1e-3
"""Added to the variance within labels, so that it is invertible; the variance of all segments is 1."""


class Discriminant(NamedTuple):
    """Log likelihood of each label, up to a constant per query: `standardised(x) @ weight + bias`."""

    mean: Tensor
    """(C,)."""
    scale: Tensor
    """(C,) deviation over all segments; infinite for a constant number."""
    weight: Tensor
    """(C, V)."""
    bias: Tensor
    """(V,)."""

    def log_likelihood(self, x_NC: Tensor) -> Tensor:
        """Return (N, V): log p(numbers | label), up to a constant per row."""
        return ((x_NC - self.mean) / self.scale) @ self.weight + self.bias


def fit_discriminant(x_SC: Tensor, label_S: Tensor, n_labels: int) -> Discriminant:
    """Fit the mean of each label and the shared covariance.

    A label's mean includes one more segment at the overall mean, which is the mean of labels without segments. The
    covariance within labels is shrunk towards a multiple of the identity by Ledoit and Wolf's formula.

    Args:
        x_SC: (S, C) numbers of any scale.
        label_S: (S,) long.
    """
    mean_C, scale_C = x_SC.double().mean(0), x_SC.double().std(0, correction=0)
    scale_C = torch.where(scale_C > 1e-6 * scale_C.mean(), scale_C, torch.inf)
    count_V = torch.bincount(label_S, minlength=n_labels).double()
    sums_VC = torch.zeros(n_labels, x_SC.shape[1], dtype=torch.float64, device=x_SC.device)
    for rows in torch.split(torch.arange(len(x_SC), device=x_SC.device), ROWS):
        sums_VC.index_add_(0, label_S[rows], (x_SC[rows].double() - mean_C) / scale_C)
    mean_VC = sums_VC / count_V.clamp_min(1.0)[:, None]
    within_CC = torch.zeros(x_SC.shape[1], x_SC.shape[1], dtype=torch.float64, device=x_SC.device)
    fourth = torch.zeros((), dtype=torch.float64, device=x_SC.device)
    for rows in torch.split(torch.arange(len(x_SC), device=x_SC.device), ROWS):
        left_NC = (x_SC[rows].double() - mean_C) / scale_C - mean_VC[label_S[rows]]
        within_CC += left_NC.T @ left_NC
        fourth += left_NC.square().sum(1).square().sum()
    free = max(1, len(x_SC) - int((count_V > 0).sum()))
    covariance_CC = shrunk(within_CC / free, fourth / free, free)
    shown_VC = sums_VC / (count_V + 1.0)[:, None]
    weight_CV = torch.cholesky_solve(shown_VC.T, torch.linalg.cholesky(covariance_CC))
    bias_V = -0.5 * (shown_VC * weight_CV.T).sum(1)
    return Discriminant(mean_C.float(), scale_C.float(), weight_CV.float(), bias_V.float())


def shrunk(covariance_CC: Tensor, fourth: Tensor, n: int) -> Tensor:
    """Return the (C, C) shrunk covariance by Ledoit and Wolf's formula.

    Args:
        covariance_CC: covariance of n samples without mean.
        fourth: scalar, mean fourth power of their lengths.
    """
    one_CC = torch.eye(len(covariance_CC), dtype=covariance_CC.dtype, device=covariance_CC.device)
    level = covariance_CC.diagonal().mean()
    spread = (covariance_CC - level * one_CC).square().sum()
    noise = (fourth - covariance_CC.square().sum()).clamp_min(0.0) / n
    share = (noise / spread.clamp_min(torch.finfo(spread.dtype).tiny)).clamp_max(1.0)
    return (1 - share) * covariance_CC + (share * level + LEAST_VARIANCE) * one_CC
