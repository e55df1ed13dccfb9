"""Exact search of the nearest keys, against brute force, and of the neighbours of windows."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_fixture import World, planning_data
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.retrieval import bank as banks
from trajpilot_core.retrieval import search as search_module
from trajpilot_core.retrieval.bank import EndKeys, end_keys, fit_end_keys, neighbour_bank, retrieve
from trajpilot_core.retrieval.search import TopK, top_k


def apart(query, bank):
    """Takes of queries and entries, none the same."""
    return torch.zeros(len(query)).long(), torch.ones(len(bank)).long()


def brute_force(query, bank, k, own, take):
    """All products in float64, rounded to float32, sorted by (-cosine, index)."""
    score = (query.double() @ bank.double().T).float()
    score[own[:, None] == take] = -torch.inf
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


@settings(max_examples=40)
@given(
    n=st.integers(1, 300),
    q=st.integers(1, 20),
    width=st.sampled_from([2, 8, 64]),
    k=st.integers(1, 12),
    clusters=st.sampled_from([None, 1, 5]),
    seed=st.integers(0, 99),
)
def test_search_finds_exactly_what_brute_force_finds(n, q, width, k, clusters, seed):
    bank, query = keys(n, width, seed, clusters), keys(q, width, seed + 1, clusters)
    found = top_k(query, bank, k, *apart(query, bank))
    index, cosine = brute_force(query, bank, k, *apart(query, bank))
    missing = k - index.shape[1]
    assert torch.equal(found.index, F.pad(index, (0, missing), value=-1))
    assert torch.equal(found.cosine, F.pad(cosine, (0, missing), value=-torch.inf))


def test_keys_that_nearly_tie_are_ordered():
    """Planted: an order by float32 products."""
    takes = torch.arange(30), torch.arange(3000) % 40
    for spread in (0.02, 1e-4):
        bank = F.normalize(keys(1, 64, 0) + spread * keys(3000, 64, 1), dim=1)
        query = F.normalize(keys(1, 64, 0) + spread * keys(30, 64, 2), dim=1)
        found = top_k(query, bank, 16, *takes)
        index, cosine = brute_force(query, bank, 16, *takes)
        assert torch.equal(found.index, index)
        assert torch.equal(found.cosine, cosine)
    assert not torch.equal((query @ bank.T).sort(dim=1, descending=True, stable=True).indices[:, :16], index)


def test_ties_go_to_the_smaller_index_whatever_the_chunk(monkeypatch):
    bank = keys(10, 16, 0).repeat(30, 1)
    query = keys(50, 16, 1)
    expected = brute_force(query, bank, 20, *apart(query, bank))[0]
    for chunk in (1, 7, 50):
        monkeypatch.setattr(search_module, "QUERY_CHUNK", chunk)
        assert torch.equal(top_k(query, bank, 20, *apart(query, bank)).index, expected)


def test_excluded_entries_are_masked_before_the_selection():
    bank, query = keys(40, 8, 0), keys(6, 8, 1)
    group, own = torch.arange(40) % 4, torch.arange(6) % 4
    found = top_k(query, bank, 30, own, group)
    assert torch.equal(found.index, brute_force(query, bank, 30, own, group)[0])
    assert not (group[found.index] == own[:, None]).any()
    found = top_k(keys(2, 8, 0), keys(5, 8, 1), 3, torch.tensor([0, 1]), torch.zeros(5).long())
    assert (found.index[0] == -1).all()
    assert (found.index[1] >= 0).all()


def test_keys_with_nan_are_refused():
    bad = keys(3, 8, 0)
    bad[1, 2] = torch.nan
    with pytest.raises(InputError, match="bank key 1"):
        top_k(keys(2, 8, 1), bad, 1, *apart(range(2), bad))


# Neighbours of windows: the nearest by the features of both ends, and never of the window's own take.


NEAR = 5
WORLD = World(train=8, dev=2, test=2, folds=2)


def keys_of(data: PlanningData, width: int = 4) -> EndKeys:
    return fit_end_keys(data.features, rows_of_takes(data.segment_take, fit_takes(data, chains_of(data)[0])), width)


def near_of(data: PlanningData, split: int, horizon: int, k: int = NEAR) -> Tensor:
    """Neighbours of the windows of a split among those of the fitting takes."""
    keys, windows = keys_of(data), data.windows[horizon]
    rows = (windows.split == split).nonzero()[:, 0]
    key = end_keys(keys, data.features, windows.segments[rows])
    return retrieve(neighbour_bank(data, chains_of(data)[0], keys, horizon), key, windows.take[rows], k).index


def test_neighbours_are_the_nearest_windows_of_other_takes() -> None:
    data = planning_data(WORLD)
    for horizon, windows in data.windows.items():
        bank = neighbour_bank(data, chains_of(data)[0], keys_of(data), horizon)
        for split in (0, 1):
            rows, near = (windows.split == split).nonzero()[:, 0], near_of(data, split, horizon)
            key = end_keys(keys_of(data), data.features, windows.segments[rows])
            both = (key @ bank.key.T).masked_fill(windows.take[rows][:, None] == bank.take, -2)
            assert_close(both.gather(1, near), both.topk(NEAR).values)


def test_no_neighbour_is_of_the_windows_own_take_and_a_search_without_that_rule_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = planning_data(WORLD)
    for horizon in data.windows:
        take = neighbour_bank(data, chains_of(data)[0], keys_of(data), horizon).take
        assert (take[near_of(data, 0, horizon)] != take[:, None]).all()

    def forgetful(query: Tensor, bank: Tensor, k: int, own: Tensor, take: Tensor) -> TopK:
        return top_k(query, bank, k, own, take - 1_000)

    monkeypatch.setattr(banks, "top_k", forgetful)
    with pytest.raises(LeakError, match="comes from the query's own take"):
        near_of(data, 0, 3)


def test_a_bank_with_a_take_of_dev_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data(WORLD)
    chain, keys = chains_of(data)[0], keys_of(data)
    monkeypatch.setattr(banks, "fit_takes", lambda data, chain: torch.arange(9))
    with pytest.raises(LeakError, match="contains take toy:08"):
        neighbour_bank(data, chain, keys, 3)


def test_keys_depend_on_the_features_of_fitting_takes_and_on_nothing_learned() -> None:
    data = planning_data(WORLD)
    features = data.features.clone()
    features[data.take_split[data.segment_take] != 0] *= -3
    assert torch.equal(keys_of(data).directions, keys_of(replace(data, features=features)).directions)
    other = replace(data, motions=-data.motions, labels=(data.labels + 1) % 12, bank=-data.bank)
    one, two = (near_of(d, 1, 4) for d in (data, other))
    assert torch.equal(one, two)
    rescaled = replace(data, features=(data.features.float() * torch.arange(1, 11) + 2).half())
    same = near_of(rescaled, 1, 4) == one
    assert same.float().mean() > 0.9, "standardised: units of features do not matter"


def test_fewer_windows_than_requested_leave_places_empty() -> None:
    there = near_of(planning_data(World(train=4, dev=1, test=1, segments=4)), 0, 4, k=9) >= 0
    assert there.sum(1).tolist() == [2, 1, 1, 2], "two of four takes are fitted, with one window each"
