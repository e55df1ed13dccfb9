"""Predictions of every row: what each row is given, the ranking, the table, headroom and shuffles."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_fixture import SCORER, World, model_files, planning_data
from torch.testing import assert_close

from schemas.arrow import arrow_schema, rows_of
from schemas.config import EvaluationConfig
from schemas.observation import controls_schema, features_schema, text_bank_schema
from schemas.results import Headroom, Prediction, ShuffleScore
from trajpilot_core.evaluation import rollout
from trajpilot_core.evaluation.headroom import headroom_row, pool_sums
from trajpilot_core.evaluation.rollout import derangement, donors_of, previous_answers
from trajpilot_core.evaluation.rows import predict_all, predict_rows
from trajpilot_core.retrieval.bank import build_bank, chain_view, endpoint_keys
from trajpilot_core.retrieval.candidates import find_candidates, pool_mean
from trajpilot_core.training.chains import ModelFile, chains_of, fit_takes
from trajpilot_core.training.data import SPLITS
from trajpilot_core.training.scorer import queries_of
from trajpilot_core.training.scorer_file import pack_scorers
from trajpilot_core.training.scorer_fit import fit_scorer

torch.set_num_threads(1)
CONFIG = EvaluationConfig(shuffles=3, headroom_pools=(1, 3, 5, 64), bootstrap=100)
VARIANTS = (
    "no_traj", "endpoint_traj", "scorer", "oracle",
    "top1", "knn_labels", "pool_mean", "shuffled", "majority", "previous",
)  # fmt: skip
SEEDS = (0, 1)


def quiet(done, total, what):
    """Ignore progress."""


def scorers_of(data, files, folder: Path, config=SCORER, threshold=None):
    fitted = {seed: fit_scorer(data, files, config, seed, folder / str(seed), "cpu", quiet) for seed in files.seeds}
    if threshold is not None:
        fitted = {s: f._replace(decision=f.decision.replace(threshold=threshold)) for s, f in fitted.items()}
    return ModelFile(*pack_scorers(fitted, config))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    data = planning_data()
    files = model_files(data, seeds=SEEDS)
    scorers = scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=0.5)
    return data, files, scorers, predict_rows(data, files, scorers, CONFIG, "test", "cpu", quiet)


def view_of(made, seed=0):
    data, files, _, _ = made
    return chain_view(data, files, chains_of(data)[0], seed, "cpu")


def chosen(made, variant, seed=0, horizon=4):
    """Decoded label indices (N, H) of one row, and its table."""
    data, table = made[0], made[3][0]
    rows = [r for r in table.to_pylist() if (r["variant"], r["seed"], r["horizon"]) == (variant, seed, horizon)]
    index = {label: i for i, label in enumerate(data.label_ids)}
    return np.array([index[r["decoded_id"]] for r in rows]).reshape(-1, horizon), rows


def test_every_row_predicts_every_test_window_at_every_position_once(made):
    data, _, _, (table, _, _) = made
    assert table.schema == arrow_schema(Prediction)
    windows = [
        (i, h) for h, w in data.windows.items() for i, s in zip(w.window_ids, w.split.tolist(), strict=True) if s == 2
    ]
    wanted = {(i, v, s, p) for i, h in windows for v in VARIANTS for s in SEEDS for p in range(h)}
    got = list(zip(*(table[name].to_pylist() for name in ("window_id", "variant", "seed", "position")), strict=True))
    assert len(got) == len(wanted)
    assert set(got) == wanted


def test_rows_are_valid_records_with_descending_scores(made):
    for row in rows_of(Prediction, made[3][0].slice(0, 400)):
        assert row.decoded_id == row.top_ids[0]
        assert len(set(row.top_ids)) == 5
        assert all(a > b or (a == b and i < j) for a, b, i, j in zip(
            row.top_scores, row.top_scores[1:], row.top_ids, row.top_ids[1:], strict=False))  # fmt: skip


def test_truth_and_take_are_those_of_the_window(made):
    data, _, _, (table, _, _) = made
    windows = data.windows[4]
    place = {i: n for n, i in enumerate(windows.window_ids)}
    for row in [r for r in table.to_pylist() if r["horizon"] == 4][::17]:
        n = place[row["window_id"]]
        assert row["take_id"] == data.take_ids[windows.take[n]]
        assert row["label_id"] == data.label_ids[data.labels[windows.segments[n, row["position"]]]]


def nearest(plan, data):
    return (plan @ data.bank.T).argmax(-1).numpy()


def test_each_model_row_is_one_forward_pass_with_what_it_may_see(made):
    data, view = made[0], view_of(made)
    windows = data.windows[4]
    segments = windows.segments[windows.split == 2]
    start, goal, own = data.features[segments[:, 0]], data.features[segments[:, -1]], view.latents[segments]
    ends = own.clone()
    ends[:, 1:-1] = 0
    with torch.no_grad():
        expected = {
            "no_traj": view.models.no_traj(start, goal, torch.zeros_like(own), 4),
            "endpoint_traj": view.models.endpoint_traj(start, goal, ends, 4),
            "oracle": view.models.traj(start, goal, own, 4),
        }
        donors = donors_of(segments, CONFIG.seed, 0)
        foreign = torch.cat([own[:, :1], view.latents[donors], own[:, -1:]], 1)
        expected["shuffled"] = view.models.traj(start, goal, foreign, 4)
    for variant, plan in expected.items():
        assert np.array_equal(chosen(made, variant)[0], nearest(plan, data)), variant


def test_top1_and_pool_mean_come_from_the_pool_of_training_windows(made):
    data, view = made[0], view_of(made)
    rows = (data.windows[4].split == 2).nonzero()[:, 0]
    found = find_candidates(view, build_bank(view, 4, "action"), rows, SCORER)
    decoded, table = chosen(made, "top1")
    assert np.array_equal(decoded[:, 1:-1], nearest(found.plans[:, 0], data))
    assert [r["candidate"] for r in table[::4]] == [data.windows[4].window_ids[w] for w in found.window[:, 0]]
    from trajpilot_core.training.scorer_file import load_scorer

    temperature = load_scorer(made[2], 0, "cpu")[1].pool_temperature
    assert np.array_equal(chosen(made, "pool_mean")[0][:, 1:-1], nearest(pool_mean(found, temperature), data))


def test_a_shut_gate_answers_with_the_fallback_and_an_open_one_with_its_candidate(made):
    data, view = made[0], view_of(made)
    decoded, table = chosen(made, "scorer")
    fallback = chosen(made, "no_traj")[0]
    rows = (data.windows[4].split == 2).nonzero()[:, 0]
    found = find_candidates(view, build_bank(view, 4, "action"), rows, SCORER)
    for n, row in enumerate(table[::4]):
        assert row["opened"] == (row["gate"] >= 0.5)
        if not row["opened"]:
            assert row["candidate"] is None
            assert (decoded[n] == fallback[n]).all()
        else:
            names = [data.windows[4].window_ids[w] for w in found.window[n]]
            k = names.index(row["candidate"])
            assert (decoded[n, 1:-1] == nearest(found.plans[n, k], data)).all()


@pytest.mark.parametrize(("threshold", "open_"), [(0.0, True), (2.0, False)])
def test_the_threshold_decides_alone(made, threshold, open_, tmp_path):
    data, files, _, _ = made
    scorers = scorers_of(data, files, tmp_path, threshold=threshold)
    table = predict_rows(data, files, scorers, CONFIG, "test", "cpu", quiet)[0]
    opened = [r["opened"] for r in table.to_pylist() if r["variant"] == "scorer"]
    assert set(opened) == {open_}


def test_only_the_scorer_has_a_gate_and_only_retrieval_names_candidates(made):
    for row in made[3][0].to_pylist():
        assert (row["gate"] is None) == (row["variant"] != "scorer")
        assert (row["opened"] is None) == (row["variant"] != "scorer")
        if row["variant"] not in ("scorer", "top1"):
            assert row["candidate"] is None


def test_candidates_are_windows_of_the_fitted_takes(made):
    data = made[0]
    allowed = {data.take_ids[t] for t in fit_takes(data, chains_of(data)[0])}
    used = {r["candidate"].split(":h")[0] for r in made[3][0].to_pylist() if r["candidate"]}
    assert used
    assert used <= allowed


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
def test_a_derangement_leaves_no_window_its_own(n, seed):
    donors = derangement(n, seed)
    if n < 2:
        assert (donors == -1).all()
    else:
        assert sorted(donors.tolist()) == list(range(n))
        assert (donors != torch.arange(n)).all()


def test_a_single_window_is_shuffled_with_nothing():
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
    rollout.shuffled_plan(view, segments, donors_of(segments, 0, 0))
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


def test_windows_without_a_candidate_are_wrong_and_stand_in_no_mean_cosine(made):
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
        keys = endpoint_keys(view, found.segments, "action", found.fallback)
        parts = [pool_sums(view, bank, keys, found, queries, 3, 0)]
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


def test_equal_inputs_give_equal_tables(made):
    data, files, scorers, first = made
    again = predict_rows(data, files, scorers, CONFIG, "test", "cpu", quiet)
    assert all(one.equals(other) for one, other in zip(first, again, strict=True))


def test_parts_of_any_size_give_one_result(made, monkeypatch):
    data, files, scorers, first = made
    monkeypatch.setattr("trajpilot_core.evaluation.rows.WINDOWS_AT_ONCE", 5)
    again = predict_rows(data, files, scorers, CONFIG, "test", "cpu", quiet)[0]
    key = [(name, "ascending") for name in ("seed", "variant", "window_id", "position")]
    assert again.sort_by(key)["top_ids"].to_pylist() == first[0].sort_by(key)["top_ids"].to_pylist()


def test_a_bank_without_windows_of_a_horizon_leaves_the_fallback(tmp_path):
    data = planning_data(World(train=3, segments=4))
    fitted = torch.isin(data.windows[4].take, fit_takes(data, chains_of(data)[0]))
    keep = ~fitted
    four = data.windows[4]
    names = tuple(n for n, k in zip(four.window_ids, keep.tolist(), strict=True) if k)
    short = replace(four, window_ids=names, take=four.take[keep], split=four.split[keep], segments=four.segments[keep])
    data = replace(data, windows={3: data.windows[3], 4: short})
    files = model_files(data)
    table = predict_rows(data, files, scorers_of(data, files, tmp_path), CONFIG, "test", "cpu", quiet)[0]
    rows = [r for r in table.to_pylist() if r["horizon"] == 4]
    by = {(r["window_id"], r["position"], r["variant"]): r["top_ids"] for r in rows}
    for (window, position, variant), ids in by.items():
        if variant in ("scorer", "top1", "knn_labels", "pool_mean"):
            assert ids == by[window, position, "no_traj"]


class Tables:
    """Inputs of a stage, from the fixture's tensors."""

    def __init__(self, data, files, scorers, lost: Mapping[str, int]) -> None:
        self.models = {"e_tau": files.e_tau, "predictors": files.predictors, "scorers": scorers}
        segments = [
            {"segment_id": s, "take_id": data.take_ids[t], "label_id": data.label_ids[label]}
            for s, t, label in zip(data.segment_ids, data.segment_take.tolist(), data.labels.tolist(), strict=True)
        ]
        takes = [
            {"take_id": t, "participant": p or None, "capture": c, "split": SPLITS[s]}
            for t, p, c, s in zip(
                data.take_ids, data.participants, data.captures, data.take_split.tolist(), strict=True
            )
        ]
        windows = [
            {"window_id": w, "take_id": data.take_ids[t], "horizon": h, "split": SPLITS[data.take_split[t]],
             "segment_ids": [data.segment_ids[i] for i in rows]}
            for h, set_ in data.windows.items()
            for w, t, rows in zip(set_.window_ids, set_.take.tolist(), set_.segments.tolist(), strict=True)
        ]  # fmt: skip
        kept = [i for i, s in enumerate(segments) if s["segment_id"] not in lost]
        vectors = {
            "controls": (controls_schema(), "controls", data.controls.flatten(1), kept, segments, "segment_id"),
            "features": (
                features_schema(data.features.shape[2]), "vector", data.features[:, 0], kept, segments, "segment_id"
            ),
            "text_bank": (text_bank_schema(data.bank.shape[1]), "vector", data.bank, range(len(data.bank)),
                          [{"label_id": i} for i in data.label_ids], "label_id"),
        }  # fmt: skip
        self.tables = {name: self.vector_table(*parts) for name, parts in vectors.items()}
        self.tables |= {"takes": pa.Table.from_pylist(takes), "segments": pa.Table.from_pylist(segments)}
        self.tables["windows"] = pa.Table.from_pylist(windows)
        fold = {t: f for t, f in zip(data.take_ids, data.fold.tolist(), strict=True) if f >= -1}
        self.tables["folds"] = pa.table({"take_id": list(fold), "fold": list(fold.values())})

    @staticmethod
    def vector_table(schema, column, values, kept, rows, key):
        flat = values[list(kept)].numpy()
        type_ = schema.field(column).type
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel(), type_.value_type), type_.list_size)
        return pa.table({key: [rows[i][key] for i in kept], column: vectors})

    def table(self, name, columns=None):
        return self.tables[name] if columns is None else self.tables[name].select(columns)

    def vectors(self, name, column):
        table = self.tables[name]
        flat = table[column].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(table.num_rows, -1)

    def model(self, name):
        return dict(self.models[name].tensors), dict(self.models[name].metadata)


def test_predict_all_counts_the_windows_that_lack_a_segment(made):
    data, files, scorers, _ = made
    last_test, dev = data.segment_ids[-1], data.segment_ids[7 * 10]
    result = predict_all(Tables(data, files, scorers, {last_test: 1, dev: 1}), CONFIG, "cpu", quiet)
    assert result.n_in == sum(int((w.split == 2).sum()) for w in data.windows.values())
    assert result.n_in - result.n_out == 2, "one window of each horizon ends at that segment"
    assert {r.take for r in result.rejects} == {data.take_ids[-1]}
    assert len(set(result.predictions["window_id"].to_pylist())) == result.n_out


def test_predict_all_agrees_with_the_rows_of_the_same_tensors(made):
    data, files, scorers, (whole, headroom, shuffles) = made
    result = predict_all(Tables(data, files, scorers, {}), CONFIG, "cpu", quiet)
    assert result.predictions.equals(whole)
    assert result.headroom.equals(headroom)
    assert result.shuffles.equals(shuffles)
    assert (result.rejects, result.n_in) == ([], result.n_out)
