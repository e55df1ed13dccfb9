"""Neighbours of windows by a key without learned models: both ends' features, in their principal directions.

A key of a model would represent the bank's own windows, on which the model was fitted, better than test windows:
neighbours would be far better in training than they are later.
Axes: N windows of the bank, Q queries, H positions, S segments, C tokens and D numbers of a feature, P kept directions,
K neighbours.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.data.chains import fit_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.retrieval.bank import check_pool, check_takes
from trajpilot_core.retrieval.search import Exclusion, top_k

SEGMENTS_AT_ONCE, QUERIES_AT_ONCE = 8192, 1024
PREFETCH = 1.5
"""Ratio of the entries that are scored again exactly to the requested ones, as in `ScorerConfig`."""


class EndKeys(NamedTuple):
    """Maps a feature to its key: standardise, then project."""

    mean: Tensor
    """(D,)."""
    directions: Tensor
    """(D, P): principal directions, each number divided by the scale of its feature."""


class NeighbourBank(NamedTuple):
    """Windows of one horizon that may be retrieved."""

    key: Tensor
    """(N, 2 P) float32, unit norm."""
    segments: Tensor
    """(N, H) long."""
    take: Tensor
    """(N,) long."""


def fit_end_keys(features_SCD: Tensor, rows: Tensor, width: int) -> EndKeys:
    """Fit the map to keys on the features of some segments.

    Args:
        rows: (n,) long, segments of the fitting takes.
        width: P, at most; a feature has D directions.
    """
    mean, scale = feature_scales(features_SCD[rows].float().mean(1, keepdim=True))
    products = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
    for part in torch.split(rows, SEGMENTS_AT_ONCE):
        standard = ((features_SCD[part].float().mean(1) - mean) / scale).double()
        products += standard.T @ standard
    directions = torch.linalg.eigh(products).eigenvectors[:, -width:].flip(1)
    return EndKeys(mean, directions.float() / scale[:, None])


def end_keys(keys: EndKeys, features_SCD: Tensor, segments_NH: Tensor) -> Tensor:
    """Return (N, 2 P): both ends of the windows, each of unit norm, one after the other, of unit norm together."""
    parts = []
    for segments in torch.split(segments_NH, QUERIES_AT_ONCE):
        ends_N2D = features_SCD[ends_of(segments)].float().mean(2)
        parts.append(F.normalize((ends_N2D - keys.mean) @ keys.directions, dim=-1).flatten(1))
    both = torch.cat(parts) if parts else keys.mean.new_zeros(0, 2 * keys.directions.shape[1])
    return F.normalize(both, dim=-1)


def neighbour_bank(data: PlanningData, chain: Chain, keys: EndKeys, horizon: int) -> NeighbourBank:
    """Collect all windows of a horizon of the takes that the chain was fitted on.

    Raises LeakError: a take that the chain must not have seen is among them.
    """
    windows = data.windows[horizon]
    rows = torch.isin(windows.take, fit_takes(data, chain))  # in the order of `fit_predictor.predictor_task`
    segments, take = windows.segments[rows], windows.take[rows]
    check_takes(take, horizon, data, chain)
    return NeighbourBank(end_keys(keys, data.features, segments), segments, take)


def find_neighbours(bank: NeighbourBank, key_QP: Tensor, take_Q: Tensor, k: int) -> Tensor:
    """Return (Q, K) long, entries of the k nearest windows of each query, never one of its own take; -1 for none.

    Args:
        key_QP: (Q, 2 P) keys of the queries.
        take_Q: (Q,) long, their takes.

    Raises LeakError: a window of the query's own take was returned (a fault of the search).
    """
    exclude = (Exclusion(take_Q, bank.take),)
    index_QK = top_k(key_QP, bank.key, k, round(PREFETCH * k), exclude=exclude).index
    check_pool(index_QK, exclude)
    return index_QK
