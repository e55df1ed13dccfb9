"""Learned rows against their exact ceilings at demo size: clean ones are below, leaks are above."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ceiling_fixture import EVALUATION, STAGES, corpus, features_of, features_table, small_world, train_and_evaluate
from planning_world import Memory

from schemas.arrow import rows_of
from schemas.results import Ceiling, Judgement, TakeScore
from trajpilot_core.corpora.records.closed_vocabulary import label_classes
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation import predictions as rows_module
from trajpilot_core.methods import method
from trajpilot_core.retrieval import candidates
from trajpilot_core.retrieval.search import top_k
from trajpilot_core.simworld.inference.visible import KINDS
from trajpilot_core.simworld.world.truth import World

CONFIG = small_world()
PREDICTOR_ON, EVALUATION_ONLY = STAGES[1:], STAGES[3:]
Made = tuple[World, Memory]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Made:
    world, memory = corpus(CONFIG)
    train_and_evaluate(CONFIG, memory, tmp_path_factory.mktemp("clean"))
    return world, memory


def verdicts(memory: Memory) -> dict[str, Judgement]:
    return {row.check: row for row in rows_of(Judgement, memory.tables["judgements"])}


def pooled(memory: Memory, variant: str, metric: str = "M@1") -> Ceiling:
    rows = rows_of(Ceiling, memory.tables["ceilings"])
    (row,) = [r for r in rows if (r.variant, r.metric, r.horizon) == (variant, metric, None)]
    return row


@pytest.mark.slow
def test_learned_rows_are_below_their_ceilings_and_above_the_floors(clean: Made) -> None:
    _, memory = clean
    lines = {check: row.verdict for check, row in verdicts(memory).items() if check.startswith("ceiling: ")}
    rows = {row["variant"] for row in memory.tables["predictions"].to_pylist()}
    assert len(lines) == len([row for row in rows if method(row).ceiling]) + 2
    assert set(lines.values()) == {"holds"}
    assert not any(row.above for row in rows_of(Ceiling, memory.tables["ceilings"]))
    assert pooled(memory, "no_traj").value > pooled(memory, "majority").value + 15, (
        "a row that learned nothing proves nothing"
    )
    ceilings = [pooled(memory, row).ceiling for row in KINDS]
    assert ceilings == sorted(ceilings)


@pytest.mark.slow
def test_take_scores_contain_every_row_and_ceiling_and_add_up_to_the_tables(clean: Made) -> None:
    _, memory = clean
    scores = rows_of(TakeScore, memory.tables["take_scores"])
    rows = {row["variant"] for row in memory.tables["predictions"].to_pylist()}
    assert {row.variant for row in scores} == rows | {
        f"ceiling/{row}" for row in ("no_traj", "endpoint_traj", "oracle")
    }
    table = {
        (r["variant"], r["horizon"], r["metric"]): r["value"]
        for r in memory.tables["metrics"].to_pylist()
        if r["seed"] == 0 and r["cluster"] == "take"
    }
    for variant, seed in (("scorer", 0), ("ceiling/endpoint_traj", -1)):
        for horizon in (3, 4):
            mine = [r for r in scores if (r.variant, r.seed, r.horizon, r.metric) == (variant, seed, horizon, "MSeq")]
            mseq = sum(r.total for r in mine) / sum(r.n_windows for r in mine)
            rows = rows_of(Ceiling, memory.tables["ceilings"])
            (row,) = [r for r in rows if (r.variant, r.horizon, r.metric) == ("scorer", horizon, "MSeq")]
            assert mseq == pytest.approx(row.value if seed == 0 else row.ceiling)
            if seed == 0:
                assert mseq == pytest.approx(table["scorer", horizon, "MSeq"])


@pytest.mark.slow
def test_the_same_models_scored_on_classes_are_below_the_ceilings_of_classes(clean: Made, tmp_path: Path) -> None:
    _, fine = clean
    memory = Memory(dict(fine.tables), dict(fine.entries))
    memory.table("label_classes", label_classes(memory.tables["labels"], 8)[0])
    classes = set(memory.tables["label_classes"]["class_id"].to_pylist())
    assert len(classes) < memory.tables["labels"].num_rows
    train_and_evaluate(CONFIG, memory, tmp_path, [(STAGES[-1][0], EVALUATION.replace(vocabulary="classes"))])
    lines = {check: row.verdict for check, row in verdicts(memory).items() if check.startswith("ceiling: ")}
    assert set(lines.values()) == {"holds"}
    rows = set(memory.tables["predictions"]["variant"].to_pylist())
    of_labels = set(fine.tables["predictions"]["variant"].to_pylist())
    assert rows == of_labels
    assert set(memory.tables["predictions"]["decoded_id"].to_pylist()) <= classes
    assert pooled(memory, "no_traj").ceiling > pooled(fine, "no_traj").ceiling + 1
    assert pooled(memory, "oracle").ceiling > pooled(fine, "oracle").ceiling


@pytest.mark.slow
def test_the_true_middle_labels_in_the_endpoint_features_break_the_ceiling(clean: Made, tmp_path: Path) -> None:
    world, fine = clean
    memory = Memory(dict(fine.tables), dict(fine.entries))
    segments = memory.tables["segments"].sort_by("segment_id").to_pylist()
    ids, looks = features_of(world, memory.tables["segments"])
    assert ids == [row["segment_id"] for row in segments]
    names = sorted({row["label_id"] for row in segments})
    code = np.random.default_rng(3).normal(size=(len(names), 16)) * 4
    after = [code[[names.index(row["label_id"]) for row in segments[by:] + segments[:by]]] for by in (1, 2)]
    memory.table("features", features_table(ids, np.concatenate([looks, *after], axis=1).astype(np.float32)))
    train_and_evaluate(CONFIG, memory, tmp_path, PREDICTOR_ON)
    row = pooled(memory, "no_traj")
    assert row.above
    assert row.difference > 3 * row.standard_error > 0
    found = verdicts(memory)["ceiling: no_traj is below what can be known"]
    assert found.verdict == "fails"
    assert "M@1" in found.detail


@pytest.mark.slow
def test_test_takes_in_the_bank_break_the_ceiling_and_are_named(
    clean: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, fine = clean
    memory = Memory(dict(fine.tables), dict(fine.entries))
    real = rows_module.load_planning_data

    def all_for_training(*given):
        data = real(*given)
        return replace(data, take_split=torch.zeros_like(data.take_split))

    def own_take_too(bank, key_QK, take, person, config):
        return top_k(key_QK, bank.key, config.candidates, config.prefetch)

    monkeypatch.setattr(rows_module, "load_planning_data", all_for_training)
    monkeypatch.setattr(candidates, "retrieve", own_take_too)
    with pytest.raises(LeakError, match="declares that it sees"):
        train_and_evaluate(CONFIG, memory, tmp_path, EVALUATION_ONLY)
    monkeypatch.setattr(rows_module, "check_rows", lambda *_: None)  # a guard in front, so that the others are seen
    train_and_evaluate(CONFIG, memory, tmp_path, EVALUATION_ONLY)
    found = verdicts(memory)
    assert pooled(memory, "knn_labels").above
    assert found["ceiling: knn_labels is below what can be known"].verdict == "fails"
    assert found["ceiling: no_traj is below what can be known"].verdict == "holds"
    bank = found["leak: the bank holds training takes only"]
    tested = {row["take_id"] for row in memory.tables["takes"].to_pylist() if row["split"] == "test"}
    assert bank.verdict == "fails"
    assert any(take in bank.detail for take in tested)
