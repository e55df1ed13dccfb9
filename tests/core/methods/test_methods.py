"""Predictions of every row: inputs, ranking, table, headroom and shuffles."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from planning_fixture import SCORER, World, model_files, planning_data
from planning_world import Memory, ModelsEntry, features_table, head_motions, with_vectors
from pretend_device import pretend_cuda
from rows_fixture import CONFIG, SEEDS, chosen, first_seed, predicted, quiet, scorers_of, view_of

from schemas.annotation import text_bank_schema
from schemas.arrow import arrow_schema, rows_of, table_of
from schemas.results import Headroom, Prediction, ShuffleScore
from trajpilot_core.data.chains import chains_of, fit_takes, open_model_files
from trajpilot_core.data.cross_fitting import noted_fitted
from trajpilot_core.data.planning import SPLITS
from trajpilot_core.evaluation import predictions
from trajpilot_core.evaluation.predictions import predict_all
from trajpilot_core.methods import METHODS, predictors
from trajpilot_core.methods.planners import ROWS as PLANNER_ROWS
from trajpilot_core.methods.plans import donors_of
from trajpilot_core.methods.predictors import GRAPH_ONLY, WITHOUT_PRIOR
from trajpilot_core.retrieval.bank import build_bank
from trajpilot_core.retrieval.candidates import find_candidates, pool_mean
from trajpilot_core.stages.evaluation import FITTED
from trajpilot_core.training.scorer_fit import load_scorer

ABSENT = {
    *(row.id for row in (WITHOUT_PRIOR, GRAPH_ONLY, *PLANNER_ROWS)),  # of closed vocabularies
    *(row.id for row in (predictors.NO_TRAJ_GOAL_DROPOUT, predictors.ORACLE_GOAL_DROPOUT)),
    *(row.id for row in METHODS if row.anticipates or row.predictions is not None),  # or other stages answer them
}
VARIANTS = [one.id for one in METHODS if one.id not in ABSENT]


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
        assert all(
            a > b or (a == b and i < j)
            for a, b, i, j in zip(row.top_scores, row.top_scores[1:], row.top_ids, row.top_ids[1:], strict=False)
        )


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
    mean = pool_mean(found, load_scorer(made[2], 0, "cpu")[1].pool_temperature, view.readout)
    assert np.array_equal(chosen(made, "pool_mean")[0][:, 1:-1], nearest(mean, data))


def test_a_closed_gate_answers_with_the_fallback_and_an_open_one_with_its_candidate(made):
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


def test_only_scorers_have_a_gate_and_only_retrieval_names_candidates(made):
    for row in made[3][0].to_pylist():
        gated = row["variant"].startswith("scorer")
        assert (row["gate"] is None) != gated
        assert (row["opened"] is None) != gated
        if not gated and row["variant"] != "top1":
            assert row["candidate"] is None


def test_candidates_are_windows_of_the_fitted_takes(made):
    data = made[0]
    allowed = {data.take_ids[t] for t in fit_takes(data, chains_of(data)[0])}
    used = {r["candidate"].split(":h")[0] for r in made[3][0].to_pylist() if r["candidate"]}
    assert used
    assert used <= allowed


def test_rows_on_a_pretended_accelerator_answer_as_on_the_cpu(quick):
    data, files, scorers, here = quick
    with pretend_cuda():
        there = predicted(data.to("cuda"), files, scorers, "cuda")
    assert here[0].drop(["top_scores", "gate"]).equals(there[0].drop(["top_scores", "gate"]))
    scores, gates = ([table[name].combine_chunks() for table in (here[0], there[0])] for name in ("top_scores", "gate"))
    np.testing.assert_allclose(*(one.flatten().to_numpy() for one in scores), atol=1e-5)
    np.testing.assert_allclose(*(one.fill_null(-1.0).to_numpy() for one in gates), atol=1e-5)
    assert here[1:] == there[1:]


def test_parts_of_any_size_give_one_result(quick, monkeypatch):
    data, files, scorers, first = quick
    monkeypatch.setattr("trajpilot_core.evaluation.predictions.WINDOWS_AT_ONCE", 5)
    again = predicted(data, files, scorers)[0]
    key = [(name, "ascending") for name in ("seed", "variant", "window_id", "position")]
    tables = again.sort_by(key), first[0].sort_by(key)
    assert_same_answers(*tables)
    shifted = tables[0].take(np.roll(np.arange(len(again)), 1))  # planted: the answers of a part begin a row too late
    with pytest.raises(AssertionError):
        assert_same_answers(shifted, tables[1])


def assert_same_answers(one: pa.Table, other: pa.Table) -> None:
    """Check that scores are equal up to rounding, and labels where no scores nearly tie.

    Candidates of the Scorer without motion nearly tie: with the kernel of an old processor it chose another one for
    one of 72 windows and seeds, with AVX2 and AVX-512 for none.
    """
    chosen = np.array(one["candidate"].to_pylist()) == np.array(other["candidate"].to_pylist())
    assert set(other.filter(~chosen)["variant"].to_pylist()) <= {"scorer_no_motion"}
    assert len(set(other.filter(~chosen)["window_id"].to_pylist())) <= 1
    one, other = one.filter(chosen), other.filter(chosen)
    scores, others = (np.array(table["top_scores"].to_pylist()) for table in (one, other))
    np.testing.assert_allclose(scores, others, rtol=0, atol=1e-5)
    gaps = np.pad(-np.diff(others, axis=1), ((0, 0), (1, 1)))  # what follows the last is not known: it is not settled
    gaps[:, 0] = np.inf
    settled = (gaps[:, :-1] > 1e-4) & (gaps[:, 1:] > 1e-4)
    assert settled[:, :-1].mean() > 0.9
    labels, wanted = (np.array(table["top_ids"].to_pylist()) for table in (one, other))
    np.testing.assert_array_equal(labels[settled], wanted[settled])


def test_a_bank_without_windows_of_a_horizon_leaves_the_fallback(tmp_path):
    data = planning_data(World(train=3, segments=4))
    fitted = torch.isin(data.windows[4].take, fit_takes(data, chains_of(data)[0]))
    keep, four = ~fitted, data.windows[4]
    names = tuple(n for n, k in zip(four.window_ids, keep.tolist(), strict=True) if k)
    short = replace(four, window_ids=names, take=four.take[keep], split=four.split[keep], segments=four.segments[keep])
    data = replace(data, windows={3: data.windows[3], 4: short})
    files = model_files(data)
    table = predicted(data, files, scorers_of(data, files, tmp_path))[0]
    rows = [r for r in table.to_pylist() if r["horizon"] == 4]
    by = {(r["window_id"], r["position"], r["variant"]): r["top_ids"] for r in rows}
    for (window, position, variant), ids in by.items():
        if variant in ("scorer", "top1", "knn_labels", "pool_mean"):
            assert ids == by[window, position, "no_traj"]


def held(data, files, scorers, lost=()) -> Memory:
    """Inputs of the evaluation, from the fixture's tensors; a lost segment has neither motion nor features."""
    take, label = (
        [names[i] for i in of.tolist()]
        for names, of in ((data.take_ids, data.segment_take), (data.label_ids, data.labels))
    )
    split = [SPLITS[s] for s in data.take_split.tolist()]
    kept = [i for i, id_ in enumerate(data.segment_ids) if id_ not in lost]
    names = [data.segment_ids[i] for i in kept]
    windows = [
        (w, data.take_ids[t], h, split[t], [data.segment_ids[i] for i in rows])
        for h, set_ in data.windows.items()
        for w, t, rows in zip(set_.window_ids, set_.take.tolist(), set_.segments.tolist(), strict=True)
    ]
    columns = ("window_id", "take_id", "horizon", "split", "segment_ids")
    fold = {t: f for t, f in zip(data.take_ids, data.fold.tolist(), strict=True) if f >= -1}
    tables = {
        "takes": pa.table({"take_id": data.take_ids, "capture": data.captures, "split": split}),
        "segments": pa.table({"segment_id": data.segment_ids, "take_id": take, "label_id": label}),
        "windows": pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in windows]),
        "folds": pa.table({"take_id": list(fold), "fold": list(fold.values())}),
        "motions": head_motions(names, data.motions[kept].numpy()),
        "features": features_table(names, data.features[kept, 0].numpy()),
        "text_bank": with_vectors(
            text_bank_schema(data.bank.shape[1]), data.bank.numpy(), label_id=list(data.label_ids), label="", encoder=""
        ),
    }
    models = {**files._asdict(), "scorers": scorers}
    entries = {name: ModelsEntry({key: one.read(key) for key in one.keys}, one.about) for name, one in models.items()}
    return Memory(tables, entries)


