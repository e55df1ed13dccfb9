"""Exact search of the nearest keys, against brute force."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from trajpilot_core.errors import InputError
from trajpilot_core.retrieval import search as search_module
from trajpilot_core.retrieval.search import Exclusion, top_k


def brute_force(query, bank, k, exclude=()):
    """All products in float64, rounded to float32, sorted by (-cosine, index)."""
    score = (query.double() @ bank.double().T).float()
    for group in exclude:
        score[(group.query[:, None] == group.bank) & (group.bank >= 0)] = -torch.inf
    order = score.sort(dim=1, descending=True, stable=True)
    index, value = order.indices[:, :k], order.values[:, :k]
    return index.masked_fill(value == -torch.inf, -1), value


def keys(n, width, seed, clusters=None):
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, width, generator=g)
    if clusters:
        centres = torch.randn(clusters, width, generator=g)
        rows = centres[torch.randint(clusters, (n,), generator=g)] + 0.05 * rows
    return F.normalize(rows, dim=1)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    n=st.integers(1, 300),
    q=st.integers(1, 20),
    width=st.sampled_from([2, 8, 64]),
    k=st.integers(1, 12),
    extra=st.integers(0, 10),
    clusters=st.sampled_from([None, 1, 5]),
    low=st.booleans(),
    seed=st.integers(0, 99),
)
def test_search_finds_exactly_what_brute_force_finds(n, q, width, k, extra, clusters, low, seed):
    bank, query = keys(n, width, seed, clusters), keys(q, width, seed + 1, clusters)
    found = top_k(query, bank, k, k + extra, low_precision=low)
    index, cosine = brute_force(query, bank, k)
    missing = k - index.shape[1]
    assert torch.equal(found.index, F.pad(index, (0, missing), value=-1))
    assert torch.equal(found.cosine, F.pad(cosine, (0, missing), value=-torch.inf))


@pytest.mark.parametrize("low", [True, False])
def test_recall_is_one_where_scores_crowd_below_the_rounding_of_bf16(low):
    bank = F.normalize(keys(1, 64, 0) + 0.02 * keys(3000, 64, 1), dim=1)
    query = F.normalize(keys(1, 64, 0) + 0.02 * keys(30, 64, 2), dim=1)
    found = top_k(query, bank, 16, 24, low_precision=low)
    assert torch.equal(found.index, brute_force(query, bank, 16)[0])
    assert found.widened > 0 or not low


def gathered_rows(monkeypatch, spread, low):
    """Search among keys that differ by `spread` from one another; return how many entries each rescoring gathered."""
    seen, exact = [], search_module._exact

    def noting(query, bank, index_QP):
        seen.append(index_QP.shape[1])
        return exact(query, bank, index_QP)

    monkeypatch.setattr(search_module, "_exact", noting)
    bank = F.normalize(keys(1, 64, 0) + spread * keys(3000, 64, 1), dim=1)
    query = F.normalize(keys(1, 64, 0) + spread * keys(30, 64, 2), dim=1)
    own = Exclusion(torch.arange(30), torch.arange(3000) % 40)
    found = top_k(query, bank, 16, 24, exclude=(own,), low_precision=low)
    index, cosine = brute_force(query, bank, 16, (own,))
    assert torch.equal(found.index, index)
    assert torch.equal(found.cosine, cosine)
    return tuple(seen)


@pytest.mark.parametrize("low", [True, False])
def test_keys_that_nearly_tie_are_told_apart_without_gathering_most_of_the_bank(low, monkeypatch):
    assert max(gathered_rows(monkeypatch, 0.02, low)) < 300
    assert max(gathered_rows(monkeypatch, 1e-4, low)) < 300


def test_without_a_second_proposal_in_float32_most_of_the_bank_is_gathered(monkeypatch):
    few = gathered_rows(monkeypatch, 0.02, False)
    monkeypatch.setattr(search_module, "_error_bound", lambda query, bank, cut_Q: torch.full_like(cut_Q, 1e-3).float())
    monkeypatch.setattr(search_module, "_widened", gathering)
    assert max(gathered_rows(monkeypatch, 0.02, False)) > 5 * max(few)


def gathering(query_OD, bank_ND, scores_ON, least_O, k):
    """Rescore what reaches the bound, one query after the other, however much it is."""
    parts = []
    for o, reach_N in enumerate((scores_ON >= least_O[:, None]) & torch.isfinite(scores_ON)):
        wide = reach_N.nonzero()[None, :, 0]
        parts.append(search_module._rescore(query_OD[o : o + 1], bank_ND, wide, scores_ON[o : o + 1, wide[0]], k))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


@pytest.mark.parametrize("low", [True, False])
def test_ties_go_to_the_smaller_index_whatever_the_chunk(low):
    bank = keys(10, 16, 0).repeat(30, 1)
    query = keys(50, 16, 1)
    expected = brute_force(query, bank, 20)[0]
    for chunk in (1, 7, 50):
        assert torch.equal(top_k(query, bank, 20, 25, low_precision=low, chunk=chunk).index, expected)


def test_excluded_entries_are_masked_before_the_selection():
    bank, query = keys(40, 8, 0), keys(6, 8, 1)
    group, own = torch.arange(40) % 4, torch.arange(6) % 4
    exclude = (Exclusion(own, group),)
    found = top_k(query, bank, 30, 30, exclude=exclude)
    assert torch.equal(found.index, brute_force(query, bank, 30, exclude)[0])
    assert not (group[found.index] == own[:, None]).any()


def test_a_query_whose_whole_bank_is_excluded_gets_no_candidate():
    found = top_k(keys(2, 8, 0), keys(5, 8, 1), 3, 3, exclude=(Exclusion(torch.tensor([0, 1]), torch.zeros(5).long()),))
    assert (found.index[0] == -1).all()
    assert (found.index[1] >= 0).all()


def test_unknown_participants_are_not_one_group():
    none = torch.full((4,), -1)
    found = top_k(keys(4, 8, 0), keys(4, 8, 1), 4, 4, exclude=(Exclusion(none, none),))
    assert (found.index >= 0).all()


def test_keys_with_nan_are_refused():
    bad = keys(3, 8, 0)
    bad[1, 2] = torch.nan
    with pytest.raises(InputError, match="bank key 1"):
        top_k(keys(2, 8, 1), bad, 1, 1)
    with pytest.raises(InputError, match="wide"):
        top_k(keys(2, 4, 1), keys(2, 8, 1), 1, 1)


def allowed() -> tuple[object, str]:
    products = torch.backends.cuda.matmul
    return products.allow_bf16_reduced_precision_reduction, torch.get_float32_matmul_precision()


@pytest.fixture
def loose() -> Iterator[tuple[object, str]]:
    """A process that has allowed every reduced precision, as it is by default for bf16."""
    before = allowed()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    torch.set_float32_matmul_precision("high")
    yield allowed()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = before[0]
    torch.set_float32_matmul_precision(before[1])


def watched(monkeypatch: pytest.MonkeyPatch, fails: bool) -> list[tuple[object, str]]:
    """Note what is allowed at every product, which may fail."""
    seen: list[tuple[object, str]] = []
    product = torch.Tensor.__matmul__

    def noted(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        seen.append(allowed())
        if fails:
            raise torch.OutOfMemoryError("planted")
        return product(left, right)

    monkeypatch.setattr(torch.Tensor, "__matmul__", noted)
    return seen


@pytest.mark.parametrize("low_precision", [False, True])
def test_the_coarse_product_sums_in_float32_and_the_process_keeps_its_setting(
    monkeypatch: pytest.MonkeyPatch, loose: tuple[object, str], low_precision: bool
) -> None:
    seen = watched(monkeypatch, fails=False)
    key = torch.eye(8)
    assert top_k(key, key, 1, 2, low_precision=low_precision, chunk=4).index[:, 0].tolist() == list(range(8))
    assert seen == [(False, "highest")] * 2, "one product per chunk"
    assert allowed() == loose == (True, "high")


def test_a_product_that_fails_leaves_the_setting_as_it_was(
    monkeypatch: pytest.MonkeyPatch, loose: tuple[object, str]
) -> None:
    seen = watched(monkeypatch, fails=True)
    with pytest.raises(torch.OutOfMemoryError):
        top_k(torch.eye(8), torch.eye(8), 1, 2, low_precision=True)
    assert seen == [(False, "highest")]
    assert allowed() == loose
