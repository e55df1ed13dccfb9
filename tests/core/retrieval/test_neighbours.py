"""Neighbours of windows: the nearest by the features of both ends, and never of the window's own take."""

from dataclasses import replace

import pytest
import torch
from planning_fixture import World, planning_data
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.errors import LeakError
from trajpilot_core.retrieval import neighbours
from trajpilot_core.retrieval.neighbours import EndKeys, end_keys, find_neighbours, fit_end_keys, neighbour_bank
from trajpilot_core.retrieval.search import TopK, top_k

NEAR = 5
WORLD = World(train=8, dev=2, test=2, folds=2)


def keys_of(data: PlanningData, width: int = 4) -> EndKeys:
    return fit_end_keys(data.features, rows_of_takes(data.segment_take, fit_takes(data, chains_of(data)[0])), width)


def near_of(data: PlanningData, split: int, horizon: int, k: int = NEAR) -> Tensor:
    """Neighbours of the windows of a split among those of the fitting takes."""
    keys, windows = keys_of(data), data.windows[horizon]
    rows = (windows.split == split).nonzero()[:, 0]
    key = end_keys(keys, data.features, windows.segments[rows])
    return find_neighbours(neighbour_bank(data, chains_of(data)[0], keys, horizon), key, windows.take[rows], k)


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

    def forgetful(query: torch.Tensor, bank: torch.Tensor, k: int, prefetch: int, exclude: object) -> TopK:
        return top_k(query, bank, k, prefetch)

    monkeypatch.setattr(neighbours, "top_k", forgetful)
    with pytest.raises(LeakError, match="comes from the query's own take"):
        near_of(data, 0, 3)


def test_a_bank_with_a_take_of_dev_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data(WORLD)
    chain, keys = chains_of(data)[0], keys_of(data)
    monkeypatch.setattr(neighbours, "fit_takes", lambda data, chain: torch.arange(9))
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
