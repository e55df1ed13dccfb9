"""The K nearest keys by cosine, summed in float64 and rounded to float32; ties go to the smaller index.

Axes: Q queries, N bank entries, D key width, K results. Source: paper, 3.5; docs/decisions/scorer.md (tie rule).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.errors import InputError
from trajpilot_core.models.ranking import best

QUERY_CHUNK = 256
"""Queries whose cosines with the whole bank are in memory at once."""
BANK_ROWS = 4096
"""Keys that are converted to float64 at once."""


@dataclass(frozen=True)
class TopK:
    """Best first, ties by smaller bank index; -1 and -inf where fewer than K entries are allowed."""

    index: Tensor
    """(Q, K) long, rows of the bank."""
    cosine: Tensor
    """(Q, K) float32."""


def top_k(query_QD: Tensor, bank_ND: Tensor, k: int, take_Q: Tensor, take_N: Tensor) -> TopK:
    """Return the K entries of other takes with the highest dot product for each query; rows float32, of unit norm.

    Sums run in float64: their order depends on the block's shape, the float32 result practically does not. Entries
    of the query's own take (`take_Q`, `take_N`: (Q,) and (N,) long) are masked before anything is selected.

    Raises InputError: a number is not finite.
    """
    if not len(query_QD) or not len(bank_ND):
        none = torch.full((len(query_QD), k), -1, device=bank_ND.device)
        return TopK(none, torch.full(none.shape, -torch.inf, device=bank_ND.device))
    for name, keys in (("query", query_QD), ("bank", bank_ND)):
        bad = (~torch.isfinite(keys.sum(dim=1))).nonzero()
        if len(bad):
            raise InputError(f"{name} key {int(bad[0])} contains NaN or infinity; check the model that made the keys")
    parts = []
    for start in range(0, len(query_QD), QUERY_CHUNK):
        rows = slice(start, start + QUERY_CHUNK)
        own_QD = query_QD[rows].double()
        score_QN = torch.cat([(own_QD @ part.double().T).float() for part in torch.split(bank_ND, BANK_ROWS)], dim=1)
        parts.append(best(score_QN.masked_fill_(take_Q[rows, None] == take_N, -torch.inf), k))
    index_QK, cosine_QK = (torch.cat(part) for part in zip(*parts, strict=True))
    missing = (0, k - index_QK.shape[1])
    cosine_QK = F.pad(cosine_QK, missing, value=-torch.inf)
    return TopK(F.pad(index_QK, missing).masked_fill(cosine_QK == -torch.inf, -1), cosine_QK)
