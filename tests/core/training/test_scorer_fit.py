"""Collecting the queries, fitting the scorers, the choices on dev, and the stage."""

import tempfile
from dataclasses import replace
from pathlib import Path

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
    collect_windows,
    model_files,
    on_cpu,
    planning_data,
)
from planning_world import WorldSize, planning_world, run_stage
from rows_fixture import written_scorers
from torch.nn import functional as F
from torch.testing import assert_close

from trajpilot_core.data.chains import chains_of, query_takes
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.stages import alignment, predictor
from trajpilot_core.stages import scorer as scorer_stage
from trajpilot_core.training.scorer import NEVER, decide, dev_scores, gate_targets, inputs_at, queries_of
from trajpilot_core.training.scorer_fit import choices_of, fit_scorers, load_scorer, train_scorer
from trajpilot_core.training.scorer_queries import Collected, draw_queries

SHAPE = ScorerShape(query=22, embed=8, max_mids=4)


def collected(split=0):
    data = planning_data()
    view = chain_view(data, model_files(data), chains_of(data)[0], 0, "cpu")
    rows_of = {horizon: (windows.split == split).nonzero()[:6, 0] for horizon, windows in data.windows.items()}
    parts = []
    for horizon, rows in rows_of.items():
        parts.append(queries_of(view, find_candidates(view, build_bank(view, horizon, "action"), rows, SCORER), SCORER))
    with tempfile.TemporaryDirectory() as folder:
        return collect_windows(view, "some", rows_of, SCORER, Path(folder)).queries("some"), view, parts


def test_the_gate_target_needs_more_than_the_margin():
    queries = collected()[0]
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


def test_endpoint_latents_keep_their_share_beside_wide_features():
    torch.manual_seed(0)
    scorer = GateThenRankScorer(SCORER, ScorerShape(query=2 * 1664 + 2 * 768, embed=768, max_mids=4))
    features, latents = torch.randn(3, 2 * 1664), F.normalize(torch.randn(3, 2, 768), dim=-1).flatten(1)
    energy = scorer.normalise(torch.cat([features, latents], dim=1)).square()
    share = energy[:, 2 * 1664 :].sum(1) / energy.sum(1)
    assert_close(share, torch.full((3,), 1536 / (1536 + 3328)), atol=0.01, rtol=0)


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
    _, view, parts = collected(split=2)
    inputs = inputs_at(parts[1], torch.arange(len(parts[1])))
    bank = build_bank(view, 4, "action")
    rows = (view.data.windows[4].split == 2).nonzero()[:6, 0]
    found = find_candidates(view, bank, rows, SCORER)
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


def test_the_query_limit_draws_a_subset_by_seed():
    data = planning_data(World(folds=3))
    drawn, again, other = (draw_queries(data, chains_of(data), 17, seed) for seed in (0, 0, 1))
    rows = [torch.cat([r for chain in d.values() for r in chain.values()]) for d in (drawn, again, other)]
    assert [len(r) for r in rows] == [17, 17, 17]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def easy_queries(n=200, seed=0):
    """Queries whose best candidate carries a marked label embedding; it beats the fallback on the second half."""
    base, _, _ = collected()
    g = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(base), (n,), generator=g)
    taken = {name: getattr(base, name)[rows].clone() for name in vars(base) if name not in ("latents", "texts")}
    best_at, good = torch.randint(SCORER.candidates, (n,), generator=g), torch.arange(n) >= n // 2
    mark = F.one_hot(best_at, SCORER.candidates).bool()
    taken["label"] = torch.where(mark[:, :, None] & good[:, None, None], 1, 2).expand_as(taken["label"])
    taken["utility"] = mark.float() * torch.where(good, 1.0, -1.0)[:, None]
    taken["m1"], taken["fallback_m1"] = mark.float() * good[:, None], torch.full((n,), 0.25)
    return replace(base, **taken | {"fallback_utility": torch.zeros(n), "valid": torch.ones(n, 5, dtype=torch.bool)})


