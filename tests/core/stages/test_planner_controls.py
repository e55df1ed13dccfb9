"""Controls of the planners of other papers, in a small simulated world: what must hurt hurts, and a leak shows."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from leaks_fixture import tables_of_world, untrained_of, world
from planning_world import Memory, run_stage
from torch import Tensor

from schemas.config import TextConfig
from schemas.planners import PLANNERS, PlannerName, PlannersConfig, PlannerTraining
from trajpilot_core.data.chains import chains_of
from trajpilot_core.data.planning import PlanningData, load_planning_data
from trajpilot_core.evaluation.ceiling import compare, known_of_predictions
from trajpilot_core.evaluation.ceiling_check import row_check
from trajpilot_core.evaluation.prediction_arrays import predictions_of
from trajpilot_core.evaluation.predictions import prediction_table
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.planner_models import PlannerTables, open_planners, planned, planner_rows
from trajpilot_core.models.planners.decoding import clamped_prior
from trajpilot_core.models.planners.matched import DecodedPlan
from trajpilot_core.models.ranking import best
from trajpilot_core.stages import text_bank
from trajpilot_core.studies.claims.leaks import world as leaks_world
from trajpilot_core.studies.planner_worlds.stages import planners_stage

H = 3
PAPERS = PlannersConfig()
FEW = PlannerTraining(lr=3e-3, batch=64, epochs=20, step_epochs=8)
SMALL = {"width": 32, "layers": 1, "input_dropout": 0.1, "dropout": 0.0, "train": FEW}
CFG = PAPERS.replace(
    methods=PLANNERS,
    seeds=(0,),
    rates=(1.0,),
    schema_net=PAPERS.schema_net.replace(heads=4, **SMALL),
    pdpp=PAPERS.pdpp.replace(
        width=32,
        times=20,
        epoch_steps=40,
        average_start=40,
        train=PlannerTraining(lr=3e-3, batch=64, epochs=4, step_epochs=None),
    ),
    viterbi_plan_net=PAPERS.viterbi_plan_net.replace(**SMALL),
)
STAGE = planners_stage([f"{method}_h{H}" for method in PLANNERS])


def tables() -> Memory:
    """The world's tables with sentences about its labels."""
    memory = tables_of_world(world())
    ids = memory.table("labels")["label_id"]
    memory.table("label_classes", pa.table({"label_id": ids, "class_id": ids}))
    run_stage(
        text_bank.STAGE, TextConfig(encoder="bag_of_words", bag_width=16, descriptions="template"), memory, Path()
    )
    return memory


def with_features(memory: Memory, vectors: np.ndarray) -> Memory:
    """The same tables with other features (S, D)."""
    table = memory.table("features")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), vectors.shape[1])
    at = table.schema.get_field_index("vector")
    changed = table.set_column(at, table.schema.field(at).with_type(column.type), column)
    return Memory({**memory.tables, "features": changed})


def vectors_of(memory: Memory) -> np.ndarray:
    return np.stack(memory.table("features")["vector"].to_numpy(zero_copy_only=False)).astype(np.float32)


class Trained:
    """Planners that were trained on some tables."""

    def __init__(self, memory: Memory, scratch: Path) -> None:
        run_stage(STAGE, CFG, memory, scratch)
        self.memory, self.data = memory, load_planning_data(memory, "test")
        tables = open_planners(memory, self.data, chains_of(self.data)[0], "cpu")
        assert tables is not None
        self.tables: PlannerTables = tables

    @property
    def tested(self) -> Tensor:
        windows = self.data.windows[H]
        return windows.segments[windows.split == 2]

    def answer(self, method: PlannerName, tables: PlannerTables | None = None) -> DecodedPlan:
        rows = planner_rows(tables or self.tables, 0, H, "cpu")
        assert rows is not None
        found = planned(rows, method, self.data, self.tested, masked=False)
        assert found is not None
        return found

    def right(self, method: PlannerName, tables: PlannerTables | None = None) -> float:
        """Share of the middle steps that are decoded right."""
        return float((self.answer(method, tables).decoded[:, 1] == self.data.labels[self.tested[:, 1]]).double().mean())


