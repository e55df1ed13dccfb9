"""Collecting the queries, fitting the scorers, the choices on dev, and the stage."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
import torch
from planning_fixture import (
    ALIGNMENT,
    PREDICTOR,
    SCORER,
    TRAIN,
    World,
    model_files,
    on_cpu,
    planning_data,
)
from planning_world import WorldSize, planning_world, run_stage
from rows_fixture import written_scorers
from torch.testing import assert_close
from trainings_fixture import SCORER as EASY
from trainings_fixture import collected, scorer_queries, values

from trajpilot_core.data.chains import chains_of, query_takes
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.stages import alignment, predictor
from trajpilot_core.stages import scorer as scorer_stage
from trajpilot_core.training.scorer import NEVER, decide, gate_targets, inputs_at, queries_of
from trajpilot_core.training.scorer_fit import choices_of, fit_scorers, load_scorer, train_scorer
from trajpilot_core.training.scorer_queries import draw_queries


def test_the_gate_target_needs_more_than_the_margin():
    queries = scorer_queries(12, 1, is_clear=False)
    queries = replace(queries, utility=queries.fallback_utility[:, None] + torch.tensor([[0.05, 0.0, 0, 0, 0]]))
    assert not gate_targets(queries, 0.051).any()
    assert gate_targets(queries, 0.049).all()


def test_an_absent_candidate_is_never_right():
    data = planning_data()
    view = chain_view(data, model_files(data), chains_of(data)[0], 0, "cpu")
    bank, rows = build_bank(view, 3, "action"), (data.windows[3].split == 2).nonzero()[:, 0]
    none = bank._replace(**{name: value[:0] for name, value in bank._asdict().items() if name != "horizon"})
    queries = queries_of(view, find_candidates(view, none, rows, SCORER), SCORER)
    truth = data.labels[data.windows[3].segments[rows, 1]]
    assert (truth == 0).any(), "a zero plan ranks label 0 first: without the mask these windows would be right"
    assert not queries.m1.any()


def test_the_stage_counts_what_it_uses_and_rejects_no_window_again(tmp_path):
    memory = planning_world(WorldSize(tasks=2, steps=4, train=6, dev=2, test=2, max_horizon=4))
    short = TRAIN.replace(epochs=1)
    features = memory.tables["features"]
    memory.tables["features"] = features.filter(pa.compute.not_equal(features["segment_id"], "egoexo4d:0000:0004"))
    run_stage(alignment.STAGE, ALIGNMENT.replace(train=short), memory, tmp_path / "a")
    run_stage(predictor.STAGE, PREDICTOR.replace(train=short), memory, tmp_path / "p")
    lost, memory.rejects = memory.rejects, []
    run_stage(scorer_stage.STAGE, SCORER.replace(train=short), memory, tmp_path / "s")
    used = sum(row["split"] != "test" for row in memory.tables["windows"].to_pylist()) - len(lost)
    assert (len(lost), memory.rejects, memory.counts) == (3 + 4, [], (used, used))


def test_the_scorer_reads_the_candidates_own_labels_and_motions():
    data = planning_data()
    view = chain_view(data, model_files(data), chains_of(data)[0], 0, "cpu")
    rows = (data.windows[4].split == 2).nonzero()[:6, 0]
    found = find_candidates(view, build_bank(view, 4, "action"), rows, SCORER)
    inputs = inputs_at(queries_of(view, found, SCORER), torch.arange(6))
    middle = view.data.windows[4].segments[found.window][..., 1:-1]
    assert_close(inputs.latents[:, :, :2], view.latents[middle])
    assert_close(inputs.labels[:, :, :2], view.data.bank[view.data.labels[middle]])
    assert torch.equal(inputs.n_mids, torch.full((6,), 2))


def test_the_scorers_queries_come_from_takes_that_their_chain_has_not_seen():
    data = planning_data(World(folds=3))
    chains = chains_of(data)
    drawn = draw_queries(data, chains, 10_000, 0)
    assert not any(len(rows) for rows in drawn["final"].values())
    n = 0
    for chain in chains[1:]:
        for horizon, rows in drawn[chain.name].items():
            takes = data.windows[horizon].take[rows]
            assert torch.isin(takes, query_takes(data, chain)).all()
            assert (data.take_split[takes] == 0).all()
            n += len(rows)
    assert n == sum(int((windows.split == 0).sum()) for windows in data.windows.values())
    some = [draw_queries(data, chains, 17, seed) for seed in (0, 0, 1)]
    first, again, other = (torch.cat([rows for of in found.values() for rows in of.values()]) for found in some)
    assert len(first) == len(other) == 17
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_training_learns_when_to_open_and_which_candidate(tmp_path):
    dev, config = scorer_queries(200, 11, is_clear=True), EASY.replace(train=EASY.train.replace(epochs=12))
    queries = collected(scorer_queries(200, 1, is_clear=True), dev)
    fitted = train_scorer(queries, config, None, 0, on_cpu(tmp_path))
    best = int(np.argmax(values(fitted.curve, "dev", "selection")))
    on_dev = {row.quantity: row.value for row in fitted.curve if (row.split, row.epoch) == ("dev", best + 1)}
    assert on_dev["fallback M@1"] == pytest.approx(0.5)
    assert on_dev["always open M@1"] <= 0.5
    assert on_dev["M@1"] > 0.75
    assert 0.4 < on_dev["open rate"] < 0.6
    assert fitted.decision.threshold == on_dev["threshold"]
    chosen = [row for row in fitted.choices if row.should_open]
    assert [row.should_open for row in fitted.choices] == gate_targets(dev, config.margin).tolist()
    assert {row.chance for row in chosen} == {1 / dev.m1.shape[1]}
    assert np.mean([row.is_best for row in chosen]) > 0.9, "the marked candidate is ranked first"
    opened = np.mean([row.gate >= fitted.decision.threshold for row in fitted.choices])
    assert opened == pytest.approx(on_dev["open rate"], abs=0.05), "by the epoch that was kept"
    untrained = GateThenRankScorer(config, queries.shape, None)
    none = choices_of(untrained, fitted.state, replace(dev, valid=dev.valid & False), config, "m", 0)
    assert {(row.is_best, row.chance) for row in none} == {(None, None)}
    nothing = train_scorer(queries._replace(train=None, dev=None), config, None, 0, on_cpu(tmp_path / "nothing"))
    assert nothing.decision.threshold == NEVER
    assert (nothing.curve, nothing.choices) == ([], ())


def test_a_scorer_is_fitted_and_read_back(tmp_path):
    data = planning_data(World(folds=3))
    files = model_files(data, 3)
    fitted = fit_scorers(data, files, SCORER, 0, on_cpu(tmp_path))["scorer"]
    scorers = written_scorers({0: {"scorer": fitted}}, SCORER)
    assert scorers.keys == ("final/s0/scorer",)
    model, decision = load_scorer(scorers, 0, "cpu")
    assert decision == fitted.decision
    for name, value in model.state_dict().items():
        assert np.array_equal(value.numpy(), fitted.state[name].numpy())
    with pytest.raises(StoreError, match="s1"):
        load_scorer(scorers, 1, "cpu")


def test_test_takes_decide_nothing(tmp_path):
    data = planning_data()
    files = model_files(data)
    of_test = data.take_split[data.segment_take] == 2
    labels = torch.where(of_test, (data.labels + 1) % len(data.bank), data.labels)
    motions = torch.where(of_test[:, None, None], -data.motions, data.motions)
    one, other = (
        fit_scorers(of, files, SCORER, 0, on_cpu(tmp_path / name))["scorer"]
        for name, of in (("a", data), ("b", replace(data, labels=labels, motions=motions)))
    )
    assert one.decision == other.decision
    assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)


def test_memory_that_runs_out_changes_no_decision(monkeypatch):
    """How parts are made smaller: tests/core/test_memory.py."""
    queries = scorer_queries(12, 1, is_clear=False)
    scorer = GateThenRankScorer(EASY, collected(queries, queries).shape).eval()
    expected, forward, sizes = decide(scorer, queries, 3), GateThenRankScorer.forward, []

    def planted(self, inputs):
        sizes.append(len(inputs.query))
        if len(sizes) == 2:
            raise torch.OutOfMemoryError("planted")
        return forward(self, inputs)

    monkeypatch.setattr(GateThenRankScorer, "forward", planted)
    found = decide(scorer, queries, 3)
    assert_close(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert sizes == [3, 3] + [1] * (len(queries) - 3)
