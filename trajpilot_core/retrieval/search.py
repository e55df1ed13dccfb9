"""Exact top-K by cosine: a coarse product, an exact rescoring, and a bound that proves that nothing was lost.

Axes: Q queries, N bank entries, D key width, K results, P prefetched entries. Source: paper, 3.5;
docs/decisions/scorer.md (coarse product, tie rule, bound).
"""

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trajpilot_core.engine.resolve import BF16_FROM
from trajpilot_core.errors import InputError

QUERY_CHUNK = 256
RESCORE_ELEMENTS = 1 << 20
"""Numbers gathered at once: more does not fit a core's cache."""
ROUND_ROWS = 4096


@dataclass(frozen=True)
class TopK:
    """Best first, ties by smaller bank index; -1 and -inf where fewer than K entries are allowed."""

    index: Tensor
    """(Q, K) long, rows of the bank."""
    cosine: Tensor
    """(Q, K) float32."""
    widened: int
    """Queries whose first prefetch could not be proven complete and was enlarged."""


class Exclusion(NamedTuple):
    """Entries that a query must not see: those of its own group (take, participant). -1 belongs to no group."""

    query: Tensor
    """(Q,) long."""
    bank: Tensor
    """(N,) long."""


class Hidden(NamedTuple):
    """An exclusion with the bank in the order of its groups: a query finds its own by bisection."""

    query: Tensor
    """(Q,) long."""
    order: Tensor
    """(N,) long, entries by group."""
    group: Tensor
    """(N,) long, ascending."""


class Rounded(NamedTuple):
    """A matrix in the coarse precision and how far it is from the exact one."""

    coarse: Tensor
    """(R, D) bf16 or float32."""
    error: Tensor
    """(R,) float32: L2 norm of what rounding removed from each row."""


