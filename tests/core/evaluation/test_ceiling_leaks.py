"""Learned rows in simulated worlds of demo size: clean ones are below their exact ceilings, leaks are above.

Features are the latent look and the object's place, averaged over an interval, mixed by a fixed matrix, with noise; the
head motion is the one that the files would hold. What can be done with them is bounded by the exact ceilings.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from drawn_tables import by_take, describe_world, middle_world, tables_of_world
from numpy.typing import NDArray
from planning_world import Memory, ModelsEntry, bank_of_words, features_table, run_stage

from schemas.arrow import rows_of
from schemas.config import CompletedEvaluation, IngestConfig
from schemas.results import Ceiling, Judgement, Metric, TakeScore
from schemas.training import GOAL_DROPOUT, AlignmentConfig, PredictorConfig, ScorerConfig, TrainConfig
from schemas.world import WorldConfig
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.records.closed_vocabulary import label_classes
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation import predictions as rows_module
from trajpilot_core.methods import method
from trajpilot_core.methods.anticipation import NO_TRAJ, ORACLE, ROWS
from trajpilot_core.retrieval import candidates
from trajpilot_core.retrieval.search import top_k
from trajpilot_core.simworld.inference.visible import KINDS
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.appearance import looks_at
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.stages import alignment, evaluation, predictor, scorer

WIDTH, TEXT, FRAMES = 32, 48, 4
TRAIN = TrainConfig(epochs=14, patience=None, batch=64, lr=3e-3, precision="fp32")
ALIGNMENT = AlignmentConfig(width=32, layers=1, heads=2, hidden=64, folds=1, seeds=(0,), train=TRAIN)
PREDICTOR = PredictorConfig(width=48, layers=1, heads=4, hidden=96, queries=2, dropout=0.0, train=TRAIN)
SCORER = ScorerConfig(candidates=12, width=32, layers=1, heads=2, ablations=(), train=TRAIN.replace(epochs=4))
EVALUATION = CompletedEvaluation(bootstrap=200, shuffles=1, headroom_pools=(1,))
STAGES = (
    (alignment.STAGE, ALIGNMENT),
    (predictor.STAGE, PREDICTOR),
    (scorer.STAGE, SCORER),
    (evaluation.STAGE, EVALUATION),
)


def small_world(**changes: Any) -> WorldConfig:
    """Return the demo world without broken takes; `changes` are further knobs."""
    plain = {"broken": "none", "train_takes": 60, "test_takes": 24}
    return middle_world().replace(**{**plain, "tasks": 2, "positions": 6, "alternatives": 2, **changes})


def corpus(config: WorldConfig) -> tuple[World, Memory]:
    """Return a world and its tables, features included."""
    world = sample_world(config)
    memory = tables_of_world(world, IngestConfig(max_horizon=4, central_share=0.6))
    memory.table("features", features_table(*features_of(world, memory.tables["segments"])))
    labels, texts = (memory.tables["labels"][name].to_pylist() for name in ("label_id", "label"))
    memory.table("text_bank", bank_of_words(labels, texts, TEXT))
    return world, memory


def features_of(world: World, segments: pa.Table) -> tuple[list[str], NDArray[np.float32]]:
    """Return the segment ids and their features (S, WIDTH)."""
    truth = {take_id(take.uid): take for take in world.takes}
    rng = np.random.default_rng(7)
    mix = rng.normal(size=(6 + world.config.places, WIDTH))
    ids, parts = [], []
    for name, (members, start_s, end_s) in by_take(segments).items():
        take = truth[name]
        times = np.linspace(start_s, end_s - 1 / world.config.fps, FRAMES, axis=1)
        looks, steps = looks_at(take, times.ravel())
        places = np.eye(world.config.places)[[take.segments[step].place for step in steps]]
        seen = np.concatenate([looks, 4.0 * places], axis=1).reshape(len(members), FRAMES, -1).mean(axis=1)
        ids += members
        parts.append(seen @ mix + 0.5 * rng.normal(size=(len(members), WIDTH)))
    return ids, np.concatenate(parts).astype(np.float32)


def train_and_evaluate(config: WorldConfig, memory: Memory, folder: Path, stages: Any = STAGES) -> None:
    """Run the learning stages and the evaluation on the tables, as the executor would."""
    describe_world(config, folder / "data")
    for stage, own in stages:
        run_stage(stage, own, memory, folder / stage.name, data_root=str(folder / "data"))


pytestmark = pytest.mark.slow
CONFIG = small_world()
EVALUATION_ONLY = STAGES[3:]
QUICK = TRAIN.replace(epochs=9, lr=5e-3)
LEARNING = (
    (alignment.STAGE, ALIGNMENT.replace(train=TRAIN.replace(epochs=6))),
    (predictor.STAGE, PREDICTOR.replace(train=QUICK.replace(epochs=12))),
)
Made = tuple[World, Memory]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Every feature has room for the labels that a test plants: components that are zero."""
    world, memory = corpus(CONFIG)
    ids, looks = features_of(world, memory.tables["segments"])
    room = np.zeros((len(ids), 2 * memory.tables["labels"].num_rows), np.float32)
    memory.table("features", features_table(ids, np.concatenate([looks, room], axis=1)))
    train_and_evaluate(CONFIG, memory, tmp_path_factory.mktemp("clean"), LEARNING + STAGES[2:])
    return world, memory


