"""Neighbours of retrieval attention: the nearest by the features of both ends, and never of the window's own take."""

from dataclasses import replace

import pytest
import torch
from planning_fixture import World, planning_data
from torch.nn import functional as F
from torch.testing import assert_close

from schemas.training import AttentionConfig
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.errors import LeakError
from trajpilot_core.retrieval import neighbours
from trajpilot_core.retrieval.neighbours import (
    EndKeys,
    cosine_scales,
    end_keys,
    fit_end_keys,
    neighbour_bank,
    neighbours_of_windows,
)
from trajpilot_core.retrieval.search import TopK, top_k

CONFIG = AttentionConfig(width=16, layers=1, reads=1, neighbours=5, key_width=4)
WORLD = World(train=8, dev=2, test=2, folds=2)


def quiet(done: int, total: int, what: str) -> None:
    """Ignore progress."""


def keys_of(data: PlanningData, width: int = 4) -> EndKeys:
    return fit_end_keys(data.features, rows_of_takes(data.segment_take, fit_takes(data, chains_of(data)[0])), width)


def test_neighbours_are_the_nearest_windows_of_other_takes_with_the_cosines_of_their_ends() -> None:
    data = planning_data(WORLD)
    chain, found = chains_of(data)[0], neighbours_of_windows(data, chains_of(data)[0], CONFIG, quiet)
    for horizon, windows in data.windows.items():
        bank = neighbour_bank(data, chain, keys_of(data), horizon)
        for part, split in (("fit", 0), ("dev", 1)):
            rows, near = (windows.split == split).nonzero()[:, 0], found[part][horizon]
            key = end_keys(keys_of(data), data.features, windows.segments[rows])
            both = (key @ bank.key.T).masked_fill(windows.take[rows][:, None] == bank.take, -2)
            assert_close(both.gather(1, near.entry.long()), both.topk(CONFIG.neighbours).values)
            assert_close(near.cosine.float().mean(2), both.gather(1, near.entry.long()), atol=2e-3, rtol=0)
            one = F.cosine_similarity(key[0, :4], bank.key[near.entry[0].long(), :4])
            assert_close(near.cosine[0, :, 0].float(), one, atol=2e-3, rtol=0)


def test_no_window_meets_one_of_its_own_take_and_a_search_that_forgets_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = planning_data(WORLD)
    chain = chains_of(data)[0]
    for horizon, near in neighbours_of_windows(data, chain, CONFIG, quiet)["fit"].items():
        take = neighbour_bank(data, chain, keys_of(data), horizon).take
        assert (take[near.entry.long()] != take[:, None]).all()

    def forgetful(query: torch.Tensor, bank: torch.Tensor, k: int, prefetch: int, exclude: object) -> TopK:
        return top_k(query, bank, k, prefetch)

    monkeypatch.setattr(neighbours, "top_k", forgetful)
    with pytest.raises(LeakError, match="comes from the query's own take"):
        neighbours_of_windows(data, chain, CONFIG, quiet)


def test_a_bank_that_holds_a_take_of_dev_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data(WORLD)
    chain, keys = chains_of(data)[0], keys_of(data)
    monkeypatch.setattr(neighbours, "fit_takes", lambda data, chain: torch.arange(9))
    with pytest.raises(LeakError, match="holds take toy:08"):
        neighbour_bank(data, chain, keys, 3)


def test_keys_rest_on_the_features_of_fitting_takes_and_on_nothing_learned() -> None:
    data = planning_data(WORLD)
    chain = chains_of(data)[0]
    features = data.features.clone()
    features[data.take_split[data.segment_take] != 0] *= -3
    assert torch.equal(keys_of(data).directions, keys_of(replace(data, features=features)).directions)
    other = replace(data, motions=-data.motions, labels=(data.labels + 1) % 12, bank=-data.bank)
    one, two = (neighbours_of_windows(d, chain, CONFIG, quiet)["dev"][4] for d in (data, other))
    assert torch.equal(one.entry, two.entry)
    rescaled = replace(data, features=(data.features.float() * torch.arange(1, 11) + 2).half())
    three = neighbours_of_windows(rescaled, chain, CONFIG, quiet)["dev"][4]
    assert (three.entry == one.entry).float().mean() > 0.9, "standardised: units of features do not matter"


def test_fewer_windows_than_asked_for_leave_places_empty() -> None:
    data = planning_data(World(train=4, dev=1, test=1, segments=4))
    near = neighbours_of_windows(data, chains_of(data)[0], CONFIG.replace(neighbours=9), quiet)
    there = near["fit"][4].entry >= 0
    assert there.sum(1).tolist() == [1, 1], "two fitted takes with one window each"
    assert (near["fit"][4].cosine[~there] == 0).all()
    mean, scale = cosine_scales(list(near["fit"].values()))
    assert torch.isfinite(mean).all()
    assert (scale > 0).all()
    none = neighbours_of_windows(data, chains_of(data)[0], CONFIG, quiet)["fit"]
    assert_close(
        cosine_scales([one._replace(entry=torch.full_like(one.entry, -1)) for one in none.values()])[1], torch.ones(2)
    )