def test_predict_all_counts_the_windows_that_lack_a_segment(made):
    data, files, scorers, _ = made
    last_test, dev = data.segment_ids[-1], data.segment_ids[7 * 10]
    result = predict_all(held(data, first_seed(files), scorers, {last_test, dev}), CONFIG, "cpu", quiet)
    assert result.n_in == sum(int((w.split == 2).sum()) for w in data.windows.values())
    assert result.n_in - result.n_out == 2, "one window of each horizon ends at that segment"
    assert {r.take for r in result.rejects} == {data.take_ids[-1]}
    assert len({window for table in result.predictions for window in table["window_id"].to_pylist()}) == result.n_out


def test_predict_all_agrees_with_the_rows_of_the_same_tensors(made):
    data, files, scorers, (whole, headroom, shuffles) = made
    result = predict_all(held(data, files, scorers), CONFIG, "cpu", quiet)
    assert pa.concat_tables(result.predictions).equals(whole)
    assert table_of(Headroom, result.figures.headroom).equals(headroom)
    assert table_of(ShuffleScore, result.figures.shuffles).equals(shuffles)
    assert result.figures.samplings == []
    assert (result.rejects, result.n_in) == ([], result.n_out)


def test_the_number_of_threads_changes_no_prediction_and_no_figure(quick, monkeypatch):
    monkeypatch.setattr(predictions, "WINDOWS_AT_ONCE", 7)
    inputs = held(*quick[:3])
    alone, together = (predict_all(inputs, CONFIG, "cpu", quiet, threads) for threads in (1, 3))
    assert pa.concat_tables(together.predictions).equals(pa.concat_tables(alone.predictions))
    assert together.figures == alone.figures


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    """The corpus with two folds, each with models of its own, and its scorers."""
    data = planning_data(World(folds=2))
    files = model_files(data, folds=2)
    return data, files, scorers_of(data, files, tmp_path_factory.mktemp("folded"))


def models_read(folded):
    """Keys of the models that an evaluation reads, sorted."""
    inputs = held(*folded)
    list(predict_all(inputs, CONFIG, "cpu", quiet).predictions)
    assert all(noted_fitted(inputs.models(name).about) == {} for name in FITTED)
    return sorted(key for _, key in inputs.opened)


def test_an_evaluation_reads_each_model_of_the_final_chain_once_and_none_of_a_fold(folded):
    _, files, scorers = folded
    assert len(files.predictors.keys) == 7
    read = models_read(folded)
    assert read == sorted(key for models in (*files, scorers) for key in models.keys if key.startswith("final/"))


def test_a_reader_that_opens_every_model_is_seen(folded, monkeypatch):
    def eager(inputs):
        files = open_model_files(inputs)
        held = {key: files.predictors.read(key) for key in files.predictors.keys}
        return files._replace(predictors=replace(files.predictors, open=held.__getitem__))

    monkeypatch.setattr(predictions, "open_model_files", eager)
    assert any(key.startswith("fold") for key in models_read(folded))