@pytest.fixture
def memory(clean: Made) -> Memory:
    """What was made of the clean world, in which a test may exchange tables."""
    return Memory(dict(clean[1].tables), dict(clean[1].entries))


def verdicts(memory: Memory) -> dict[str, Judgement]:
    return {row.check: row for row in rows_of(Judgement, memory.tables["judgements"])}


def pooled(memory: Memory, variant: str, metric: str = "M@1") -> Ceiling:
    rows = rows_of(Ceiling, memory.tables["ceilings"])
    (row,) = [r for r in rows if (r.variant, r.metric, r.horizon) == (variant, metric, None)]
    return row


def test_learned_rows_are_below_their_ceilings_and_above_the_floors(memory: Memory) -> None:
    lines = [row.verdict for check, row in verdicts(memory).items() if check.startswith("ceiling: ")]
    rows = set(memory.tables["predictions"]["variant"].to_pylist())
    assert lines == ["holds"] * (len([row for row in rows if method(row).ceiling]) + 1)
    assert not any(row.above for row in rows_of(Ceiling, memory.tables["ceilings"]))
    floor = pooled(memory, "majority").value
    assert pooled(memory, "no_traj").value > floor + 15, "a row that learned nothing proves nothing"
    ceilings = [pooled(memory, row).ceiling for row in KINDS]
    assert ceilings == sorted(ceilings)


def test_take_scores_contain_every_row_and_add_up_to_the_tables(memory: Memory) -> None:
    scores = rows_of(TakeScore, memory.tables["take_scores"])
    assert {row.variant for row in scores} == set(memory.tables["predictions"]["variant"].to_pylist())
    metrics = [row for row in memory.tables["metrics"].to_pylist() if row["seed"] == 0]
    table = {(row["variant"], row["horizon"], row["metric"]): row["value"] for row in metrics}
    bound = {(row.variant, row.horizon, row.metric): row for row in rows_of(Ceiling, memory.tables["ceilings"])}
    for horizon in (3, 4):
        place = ("scorer", horizon, "MSeq")
        mine = [row for row in scores if (row.variant, row.horizon, row.metric) == place]
        mean = sum(row.total for row in mine) / sum(row.n_windows for row in mine)
        assert mean == pytest.approx(bound[place].value) == pytest.approx(table[place])


def test_the_same_models_scored_on_classes_are_below_the_ceilings_of_classes(
    clean: Made, memory: Memory, tmp_path: Path
) -> None:
    _, fine = clean
    memory.table("label_classes", label_classes(memory.tables["labels"], 8)[0])
    classes = set(memory.tables["label_classes"]["class_id"].to_pylist())
    assert len(classes) < memory.tables["labels"].num_rows
    train_and_evaluate(CONFIG, memory, tmp_path, [(EVALUATION_ONLY[0][0], EVALUATION.replace(vocabulary="classes"))])
    lines = {check: row.verdict for check, row in verdicts(memory).items() if check.startswith("ceiling: ")}
    assert set(lines.values()) == {"holds"}
    rows, of_labels = (set(one.tables["predictions"]["variant"].to_pylist()) for one in (memory, fine))
    assert rows == of_labels
    assert set(memory.tables["predictions"]["decoded_id"].to_pylist()) <= classes
    assert pooled(memory, "no_traj").ceiling > pooled(fine, "no_traj").ceiling + 1
    assert pooled(memory, "oracle").ceiling > pooled(fine, "oracle").ceiling


