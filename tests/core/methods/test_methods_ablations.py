"""Scorers on permuted candidates, without the candidates' labels, and without their motion."""

from dataclasses import replace

import pytest
import torch
from planning_fixture import SCORER, model_files, planning_data
from rows_fixture import chosen, predicted, scorers_of, view_of
from torch.testing import assert_close

from trajpilot_core.errors import StoreError
from trajpilot_core.evaluation import predictions
from trajpilot_core.methods.batch import load_scorers
from trajpilot_core.methods.plans import derangement
from trajpilot_core.retrieval.bank import build_bank
from trajpilot_core.retrieval.candidates import find_candidates, permuted, roll_out
from trajpilot_core.training.scorer import decide, inputs_at, queries_of
from trajpilot_core.training.scorer_file import load_scorer


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


def test_without_a_permutation_the_permuted_row_is_the_scorers(made, monkeypatch):
    data, files, scorers, _ = made
    assert (chosen(made, "scorer")[0] != chosen(made, "scorer_permuted")[0]).any()
    monkeypatch.setattr(predictions, "derangement", lambda n, seed: torch.arange(n))
    same = (data, files, scorers, predicted(data, files, scorers))
    assert (chosen(same, "scorer")[0] == chosen(same, "scorer_permuted")[0]).all()


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