@functools.cache
def bf16_is_fast(device: torch.device) -> bool:
    """Return whether a device multiplies bf16 matrices faster than float32 ones; a CPU is tried, flags say nothing.

    What is found does not depend on the answer, only the time does.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= BF16_FROM
    return _product_seconds(torch.bfloat16) < _product_seconds(torch.float32)


def _product_seconds(dtype: torch.dtype) -> float:
    """Return the best time of three of one product (128, 512) x (512, 4096) on the CPU, in seconds."""
    left, right = torch.ones(128, 512, dtype=dtype), torch.ones(4096, 512, dtype=dtype)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        left @ right.T
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def top_k(
    query_QD: Tensor,
    bank_ND: Tensor,
    k: int,
    prefetch: int,
    *,
    exclude: tuple[Exclusion, ...] = (),
    low_precision: bool | None = None,
    chunk: int = QUERY_CHUNK,
) -> TopK:
    """Return the K bank entries with the highest dot product for each query, exactly.

    A product in bf16 (float32 where bf16 is slow) proposes `prefetch` entries, a float64 product rounded to float32
    rescores them. An entry outside the proposal can be at most `coarse cut + rounding error` good; where that bound
    reaches the K-th result, float32 proposes again, and after that the proposal is enlarged until it does not. So the
    result depends neither on the precision nor on `chunk`. Excluded entries are masked before anything is selected.

    Args:
        query_QD: (Q, D) float32, rows of unit norm.
        bank_ND: (N, D) float32, rows of unit norm.
        k: results per query.
        prefetch: entries proposed per query, at least `k`.
        exclude: pairs of group ids; an entry with the group of the query is not a candidate.
        low_precision: bf16 or float32 for the coarse product; None: whichever is faster on the device.
        chunk: queries per product.

    Raises:
        InputError: the widths of queries and bank differ, or a number is not finite.
    """
    if not len(query_QD) or not len(bank_ND):
        none = torch.full((len(query_QD), k), -1, device=bank_ND.device)
        return TopK(none, torch.full(none.shape, -torch.inf, device=bank_ND.device), 0)
    _check(query_QD, bank_ND)
    fast = bf16_is_fast(bank_ND.device) if low_precision is None else low_precision
    bank = _round(bank_ND, torch.bfloat16 if fast else torch.float32)
    hidden = [Hidden(e.query, by_group.indices, by_group.values) for e in exclude for by_group in (e.bank.sort(),)]
    parts = []
    for start in range(0, query_QD.shape[0], chunk):
        rows = slice(start, start + chunk)
        own = tuple(one._replace(query=one.query[rows]) for one in hidden)
        parts.append(_search(query_QD[rows], bank_ND, bank, k, max(k, prefetch), own))
    return TopK(
        torch.cat([p.index for p in parts]), torch.cat([p.cosine for p in parts]), sum(p.widened for p in parts)
    )


def _check(query_QD: Tensor, bank_ND: Tensor) -> None:
    """Refuse (Q, D) and (N, D) of different widths or with numbers that are not finite."""
    if query_QD.shape[1] != bank_ND.shape[1]:
        raise InputError(
            f"queries are {query_QD.shape[1]} wide and the bank {bank_ND.shape[1]}; build both keys by the same rule"
        )
    for name, rows in (("query", query_QD), ("bank", bank_ND)):
        bad = (~torch.isfinite(rows.sum(dim=1))).nonzero()
        if len(bad):
            raise InputError(f"{name} key {int(bad[0])} holds NaN or infinity; see the model that made the keys")


def _round(rows_RD: Tensor, dtype: torch.dtype) -> Rounded:
    """Round (R, D) float32 to the coarse precision and measure the loss per row."""
    coarse = rows_RD.to(dtype)
    if dtype == torch.float32:
        return Rounded(coarse, torch.zeros(rows_RD.shape[0], device=rows_RD.device))
    parts = zip(torch.split(rows_RD, ROUND_ROWS), torch.split(coarse, ROUND_ROWS), strict=True)
    return Rounded(coarse, torch.cat([(exact - low.float()).norm(dim=1) for exact, low in parts]))


@contextmanager
def exact_sums() -> Iterator[None]:
    """Let products sum in float32 inside the block; what was allowed before is allowed again after it.

    By default a GPU may add up the parts of a bf16 product in bf16, which no bound below covers; a process may also
    have allowed products of float32 in TF32.
    """
    products = torch.backends.cuda.matmul
    before = products.allow_bf16_reduced_precision_reduction, torch.get_float32_matmul_precision()
    products.allow_bf16_reduced_precision_reduction = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        products.allow_bf16_reduced_precision_reduction = before[0]
        torch.set_float32_matmul_precision(before[1])


def _search(
    query_QD: Tensor, bank_ND: Tensor, bank: Rounded, k: int, prefetch: int, hidden: tuple[Hidden, ...]
) -> TopK:
    """Search one chunk of (Q, D) queries; see `top_k`."""
    query = _round(query_QD, bank.coarse.dtype)
    with exact_sums():
        scores_QN = query.coarse @ bank.coarse.T
    for one in hidden:
        _hide(scores_QN, one)
    first = scores_QN.topk(min(prefetch, scores_QN.shape[1]), dim=1)
    index, cosine = _rescore(query_QD, bank_ND, first.indices, first.values, k)
    bound = _error_bound(query, bank, first.values[:, -1])
    open_ = first.values[:, -1].float() + bound >= cosine[:, -1]
    open_ &= torch.isfinite(first.values[:, -1]) & (scores_QN.shape[1] > prefetch)
    if not bool(open_.any()):
        return TopK(index, cosine, 0)
    if bank.coarse.dtype == torch.float32:
        again = _widened(query_QD[open_], bank_ND, scores_QN[open_], cosine[open_, -1] - bound[open_], k)
    else:
        own = tuple(one._replace(query=one.query[open_]) for one in hidden)
        finer = _search(query_QD[open_], bank_ND, _round(bank_ND, torch.float32), k, prefetch, own)
        again = finer.index, finer.cosine
    index[open_], cosine[open_] = again
    return TopK(index, cosine, int(open_.sum()))


def _hide(scores_QN: Tensor, hidden: Hidden) -> None:
    """Set the scores (Q, N) of a query and the entries of its group to -inf; nobody is in group -1."""
    first_Q = torch.searchsorted(hidden.group, hidden.query)
    count_Q = torch.searchsorted(hidden.group, hidden.query, right=True) - first_Q
    count_Q = count_Q.masked_fill(hidden.query < 0, 0)
    row_E = torch.arange(len(count_Q), device=count_Q.device).repeat_interleave(count_Q)
    place_E = torch.arange(len(row_E), device=row_E.device) - (count_Q.cumsum(0) - count_Q - first_Q)[row_E]
    scores_QN[row_E, hidden.order[place_E]] = -torch.inf


def _widened(query_OD: Tensor, bank_ND: Tensor, scores_ON: Tensor, least_O: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return (O, K) indices and cosines, best first, of all entries whose coarse score (O, N) reaches a bound (O,)."""
    reach_ON = (scores_ON >= least_O[:, None]) & torch.isfinite(scores_ON)
    if int(reach_ON.sum()) > len(bank_ND):  # nearly all of them tie: one product costs less than gathering
        parts = [(query_OD.double() @ part.double().T).float() for part in torch.split(bank_ND, ROUND_ROWS)]
        exact_ON = torch.cat(parts, dim=1).masked_fill(~reach_ON, -torch.inf)
        best = exact_ON.sort(dim=1, descending=True, stable=True)
        return best.indices[:, :k], best.values[:, :k]
    wide = [reach_N.nonzero()[:, 0] for reach_N in reach_ON]
    rows = [
        _rescore(query_OD[o : o + 1], bank_ND, index_W[None], scores_ON[o : o + 1, index_W], k)
        for o, index_W in enumerate(wide)
    ]
    return torch.cat([index for index, _ in rows]), torch.cat([cosine for _, cosine in rows])


