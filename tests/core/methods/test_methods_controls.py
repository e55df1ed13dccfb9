"""Floors, shuffles and headroom."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_fixture import SCORER
from rows_fixture import CONFIG, SEEDS, chosen, view_of
from torch.testing import assert_close

from schemas.arrow import rows_of
from schemas.results import Headroom, ShuffleScore
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.evaluation.headroom import headroom_row, pool_sums
from trajpilot_core.methods.plans import derangement, donors_of, shuffled_plan
from trajpilot_core.methods.retrieved import previous_answers
from trajpilot_core.retrieval.bank import build_bank
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.training.scorer import queries_of


def test_majority_answers_the_most_frequent_mid_label(made):
    data = made[0]
    takes = fit_takes(data, chains_of(data)[0])
    mids = [data.labels[w.segments[torch.isin(w.take, takes)][:, 1:-1]].flatten() for w in data.windows.values()]
    counts = torch.bincount(torch.cat(mids), minlength=len(data.bank))
    order = sorted(range(len(counts)), key=lambda i: (-int(counts[i]), i))[:5]
    _, table = chosen(made, "majority")
    assert {r["top_ids"] for r in map(lambda r: r | {"top_ids": tuple(r["top_ids"])}, table)} == {
        tuple(data.label_ids[i] for i in order)
    }


def test_previous_repeats_the_truth_one_step_late(made):
    decoded, table = chosen(made, "previous")
    truth = np.array([r["label_id"] for r in table]).reshape(-1, 4)
    ids = np.array(made[0].label_ids)
    assert (ids[decoded[:, 1:]] == truth[:, :-1]).all()


@settings(derandomize=True, deadline=None, max_examples=30)
@given(v=st.integers(1, 9), seed=st.integers(0, 99))
def test_previous_ranks_no_label_twice(v, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randperm(v, generator=g)[:6]
    answers = previous_answers(torch.randint(v, (4, 3), generator=g), (ids, torch.rand(len(ids), generator=g)))
    assert answers.ids.shape == (4, 3, min(5, v))
    assert all(len(set(row)) == len(row) for row in answers.ids.flatten(0, 1).tolist())


@settings(derandomize=True, deadline=None, max_examples=50)
@given(n=st.integers(0, 60), seed=st.integers(0, 99))
def test_a_derangement_has_no_fixed_point(n, seed):
    donors = derangement(n, seed)
    if n < 2:
        assert (donors == -1).all()
    else:
        assert sorted(donors.tolist()) == list(range(n))
        assert (donors != torch.arange(n)).all()


def test_a_single_window_has_no_donor():
    donors = donors_of(torch.tensor([[0, 1, 2, 3]]), 0, 0)
    assert donors.tolist() == [[-1, -1]]


def test_the_shuffle_keeps_the_windows_own_ends(made, monkeypatch):
    view, segments = view_of(made), made[0].windows[4].segments[:6]
    seen = {}
    real = view.models.traj.roll_out

    def spy(start, goal, endpoints, mids, horizon):
        seen["ends"] = endpoints
        return real(start, goal, endpoints, mids, horizon)

    monkeypatch.setattr(view.models.traj, "roll_out", spy)
    shuffled_plan(view, segments, donors_of(segments, 0, 0))
    assert_close(seen["ends"], view.latents[segments[:, [0, -1]]])


def test_shuffle_scores_are_those_of_the_predictions(made):
    _, _, _, (table, _, shuffles) = made
    records = rows_of(ShuffleScore, shuffles)
    assert len(records) == len(SEEDS) * 2 * CONFIG.shuffles
    first = next(r for r in records if (r.seed, r.shuffle, r.horizon) == (1, 0, 4))
    rows = [r for r in table.to_pylist() if (r["variant"], r["seed"], r["horizon"]) == ("shuffled", 1, 4)]
    right = np.array([r["decoded_id"] == r["label_id"] for r in rows]).reshape(-1, 4)[:, 1:-1]
    assert first.m1 == pytest.approx(100 * right.mean())
    assert first.mseq == pytest.approx(100 * right.all(1).mean())
    assert len({r.m1 for r in records if (r.seed, r.horizon) == (0, 4)}) > 1


def test_headroom_agrees_with_a_count_by_hand_and_grows_with_the_pool(made):
    data, view = made[0], view_of(made)
    records = {(r.seed, r.horizon, r.pool): r for r in rows_of(Headroom, made[3][1])}
    assert {pool for _, _, pool in records} == {1, 3, 5}, "a pool larger than K is not printed"
    rows = (data.windows[4].split == 2).nonzero()[:, 0]
    found = find_candidates(view, build_bank(view, 4, "action"), rows, SCORER)
    same = anywhere = steps = 0
    for n in range(len(rows)):
        truth = data.labels[found.segments[n, 1:-1]].tolist()
        plans = [data.labels[found.pool[n, k, 1:-1]].tolist() for k in range(3)]
        for m, label in enumerate(truth):
            steps += 1
            same += any(plan[m] == label for plan in plans)
            anywhere += any(label in plan for plan in plans)
    row = records[0, 4, 3]
    assert (row.same_step_recall, row.any_step_recall) == (
        pytest.approx(100 * same / steps),
        pytest.approx(100 * anywhere / steps),
    )
    assert row.endpoint_cosine == pytest.approx(float(found.cosine[:, :3].mean()), abs=1e-5)
    for horizon in (3, 4):
        by_pool = [records[0, horizon, pool] for pool in (1, 3, 5)]
        for name in ("same_step_recall", "any_step_recall", "best_mid_cosine"):
            values = [getattr(r, name) for r in by_pool]
            assert values == sorted(values), name
        assert [r.endpoint_cosine for r in by_pool] == sorted((r.endpoint_cosine for r in by_pool), reverse=True)


def test_windows_without_a_candidate_are_wrong_and_in_no_mean_cosine(made):
    data, view = made[0], view_of(made)
    bank, rows = build_bank(view, 3, "action"), (data.windows[3].split == 2).nonzero()[:, 0]

    def row(taken, candidates):
        found = find_candidates(view, bank, taken, SCORER)
        kept = torch.arange(len(taken)) < candidates
        found = replace(
            found,
            window=found.window.where(kept[:, None], -1),
            cosine=found.cosine.where(kept[:, None], -torch.inf),
            plans=found.plans * kept[:, None, None, None],
        )
        queries = queries_of(view, found, SCORER)
        parts = [pool_sums(view, bank, found, queries, 3, 0)]
        return headroom_row(0, 3, 3, parts)

    half = len(rows) // 2
    some, only, none = row(rows, half), row(rows[:half], half), row(rows, 0)
    assert (data.labels[data.windows[3].segments[rows[half:], 1]] == 0).any(), "label 0 is what a zero plan says"
    for name in ("endpoint_cosine", "best_mid_cosine"):
        assert getattr(some, name) == pytest.approx(getattr(only, name), abs=1e-6), name
        assert getattr(none, name) == 0, name
    for name in ("same_step_recall", "any_step_recall", "oracle_m1", "oracle_mseq"):
        assert getattr(some, name) == pytest.approx(getattr(only, name) * half / len(rows)), name
        assert getattr(none, name) == 0, name