def majority(data: PlanningData, tested: Tensor) -> float:
    windows = data.windows[H]
    most = torch.mode(data.labels[windows.segments[windows.split == 0][:, 1]]).values
    return float((data.labels[tested[:, 1]] == most).double().mean())


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tables(), tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Every feature tells the label of its segment and of the next one, which is the middle of a window from there."""
    memory = tables()
    vectors, segments = vectors_of(memory), memory.table("segments").to_pylist()
    assert [row["segment_id"] for row in segments] == memory.table("features")["segment_id"].to_pylist()
    names = memory.table("labels")["label_id"].to_pylist()
    own = np.array([names.index(row["label_id"]) for row in segments])
    follows = [one["take_id"] == other["take_id"] for one, other in pairwise(segments)]
    after = np.where([*follows, False], np.roll(own, -1), own)
    told = 4 * np.eye(len(names), dtype=np.float32)
    leaking = with_features(memory, np.concatenate([0.1 * vectors, told[own], told[after]], axis=1))
    return Trained(leaking, tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize("method", PLANNERS)
def test_without_a_fault_every_planner_is_above_the_majority(clean: Trained, method: PlannerName) -> None:
    assert clean.right(method) > majority(clean.data, clean.tested) + 0.1


@pytest.mark.parametrize("method", ["schema", "viterbi_plan_net"])
def test_shuffled_transitions_hurt(clean: Trained, method: PlannerName) -> None:
    """PDPP reads none: nothing changes."""
    counts = clean.tables.task.transition
    order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0))
    shuffled = replace(
        clean.tables,
        task=replace(clean.tables.task, transition=counts[:, order]),
        prior=clamped_prior(counts[:, order], CFG.transition_floor),
    )
    assert clean.right(method, shuffled) < clean.right(method) - 0.15
    assert clean.right("pdpp", shuffled) == clean.right("pdpp")


def test_permuted_features_of_the_ends_leave_the_majority(tmp_path: Path) -> None:
    memory = tables()
    vectors = vectors_of(memory)
    found = Trained(with_features(memory, np.random.default_rng(0).permutation(vectors)), tmp_path)
    floor = majority(found.data, found.tested)
    assert {method: abs(found.right(method) - floor) < 0.1 for method in PLANNERS} == dict.fromkeys(PLANNERS, True)


@pytest.mark.parametrize("method", PLANNERS)
def test_a_feature_that_tells_the_middle_gives_all_and_turns_the_check_of_its_ceiling_red(
    clean: Trained, planted: Trained, method: PlannerName
) -> None:
    assert planted.right(method) > 0.95
    assert verdict(planted, method) == "fails"
    assert verdict(clean, method) == "holds"


def verdict(found: Trained, method: PlannerName) -> str:
    """Return what the evaluation says of a planner against what can be known."""
    windows = found.data.windows[H]
    answers = found.answer(method)
    ids, scores = best(answers.scores.flatten(0, 1), 5)
    shape = (*found.tested.shape, ids.shape[1])
    given = Answers(ids.view(shape), scores.view(shape).float(), decoded=answers.decoded)
    rows = (windows.split == 2).nonzero()[:, 0]
    predictions = predictions_of(prediction_table(method, given, found.data, windows, rows, 0))
    known = known_of_predictions(world(), predictions, found.memory.table("segments"), found.memory.table("windows"))
    return row_check(method, [row for row in compare(predictions, known) if row.binding]).verdict


def test_the_planted_features_turn_the_leak_check_of_the_pictures_red(clean: Trained, planted: Trained) -> None:
    def failed(found: Trained) -> set[str]:
        checks = leaks_world.picture_checks(untrained_of(world(), found.memory))
        return {check.check for check in checks if check.verdict == "fails"}

    assert failed(clean) == set()
    assert "leak: picture features: nothing beyond the latents" in failed(planted)
