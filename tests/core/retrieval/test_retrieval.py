"""Bank, exclusions and roll-out."""

from dataclasses import replace

import pytest
import torch
from planning_fixture import SCORER, model_files, planning_data
from torch.nn import functional as F
from torch.testing import assert_close

from trajpilot_core.data.chains import chains_of, fit_takes, query_takes
from trajpilot_core.errors import LeakError
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.retrieval import bank as bank_module
from trajpilot_core.retrieval import candidates as candidates_module
from trajpilot_core.retrieval.bank import (
    build_bank,
    chain_view,
    check_takes,
    endpoint_keys,
    retrieve,
)
from trajpilot_core.retrieval.candidates import find_candidates, label_votes, pool_mean, pool_weights
from trajpilot_core.retrieval.search import top_k


@pytest.fixture(scope="module")
def view():
    data = planning_data()
    return chain_view(data, model_files(data), chains_of(data)[0], 0, "cpu")


def test_the_bank_contains_every_window_of_the_fitted_takes_and_no_other(view, monkeypatch):
    """Planted: all takes count as fitted, test takes included."""
    windows = view.data.windows[4]
    for key in ("action", "visual"):
        bank = build_bank(view, 4, key)
        assert set(bank.take.tolist()) == set(fit_takes(view.data, view.chain).tolist())
        assert len(bank.take) == int(torch.isin(windows.take, fit_takes(view.data, view.chain)).sum())
        assert torch.equal(bank.segments, windows.segments[bank.window])
        assert_close(bank.key.norm(dim=1), torch.ones(len(bank.key)))
    everyone = torch.arange(len(view.data.take_ids))
    monkeypatch.setattr("trajpilot_core.retrieval.bank.fit_takes", lambda *_: everyone)
    for key in ("action", "visual"):
        with pytest.raises(LeakError, match="only takes that the chain was fitted on"):
            build_bank(view, 3, key)


def test_an_empty_bank_is_on_the_device_of_the_data(view):
    windows = view.data.windows[4]
    none = replace(windows, take=windows.take[:0], split=windows.split[:0], segments=windows.segments[:0])
    empty = replace(view, data=replace(view.data, windows={4: none}))
    with torch.device("meta"):  # where a tensor would land that names no device
        bank = build_bank(empty, 4, "action")
    assert bank.key.device == view.latents.device
    assert (len(bank.key), bank.key.dtype) == (0, torch.float32)


def test_keys_are_the_two_ends_with_equal_weight(view):
    segments = view.data.windows[3].segments[:4]
    visual = endpoint_keys(view, segments, "visual")
    start = F.normalize(view.data.features[segments[:, 0], 0].float(), dim=1)
    assert_close(visual[:, : start.shape[1]] * 2**0.5, start)


def test_a_leaked_or_held_out_take_in_the_bank_raises(view):
    bank = build_bank(view, 3, "visual")
    leaks = [int((view.data.take_split == split).nonzero()[0, 0]) for split in (1, 2)]
    for take in (*leaks, int(query_takes(view.data, view.chain)[0])):
        leaked = bank.take.clone()
        leaked[2] = take
        with pytest.raises(LeakError, match=r"toy:.* held out of that chain"):
            check_takes(leaked, 3, view.data, view.chain)


def test_a_search_that_forgets_the_exclusion_is_caught(view, monkeypatch):
    bank = build_bank(view, 3, "visual")
    rows = bank.window[:5]
    keys_ = endpoint_keys(view, view.data.windows[3].segments[rows], "visual")
    take = view.data.windows[3].take[rows]
    monkeypatch.setattr(
        bank_module, "top_k", lambda query, bank, k, take, own: top_k(query, bank, k, take, own - 1_000)
    )
    with pytest.raises(LeakError, match=r"candidate \d+ of query \d+"):
        retrieve(bank, keys_, take, SCORER.candidates)