def test_the_true_middle_labels_in_the_endpoint_features_break_the_ceiling(
    clean: Made, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the models only that of No-Traj is trained again."""
    world, fine = clean
    segments = memory.tables["segments"].sort_by("segment_id").to_pylist()
    ids, looks = features_of(world, memory.tables["segments"])
    assert ids == [row["segment_id"] for row in segments]
    names = sorted({row["label_id"] for row in segments})
    code = 4 * np.eye(len(names))
    after = [code[[names.index(row["label_id"]) for row in segments[by:] + segments[:by]]] for by in (1, 2)]
    memory.table("features", features_table(ids, np.concatenate([looks, *after], axis=1).astype(np.float32)))
    monkeypatch.setattr(predictor, "trained_variants", lambda *_: ("no_traj",))
    train_and_evaluate(CONFIG, memory, tmp_path, [(predictor.STAGE, PREDICTOR.replace(train=QUICK))])
    kept, leaky = fine.entries["predictors"], memory.entries["predictors"]
    memory.entries["predictors"] = ModelsEntry({**kept.weights, **leaky.weights}, leaky.about)
    train_and_evaluate(CONFIG, memory, tmp_path, EVALUATION_ONLY)
    row = pooled(memory, "no_traj")
    assert row.above
    assert row.difference > 3 * row.standard_error > 0
    found = verdicts(memory)["ceiling: no_traj is below what can be known"]
    assert found.verdict == "fails"
    assert "M@1" in found.detail


def test_test_takes_in_the_bank_break_the_ceiling_and_are_named(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rows_module.load_planning_data

    def all_for_training(*given):
        data = real(*given)
        return replace(data, take_split=torch.zeros_like(data.take_split))

    def own_take_too(bank, key_QK, take, k):
        return top_k(key_QK, bank.key, k, take, torch.full_like(bank.take, -1))

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


EQUIVALENT = 3.0
"""Points of M@1 within which the whole interval of a difference must lie."""
AHEAD = {
    "predictor": PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT, anticipates=True),
    "scorer": SCORER.replace(anticipates=True),
}


def evaluated(folder: Path, **knobs: float) -> Memory:
    """A world with such knobs, everything trained in it, rows without a goal next to the others."""
    config = small_world(test_takes=96, **knobs)
    memory = corpus(config)[1]
    stages = [(stage, AHEAD.get(stage.name, cfg)) for stage, cfg in STAGES]
    train_and_evaluate(config, memory, folder, stages)
    return memory


def gain(memory: Memory) -> Metric:
    """Gain of motion without a goal: M@1, mean of the horizons, paired over takes."""
    rows = rows_of(Metric, memory.tables["metrics"])
    asked = (ORACLE.id, NO_TRAJ.id, "plain", "M@1")
    (row,) = [r for r in rows if (r.variant, r.reference, r.pooling, r.metric) == asked]
    return row


@pytest.mark.campaign
def test_where_motion_is_uninformative_traj_and_no_traj_are_equivalent_without_a_goal(tmp_path: Path) -> None:
    """In a world with informative motion the same test fails: Oracle is above."""
    silent, telling = evaluated(tmp_path / "silent", kappa=0.0, style=0.0), evaluated(tmp_path / "telling")
    assert -EQUIVALENT < gain(silent).low <= gain(silent).high < EQUIVALENT
    assert gain(telling).low > EQUIVALENT
    for memory in (silent, telling):
        judged = verdicts(memory)
        assert {judged[f"ceiling: {row.id} is below what can be known"].verdict for row in ROWS} == {"holds"}
        assert judged["ceiling: what can be known is right as often as predicted"].verdict == "holds"
