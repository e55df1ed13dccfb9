"""Floors, shuffles, headroom, and ablations of the Scorer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_fixture import SCORER, model_files, planning_data
from rows_fixture import CONFIG, SEEDS, chosen, predicted, scorers_of, view_of
from torch.testing import assert_close

from schemas.arrow import rows_of
from schemas.results import Headroom, ShuffleScore
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.errors import StoreError
from trajpilot_core.evaluation import predictions
from trajpilot_core.evaluation.headroom import headroom_row, pool_sums
from trajpilot_core.methods.batch import load_scorers
from trajpilot_core.methods.plans import derangement, donors_of, shuffled_plan
from trajpilot_core.methods.retrieved import previous_answers
from trajpilot_core.retrieval.bank import build_bank
from trajpilot_core.retrieval.candidates import find_candidates, permuted, roll_out
from trajpilot_core.training.scorer import decide, inputs_at, queries_of
from trajpilot_core.training.scorer_fit import load_scorer


def test_majority_answers_the_most_frequent_mid_label(made):
    data = made[0]
    takes = fit_takes(data, chains_of(data)[0])
    mids = [data.labels[w.segments[torch.isin(w.take, takes)][:, 1:-1]].flatten() for w in data.windows.values()]
    counts = torch.bincount(torch.cat(mids), minlength=len(data.bank))
    order = sorted(range(len(counts)), key=lambda i: (-int(counts[i]), i))[:5]
    _, table = chosen(made, "majority")
    assert {tuple(row["top_ids"]) for row in table} == {tuple(data.label_ids[i] for i in order)}


def test_previous_repeats_the_truth_one_step_late(made):
    decoded, table = chosen(made, "previous")
    truth = np.array([r["label_id"] for r in table]).reshape(-1, 4)
    ids = np.array(made[0].label_ids)
    assert (ids[decoded[:, 1:]] == truth[:, :-1]).all()


@settings(max_examples=30)
@given(v=st.integers(1, 9), seed=st.integers(0, 99))
def test_previous_ranks_no_label_twice(v, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randperm(v, generator=g)[:6]
    answers = previous_answers(torch.randint(v, (4, 3), generator=g), (ids, torch.rand(len(ids), generator=g)))
    assert answers.ids.shape == (4, 3, min(5, v))
    assert all(len(set(row)) == len(row) for row in answers.ids.flatten(0, 1).tolist())


@given(n=st.integers(0, 60), seed=st.integers(0, 99))
def test_a_derangement_has_no_fixed_point(n, seed):
    donors = derangement(n, seed)
    if n < 2:
        assert (donors == -1).all()
    else:
        assert sorted(donors.tolist()) == list(range(n))
        assert (donors != torch.arange(n)).all()


def test_a_single_window_has_no_donor():
    assert donors_of(torch.tensor([[0, 1, 2, 3]]), 0, 0).tolist() == [[-1, -1]]


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


# Scorers on permuted candidates, without the candidates' labels, and without their motion.


def pool_of(made, horizon=4):
    view = view_of(made)
    bank = build_bank(view, horizon, "action")
    rows = (view.data.windows[horizon].split == 2).nonzero()[:, 0]
    return view, bank, find_candidates(view, bank, rows, SCORER)


def test_permuted_candidates_keep_labels_and_cosines_and_move_by_another_window(made):
    view, bank, found = pool_of(made)
    donors = derangement(len(bank.take), 3)
    other = permuted(view, bank, found, donors)
    assert torch.equal(other.pool, found.pool)
    assert torch.equal(other.window, found.window)
    assert torch.equal(other.cosine, found.cosine)
    foreign = {int(w): bank.segments[donors[i]].tolist() for i, w in enumerate(bank.window)}
    for b, k in ((0, 0), (1, 3), (5, 4)):
        assert other.motion[b, k].tolist() == foreign[int(found.window[b, k])]
        assert other.motion[b, k].tolist() != found.pool[b, k].tolist()
    _, plans = roll_out(view.models.traj, view, found.segments, view.latents[other.motion[:, :, 1:-1]])
    assert_close(other.plans, plans)
    queries, before = queries_of(view, other, SCORER), queries_of(view, found, SCORER)
    assert torch.equal(queries.label, before.label)
    assert_close(inputs_at(queries, torch.arange(3)).latents[:, :, :2], view.latents[other.motion[:3, :, 1:-1]])


def test_without_a_permutation_the_permuted_row_is_the_scorers(quick, monkeypatch):
    def changes(rows):
        return (chosen(rows, "scorer", horizon=3)[0] != chosen(rows, "scorer_permuted", horizon=3)[0]).any()

    assert changes(quick)
    monkeypatch.setattr(predictions, "derangement", lambda n, seed: torch.arange(n))
    assert not changes((*quick[:3], predicted(*quick[:3])))


def test_absent_candidates_stay_absent_when_permuted(made):
    view, bank, found = pool_of(made)
    window = found.window.clone()
    window[:2] = -1
    absent = replace(found, window=window, plans=found.plans * (window >= 0)[:, :, None, None])
    other = permuted(view, bank, absent, derangement(len(bank.take), 0))
    assert not other.plans[:2].any()
    empty = bank._replace(**{name: value[:0] for name, value in bank._asdict().items() if name != "horizon"})
    assert permuted(view, empty, absent, derangement(0, 0)) is absent


def test_an_ablated_scorer_does_not_see_what_it_was_trained_without(made):
    view, _, found = pool_of(made)
    queries = queries_of(view, found, SCORER)
    full, _ = load_scorer(made[2], 0, "cpu")
    for ablation, hidden in (("no_labels", ("label",)), ("no_motion", ("plans", "middle"))):
        scorer, _ = load_scorer(made[2], 0, "cpu", ablation)
        for name in ("label", "plans", "middle"):
            turned = replace(queries, **{name: getattr(queries, name).roll(1, 1)})
            for model, blind in ((scorer, name in hidden), (full, False)):
                before, after = (model(inputs_at(q, torch.arange(len(q))))[1] for q in (queries, turned))
                assert torch.equal(before, after) == blind, (ablation, name)


def test_ablated_rows_are_absent_where_they_are_off(tmp_path):
    data = planning_data()
    files = model_files(data)
    config = SCORER.replace(ablations=("no_motion",))
    scorers = scorers_of(data, files, tmp_path, config)
    table = predicted(data, files, scorers)[0]
    assert {v for v in table["variant"].to_pylist() if v.startswith("scorer_no")} == {"scorer_no_motion"}
    assert set(load_scorers(scorers, 0, "cpu").ablated) == {"no_motion"}
    with pytest.raises(StoreError, match="no_labels"):
        load_scorer(scorers, 0, "cpu", "no_labels")


def test_the_ablated_rows_answer_with_their_own_scorers_choice(made):
    view, _, found = pool_of(made)
    queries = queries_of(view, found, SCORER)
    for ablation, ready in load_scorers(made[2], 0, "cpu").ablated.items():
        gate, choice = decide(ready.scorer, queries, 100)
        _, table = chosen(made, f"scorer_{ablation}")
        names = view.data.windows[4].window_ids
        for n, row in enumerate(table[::4]):
            assert row["gate"] == pytest.approx(float(gate[n]), abs=1e-6)
            if row["opened"]:
                assert row["candidate"] == names[int(found.window[n, choice[n]])]