def test_candidates_are_rolled_out_with_the_querys_ends_and_their_own_middles(view):
    bank = build_bank(view, 4, "action")
    rows = (view.data.windows[4].split == 2).nonzero()[:3, 0]
    found = find_candidates(view, bank, rows, SCORER)
    for b in range(3):
        for k in range(SCORER.candidates):
            own, other = found.segments[b], found.pool[b, k]
            latents = view.latents[torch.stack([own[0], *other[1:-1], own[-1]])][None]
            features = view.data.features
            plan = view.models.traj(features[own[:1]], features[own[-1:]], latents, 4)[0]
            assert_close(found.plans[b, k], plan[1:-1], atol=1e-5, rtol=1e-4)
            assert_close(found.ends[b], plan[[0, -1]], atol=1e-5, rtol=1e-4)


def test_a_small_bank_leaves_places_empty_and_an_empty_one_leaves_the_fallback(view):
    bank = build_bank(view, 3, "action")
    rows = (view.data.windows[3].split == 2).nonzero()[:4, 0]
    small = bank._replace(**{name: getattr(bank, name)[:2] for name in ("key", "window", "segments", "take")})
    found = find_candidates(view, small, rows, SCORER)
    assert found.valid.sum(1).tolist() == [2] * 4
    assert (found.plans[:, 2:] == 0).all()
    none = bank._replace(**{name: getattr(bank, name)[:0] for name in ("key", "window", "segments", "take")})
    found = find_candidates(view, none, rows, SCORER)
    assert not found.valid.any()
    assert_close(pool_mean(found, 0.1, view.readout), found.fallback[:, 1:-1])


def test_pool_mean_is_the_nearest_plan_when_cold_and_the_plain_mean_when_hot(view):
    bank = build_bank(view, 4, "action")
    rows = (view.data.windows[4].split == 2).nonzero()[:4, 0]
    found = find_candidates(view, bank, rows, SCORER)
    found = replace(found, cosine=torch.tensor([[0.9, 0.5, 0.4, 0.3, 0.2]]).expand(4, -1))
    assert_close(pool_mean(found, 1e-3, view.readout), found.plans[:, 0])
    assert_close(pool_mean(found, 1e6, view.readout), F.normalize(found.plans.mean(1), dim=-1), atol=1e-5, rtol=1e-4)


def test_votes_are_weights_of_the_retrieved_labels(view):
    bank = build_bank(view, 3, "action")
    found = find_candidates(view, bank, torch.tensor([50, 51]), SCORER)
    votes = label_votes(found, view.data, 0.2)
    weights = pool_weights(found.cosine, 0.2)
    assert_close(votes.sum(-1), torch.ones(2, 3))
    for b, h in ((0, 0), (1, 2)):
        label = int(view.data.labels[found.pool[b, 1, h]])
        same = view.data.labels[found.pool[b, :, h]] == label
        assert_close(votes[b, h, label], weights[b][same].sum())


def test_memory_that_runs_out_in_a_roll_out_changes_no_plan(view, monkeypatch):
    """How parts are made smaller: tests/core/test_memory.py."""
    bank, rows = build_bank(view, 4, "action"), torch.arange(12)
    expected, roll_out, sizes = find_candidates(view, bank, rows, SCORER), CausalPredictor.roll_out, []

    def planted(self, start, goal, ends, mids, horizon):
        sizes.append(len(mids))
        if len(sizes) == 2:
            raise torch.OutOfMemoryError("planted")
        return roll_out(self, start, goal, ends, mids, horizon)

    monkeypatch.setattr(candidates_module, "ROLL_OUT_PLANS", 4 * SCORER.candidates)
    monkeypatch.setattr(CausalPredictor, "roll_out", planted)
    found = find_candidates(view, bank, rows, SCORER)
    assert_close(found.plans, expected.plans)
    assert_close(found.ends, expected.ends)
    assert sizes == [4, 4, 2, 2, 2, 2]