def test_training_learns_when_to_open_and_which_candidate(tmp_path):
    train, dev = easy_queries(), easy_queries(seed=1)
    config = SCORER.replace(train=TRAIN.replace(epochs=25, lr=5e-3))
    shape = ScorerShape(train.query.shape[1], 16, 2)
    collected_ = Collected(train, dev, torch.empty(200, 7), torch.empty(200, 7), shape)
    fitted = train_scorer(collected_, config, None, 0, on_cpu(tmp_path))
    assert fitted.decision.dev["fallback M@1"] == pytest.approx(0.25)
    assert fitted.decision.dev["always open M@1"] < 0.55
    assert fitted.decision.dev["M@1"] > 0.55
    assert 0.4 < fitted.decision.dev["open rate"] < 0.6
    chosen = [row for row in fitted.choices if row.should_open]
    assert [row.should_open for row in fitted.choices] == gate_targets(dev, config.margin).tolist()
    assert {row.chance for row in chosen} == {1 / SCORER.candidates}
    assert np.mean([row.is_best for row in chosen]) > 0.9, "the marked candidate is ranked first"
    opened = np.mean([row.gate >= fitted.decision.threshold for row in fitted.choices])
    assert opened == pytest.approx(fitted.decision.dev["open rate"], abs=0.05), "by the epoch that was kept"
    none = choices_of(*_scorer(fitted, config), replace(dev, valid=dev.valid & False), config, "m", 0)
    assert {(row.is_best, row.chance) for row in none} == {(None, None)}


def _scorer(fitted, config):
    """An untrained scorer of the same shape, and the weights of the trained one."""
    return GateThenRankScorer(config, fitted.shape, None), fitted.state


def fitted_scorer(data, files, tmp_path, **changes):
    config = SCORER.replace(**changes)
    return fit_scorers(data, files, config, 0, on_cpu(tmp_path))["scorer"], config


def test_a_scorer_is_fitted_and_read_back(tmp_path):
    data = planning_data(World(folds=3))
    files = model_files(data, 3)
    fitted, config = fitted_scorer(data, files, tmp_path)
    assert fitted.decision.n_dev == 27
    held = sum(
        int(torch.isin(w.take, query_takes(data, c)).sum()) for c in chains_of(data) for w in data.windows.values()
    )
    assert fitted.decision.n_queries == held
    scorers = written_scorers({0: {"scorer": fitted}}, config)
    assert scorers.keys == ("final/s0/scorer",)
    model, decision = load_scorer(scorers, 0, "cpu")
    assert decision == fitted.decision
    for name, value in model.state_dict().items():
        assert np.array_equal(value.numpy(), fitted.state[name].numpy())
    with pytest.raises(StoreError, match="s1"):
        load_scorer(scorers, 1, "cpu")


def test_one_held_out_take_is_enough(tmp_path):
    data = planning_data()
    fold = torch.where(data.fold == 0, -1, data.fold).index_fill(0, torch.tensor([0]), 0)
    data = replace(data, fold=fold)
    fitted, _ = fitted_scorer(data, model_files(data), tmp_path)
    assert fitted.decision.n_queries == 9


def test_without_queries_the_gate_stays_shut():
    nothing = Collected(None, None, torch.empty(0, 7), torch.empty(0, 7), SHAPE)
    fitted = train_scorer(nothing, SCORER, None, 0, on_cpu(Path()))
    assert fitted.decision.threshold == NEVER
    assert (fitted.decision.n_queries, fitted.curve, fitted.choices) == (0, [], ())


def test_test_takes_decide_nothing(tmp_path):
    data = planning_data()
    files = model_files(data)
    one = fitted_scorer(data, files, tmp_path / "a")[0]
    of_test = data.take_split[data.segment_take] == 2
    labels = torch.where(of_test, (data.labels + 1) % len(data.bank), data.labels)
    motions = torch.where(of_test[:, None, None], -data.motions, data.motions)
    other = fitted_scorer(replace(data, labels=labels, motions=motions), files, tmp_path / "b")[0]
    assert one.decision == other.decision
    assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)


def test_dev_scores_of_a_shut_gate_are_the_fallbacks():
    queries = replace(collected(split=1)[0], m1=torch.zeros(12, 5))
    scores = dev_scores(torch.rand(12), torch.zeros(12, dtype=torch.long), queries)
    assert scores["threshold"] == NEVER
    assert scores["M@1"] == scores["fallback M@1"]
    assert scores["open rate"] == 0


def test_memory_that_runs_out_changes_no_decision(monkeypatch):
    """How parts are made smaller: tests/core/test_memory.py."""
    queries = collected(split=1)[0]
    torch.manual_seed(0)
    scorer = GateThenRankScorer(SCORER, ScorerShape(queries.query.shape[1], 16, 2)).eval()
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
