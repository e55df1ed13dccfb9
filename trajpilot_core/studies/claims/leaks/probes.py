"""Linear probes and permutation tests: whether one thing predicts another, fitted and scored on different takes.

Source: docs/decisions/claims-checks.md. Axes: N rows to fit on, M to answer, D numbers of a row, V labels, T takes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.checks import LeakConfig
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.training.loop import one_thread

NOTHING = 1e-30
"""Smallest probability whose log is used."""


class ClusterMean(NamedTuple):
    """A mean over rows with its standard error over takes."""

    mean: float
    standard_error: float
    n_takes: int


def probe(fit_ND: Array, labels_N: Codes, score_MD: Array, n_labels: int, cfg: LeakConfig) -> Array:
    """Fit a multinomial logistic probe on standardised inputs; return its (M, V) log probabilities of other rows.

    Args:
        fit_ND: (N, D) inputs to fit on; constant columns are left out.
        labels_N: (N,) their labels.
        score_MD: (M, D) inputs to answer.
        n_labels: V.
        cfg: decay and steps of the fit.
    """
    fit, score = standardised(fit_ND, score_MD)
    weight = torch.zeros(fit.shape[1], n_labels, requires_grad=True)
    bias = torch.zeros(n_labels, requires_grad=True)
    truth = torch.tensor(labels_N)

    def loss() -> Tensor:
        """Return the loss, a scalar of shape ()."""
        return F.cross_entropy(fit @ weight + bias, truth) + cfg.probe_decay * weight.square().mean(1).sum()

    with one_thread("cpu"):
        _minimise(loss, [weight, bias], cfg)
        answers: Array = (score @ weight + bias).log_softmax(1).detach().double().numpy()
    return answers


def weighted_sum(known_NV: Array, found_NV: Array, labels_N: Codes, cfg: LeakConfig) -> tuple[float, float]:
    """Return the weights of two tables of log probabilities, (N, V) each, whose weighted sum fits the labels best."""
    known, found = (torch.tensor(table, dtype=torch.float32) for table in (known_NV, found_NV))
    truth = torch.tensor(labels_N)
    weights = torch.tensor([1.0, 0.0], requires_grad=True)
    with one_thread("cpu"):
        _minimise(lambda: F.cross_entropy(weights[0] * known + weights[1] * found, truth), [weights], cfg)
    first, second = weights.detach().tolist()
    return first, second


def _minimise(loss: Callable[[], Tensor], parameters: Sequence[Tensor], cfg: LeakConfig) -> None:
    """Run L-BFGS on a scalar loss, shape (), in place."""
    optimizer = torch.optim.LBFGS(parameters, max_iter=cfg.probe_steps, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        """Return the loss, a scalar (shape ()), with its gradients filled in."""
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(step)  # type: ignore[no-untyped-call]


def standardised(fit_ND: Array, score_MD: Array) -> tuple[Tensor, Tensor]:
    """Return both (N, D') and (M, D') float32, by mean and deviation of the first; columns constant there are gone."""
    first, second = (torch.from_numpy(_unit_columns(x, fit_ND).astype(np.float32)) for x in (fit_ND, score_MD))
    return first, second


def cluster_mean(value_N: Array, take_N: Codes) -> ClusterMean:
    """Return the mean of values of shape (N,), and its standard error with the takes, (N,), as clusters."""
    _, take = np.unique(take_N, return_inverse=True)
    n_takes = int(take.max(initial=-1)) + 1
    mean = float(value_N.mean()) if len(value_N) else float("nan")
    off = np.bincount(take, value_N - mean, minlength=n_takes)
    error = float(np.sqrt((off**2).sum() * n_takes / max(1, n_takes - 1)) / max(1, len(value_N)))
    return ClusterMean(mean, error, n_takes)


def association_p(inputs_TD: Array, targets_TC: Array, cfg: LeakConfig) -> float:
    """Return the p-value of a permutation test that no column of the inputs goes with the targets.

    Per column the squared covariances with all targets are summed; the largest sum, each column scaled by its own
    spread under permutation, is ranked among those of permuted rows.

    Args:
        inputs_TD: (T, D), one row per take.
        targets_TC: (T, C).
        cfg: number and seed of the permutations.
    """
    inputs, targets = _unit_columns(inputs_TD), targets_TC - targets_TC.mean(axis=0)
    rng = np.random.default_rng(cfg.seed)
    orders = (np.arange(len(inputs)), *(rng.permutation(len(inputs)) for _ in range(cfg.permutations)))
    return largest_p(((inputs[order].T @ targets) ** 2).sum(axis=1) for order in orders)


def grouped_p(values_ND: Array, labels_N: Codes, block_N: Codes, cfg: LeakConfig) -> float:
    """Return the p-value of a permutation test that the mean of no column differs between labels.

    Takes exchange their whole label sequences, among takes of equal length: so rows of one take may depend on each
    other in any way.

    Args:
        values_ND: (N, D).
        labels_N: (N,).
        block_N: (N,) takes; the rows of one stand together, in order.
        cfg: number and seed of the permutations.
    """
    values, strata = _unit_columns(values_ND), equal_blocks(block_N)
    rng = np.random.default_rng(cfg.seed)
    n_groups = int(labels_N.max(initial=0)) + 1
    size = np.maximum(np.bincount(labels_N, minlength=n_groups), 1)

    def statistic(labels: Codes) -> Array:
        """Return the variance between labels (N,) per column, shape (D,)."""
        sums = np.stack([np.bincount(labels, column, minlength=n_groups) for column in values.T])
        return np.asarray((sums**2 / size).sum(axis=1))

    def permuted() -> Codes:
        """Return the labels with whole takes exchanged, shape (N,)."""
        labels = labels_N.copy()
        for rows in strata:
            labels[rows] = labels_N[rows[rng.permutation(len(rows))]]
        return labels

    if not values.shape[1]:
        return 1.0
    return largest_p([statistic(labels_N), *(statistic(permuted()) for _ in range(cfg.permutations))])


def equal_blocks(block_N: Codes) -> list[Codes]:
    """Return for every length of a block of equal neighbours in (N,) the rows of those blocks, (blocks, length)."""
    starts = np.flatnonzero(np.diff(block_N, prepend=np.nan) != 0)
    lengths = np.diff(starts, append=len(block_N))
    return [starts[lengths == n][:, None] + np.arange(n) for n in np.unique(lengths)]


def largest_p(statistics: Iterable[Array]) -> float:
    """Return the rank of the first statistic of shape (D,) among all by its largest column, in units of its spread."""
    table = np.stack(list(statistics))
    spread = table.std(axis=0)
    moving = spread > 1e-9 * np.abs(table).max(axis=0, initial=0.0)
    if not moving.any():
        return 1.0
    largest = ((table - table.mean(axis=0))[:, moving] / spread[moving]).max(axis=1)
    return float((largest >= largest[0] - 1e-9).mean())


def one_hot(codes_N: Codes, n: int) -> Array:
    """Return (N, n) indicators of (N,) codes from 0."""
    found = np.zeros((len(codes_N), n))
    found[np.arange(len(codes_N)), codes_N] = 1.0
    return found


def _unit_columns(values_ND: Array, fit_ND: Array | None = None) -> Array:
    """Centre and scale (N, D) columns by the mean and deviation of `fit_ND`, or their own; constant ones are gone."""
    fit = values_ND if fit_ND is None else fit_ND
    mean, deviation = fit.mean(axis=0), fit.std(axis=0)
    kept = deviation > 1e-9 * np.maximum(np.abs(mean), 1e-9)
    return np.asarray((values_ND[:, kept] - mean[kept]) / deviation[kept])
