"""Neighbours of windows by a key that nothing learned touches: both ends' features, in their principal directions.

A key that a model makes would know the bank's own windows, on which the model was fitted, better than those of the
test: in training, neighbours would be far better than they are later (docs/decisions/retrieval-attention.md).
Axes: N windows of the bank, Q queries, H positions, S segments, C tokens and D numbers of a feature, P kept directions,
K neighbours.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.training import AttentionConfig
from trajpilot_core.data.chains import fit_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import SPLITS, PlanningData, rows_of_takes
from trajpilot_core.engine.progress import Progress
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.models.retrieval_attention import ENDS, FoundWindows
from trajpilot_core.retrieval.bank import check_pool, check_takes
from trajpilot_core.retrieval.search import Exclusion, top_k

SEGMENTS_AT_ONCE, QUERIES_AT_ONCE = 8192, 1024
PREFETCH = 1.5
"""Entries that are scored again exactly, over those that are asked for, as in `ScorerConfig`."""


class EndKeys(NamedTuple):
    """What makes a key of a feature: standardise, then project."""

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


class Neighbours(NamedTuple):
    """Neighbours of Q windows, best first."""

    entry: Tensor
    """(Q, K) int32, entries of the bank, -1 for none."""
    cosine: Tensor
    """(Q, K, 2) float16, of Start and of Goal; 0 for none."""


def fit_end_keys(features_SCD: Tensor, rows: Tensor, width: int) -> EndKeys:
    """Return what makes keys, from the features of some segments.

    Args:
        features_SCD: raw.
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
    both = torch.cat(parts) if parts else keys.mean.new_zeros(0, ENDS * keys.directions.shape[1])
    return F.normalize(both, dim=-1)


def neighbour_bank(data: PlanningData, chain: Chain, keys: EndKeys, horizon: int) -> NeighbourBank:
    """Collect all windows of a horizon of the takes that the chain was fitted on.

    Raises:
        LeakError: a take that the chain must not have seen stands among them.
    """
    windows = data.windows[horizon]
    rows = torch.isin(windows.take, fit_takes(data, chain))  # in the order of `stages.predictor.make_task`
    segments, take = windows.segments[rows], windows.take[rows]
    check_takes(take, horizon, data, chain)
    return NeighbourBank(end_keys(keys, data.features, segments), segments, take)


def find_neighbours(bank: NeighbourBank, key_QP: Tensor, take_Q: Tensor, k: int) -> Neighbours:
    """Return the k nearest windows of each query, never one of its own take.

    Args:
        bank: of the queries' horizon.
        key_QP: (Q, 2 P) keys of the queries.
        take_Q: (Q,) long, their takes.
        k: K.

    Raises:
        LeakError: a window of the query's own take came back (a fault of the search).
    """
    exclude = (Exclusion(take_Q, bank.take),)
    index_QK = top_k(key_QP, bank.key, k, round(PREFETCH * k), exclude=exclude).index
    check_pool(index_QK, exclude)
    cosine = torch.zeros(*index_QK.shape, ENDS, dtype=torch.float16, device=index_QK.device)
    for part in torch.split(torch.arange(len(index_QK), device=index_QK.device), QUERIES_AT_ONCE):
        if len(bank.key):
            near_qKP = bank.key[index_QK[part].clamp_min(0)] * key_QP[part][:, None]
            ends = ENDS * near_qKP.view(*near_qKP.shape[:2], ENDS, -1).sum(-1)
            cosine[part] = ends.masked_fill(index_QK[part][..., None] < 0, 0.0).half()
    return Neighbours(index_QK.int(), cosine)


def neighbours_of_windows(
    data: PlanningData, chain: Chain, cfg: AttentionConfig, progress: Progress
) -> dict[str, dict[int, Neighbours]]:
    """Return fit or dev -> horizon -> the neighbours of its windows, on the CPU, where there are any; no seed matters.

    Args:
        data: on the device that searches.
        chain: whose takes are fitted and retrieved.
        cfg: K, and the width of the key.
        progress: called with (done, total, what).
    """
    takes = fit_takes(data, chain)
    keys = fit_end_keys(data.features, rows_of_takes(data.segment_take, takes), cfg.key_width)
    found: dict[str, dict[int, Neighbours]] = {"fit": {}, "dev": {}}
    for done, (horizon, windows) in enumerate(data.windows.items()):
        progress(done, len(data.windows), f"horizons; finds neighbours of windows, H={horizon}")
        bank = neighbour_bank(data, chain, keys, horizon)
        dev = (windows.split == SPLITS.index("dev")).nonzero()[:, 0]
        dev_keys = end_keys(keys, data.features, windows.segments[dev])
        for part, key, take in (("fit", bank.key, bank.take), ("dev", dev_keys, windows.take[dev])):
            if len(take):
                near = find_neighbours(bank, key, take, cfg.neighbours)
                found[part][horizon] = Neighbours(near.entry.cpu(), near.cosine.cpu())
    return found


def found_windows(segments_BH: Tensor, near: Neighbours, bank_NH: Tensor) -> FoundWindows:
    """Return windows with their neighbours' segments.

    Args:
        segments_BH: the windows.
        near: their neighbours.
        bank_NH: (N, H) long, segments of the bank's entries.
    """
    index_BK = near.entry.long()
    some_NH = bank_NH if len(bank_NH) else segments_BH
    return FoundWindows(segments_BH, some_NH[index_BK.clamp_min(0)], near.cosine, index_BK >= 0)


def cosine_scales(near: list[Neighbours]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (2,) float32 of the cosines of all neighbours; 0 and 1 without any."""
    cosines = torch.cat([one.cosine[one.entry >= 0].float() for one in near])
    if len(cosines) < 2:
        return torch.zeros(ENDS, device=cosines.device), torch.ones(ENDS, device=cosines.device)
    std, mean = torch.std_mean(cosines, dim=0, correction=0)
    return mean, torch.where(std > 0, std, torch.ones_like(std))