def _error_bound(query: Rounded, bank: Rounded, cut_Q: Tensor) -> Tensor:
    """Return (Q,): how far a coarse product at or below the cut can lie below the exact one.

    |q.b - q'.b'| <= |q - q'| |b| + |q'| |b - b'| by Cauchy and Schwarz, for rows of about unit norm. The bf16 output
    adds half a unit in the last place (2^-9 below 1, 2^-8 from 1 on), float32 sums a part in 2^16: sums in float32 are
    what `exact_sums` sees to.
    """
    largest = bank.error.max() if len(bank.error) else bank.error.new_tensor(0.0)
    inputs = 1.01 * (query.error + largest) + 2.0**-16
    if query.coarse.dtype == torch.float32:
        return inputs
    return inputs + torch.where(cut_Q < 1, 2.0**-9, 2.0**-8)


def _rescore(query_QD: Tensor, bank_ND: Tensor, index_QP: Tensor, coarse_QP: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Rescore (Q, P) proposals exactly and return (Q, K) indices and cosines, best first, ties by smaller index.

    Proposals whose coarse score is -inf are excluded ones and stay out.
    """
    order = index_QP.argsort(dim=1)
    index_QP, allowed = index_QP.gather(1, order), torch.isfinite(coarse_QP.gather(1, order))
    exact_QP = _exact(query_QD, bank_ND, index_QP).masked_fill(~allowed, -torch.inf)
    best = exact_QP.sort(dim=1, descending=True, stable=True)
    cosine, index = best.values[:, :k], index_QP.gather(1, best.indices[:, :k])
    index = index.masked_fill(cosine == -torch.inf, -1)
    missing = k - index.shape[1]
    if missing > 0:
        pad = (0, missing)
        index, cosine = (
            torch.nn.functional.pad(index, pad, value=-1),
            torch.nn.functional.pad(cosine, pad, value=-torch.inf),
        )
    return index, cosine


def _exact(query_QD: Tensor, bank_ND: Tensor, index_QP: Tensor) -> Tensor:
    """Return (Q, P) float32 dot products of each query with its proposals.

    Sums run in float64: their order depends on the block's shape, the float32 result then practically does not.
    """
    step = max(1, RESCORE_ELEMENTS // max(1, index_QP.shape[1] * query_QD.shape[1]))
    rows = []
    for start in range(0, query_QD.shape[0], step):
        entries = bank_ND[index_QP[start : start + step]].double()
        query = query_QD[start : start + step].double()
        rows.append(torch.bmm(entries, query[:, :, None])[:, :, 0].float())
    return torch.cat(rows) if rows else torch.empty(index_QP.shape, device=bank_ND.device)
