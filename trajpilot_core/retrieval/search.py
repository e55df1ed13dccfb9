"""The K nearest keys by cosine: torch.topk in float32 proposes, float64 decides; ties go to the smaller index.

Axes: Q queries, N bank entries, D key width, K results, P prefetched entries. Source: paper, 3.5;
docs/decisions/scorer.md (tie rule).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.errors import InputError

QUERY_CHUNK = 256
RESCORE_ELEMENTS = 1 << 20
"""Numbers gathered at once; more do not fit a core's cache."""
BANK_ROWS = 4096
"""Keys that are converted to float64 at once."""
MARGIN = 2.0**-16
"""Larger than the error of a float32 dot product of unit vectors."""


@dataclass(frozen=True)
class TopK:
    """Best first, ties by smaller bank index; -1 and -inf where fewer than K entries are allowed."""

    index: Tensor
    """(Q, K) long, rows of the bank."""
    cosine: Tensor
    """(Q, K) float32."""


class Exclusion(NamedTuple):
    """Entries that a query must not see: those of its own group (take, participant). -1 belongs to no group."""

    query: Tensor
    """(Q,) long."""
    bank: Tensor
    """(N,) long."""

    def hides(self, rows: slice) -> Tensor:
        """Return for (q,) of the queries, shape (q, N), which entries they must not see."""
        group = self.query[rows, None]
        return (group == self.bank) & (group >= 0)


def top_k(
    query_QD: Tensor,
    bank_ND: Tensor,
    k: int,
    prefetch: int,
    *,
    exclude: tuple[Exclusion, ...] = (),
    chunk: int = QUERY_CHUNK,
) -> TopK:
    """Return the K bank entries with the highest dot product for each query.

    A float32 product proposes `prefetch` entries, and float64 products rounded to float32 order them. Where the last
    proposal is within rounding of the K-th result, as among many equal keys, every entry is scored in float64. The
    result therefore does not depend on `chunk`. Excluded entries are masked before anything is selected.

    Args:
        query_QD: (Q, D) float32, rows of unit norm.
        bank_ND: (N, D) float32, rows of unit norm.
        prefetch: entries proposed per query; `k` where that is more.
        exclude: pairs of group ids; an entry with the group of the query is not a candidate.

    Raises InputError: the widths of queries and bank differ, or a number is not finite.
    """
    if not len(query_QD) or not len(bank_ND):
        none = torch.full((len(query_QD), k), -1, device=bank_ND.device)
        return TopK(none, torch.full(none.shape, -torch.inf, device=bank_ND.device))
    if query_QD.shape[1] != bank_ND.shape[1]:
        raise InputError(
            f"queries are {query_QD.shape[1]} wide and the bank {bank_ND.shape[1]}; build both keys by the same rule"
        )
    for name, keys in (("query", query_QD), ("bank", bank_ND)):
        bad = (~torch.isfinite(keys.sum(dim=1))).nonzero()
        if len(bad):
            raise InputError(f"{name} key {int(bad[0])} contains NaN or infinity; check the model that made the keys")
    parts = []
    for start in range(0, len(query_QD), chunk):
        rows = slice(start, start + chunk)
        hidden = [group.hides(rows) for group in exclude]
        parts.append(_search(query_QD[rows], bank_ND, k, max(k, prefetch), hidden))
    index_QK, cosine_QK = (torch.cat(part) for part in zip(*parts, strict=True))
    missing = (0, k - index_QK.shape[1])
    cosine_QK = F.pad(cosine_QK, missing, value=-torch.inf)
    return TopK(F.pad(index_QK, missing).masked_fill(cosine_QK == -torch.inf, -1), cosine_QK)


def _search(query_QD: Tensor, bank_ND: Tensor, k: int, prefetch: int, hidden: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return indices and float32 cosines, shape (Q, K), or (Q, N) of a smaller bank, of one chunk of (Q, D) queries."""
    score_QN = query_QD @ bank_ND.T
    for hidden_QN in hidden:
        score_QN.masked_fill_(hidden_QN, -torch.inf)
    first = score_QN.topk(min(prefetch, len(bank_ND)), dim=1)
    index_QP = first.indices.sort(dim=1).values
    exact_QP = _exact(query_QD, bank_ND, index_QP).masked_fill(score_QN.gather(1, index_QP) == -torch.inf, -torch.inf)
    best = exact_QP.sort(dim=1, descending=True, stable=True)
    index_QK, cosine_QK = index_QP.gather(1, best.indices[:, :k]), best.values[:, :k]
    cut_Q = first.values[:, -1]
    open_Q = torch.isfinite(cut_Q) & (cut_Q + MARGIN >= cosine_QK[:, -1]) & (len(bank_ND) > prefetch)
    if bool(open_Q.any()):
        query_OD = query_QD[open_Q].double()
        exact_ON = torch.cat([(query_OD @ part.double().T).float() for part in torch.split(bank_ND, BANK_ROWS)], dim=1)
        best = exact_ON.masked_fill(score_QN[open_Q] == -torch.inf, -torch.inf).sort(
            dim=1, descending=True, stable=True
        )
        index_QK[open_Q], cosine_QK[open_Q] = best.indices[:, :k], best.values[:, :k]
    return index_QK, cosine_QK


def _exact(query_QD: Tensor, bank_ND: Tensor, index_QP: Tensor) -> Tensor:
    """Return (Q, P) float32 dot products of each query with its proposals.

    Sums run in float64: their order depends on the block's shape, the float32 result practically does not.
    """
    step = max(1, RESCORE_ELEMENTS // (index_QP.shape[1] * query_QD.shape[1]))
    parts = zip(torch.split(query_QD, step), torch.split(index_QP, step), strict=True)
    return torch.cat([torch.bmm(bank_ND[i].double(), q.double()[:, :, None])[:, :, 0].float() for q, i in parts])
