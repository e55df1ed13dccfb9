"""Controls of the planners of other papers, in a small simulated world: what must hurt hurts, and a leak shows."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from drawn_tables import WORLD, tables_of_world
from planning_world import Memory, run_stage, with_features
from right_predictions import predictions_of
from torch import Tensor

from schemas.config import TextConfig
from schemas.planners import PLANNERS, PlannerName, PlannersConfig, PlannerTraining
from trajpilot_core.data.chains import chains_of
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.engine.stage import Source, Stage
from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, row_check
from trajpilot_core.evaluation.predictions import prediction_table
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.planner_models import PlannerTables, open_planners, planned, planner_rows
from trajpilot_core.models.planners.decoding import clamped_prior
from trajpilot_core.models.planners.matched import DecodedPlan, decode
from trajpilot_core.models.ranking import best
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.stages import planners, text_bank
from trajpilot_core.store.reading import Inputs

H = 3
PAPERS = PlannersConfig()
FEW = PlannerTraining(lr=1e-2, batch=64, epochs=15, step_epochs=5)
SMALL = {"width": 32, "layers": 1, "input_dropout": 0.1, "dropout": 0.0}
CFG = PAPERS.replace(
    seeds=(0,),
    rates=(1.0,),
    schema_net=PAPERS.schema_net.replace(heads=4, train=FEW.replace(lr=3e-3, epochs=20, step_epochs=6), **SMALL),
    pdpp=PAPERS.pdpp.replace(
        width=32, times=20, train=PlannerTraining(lr=1.5e-3, batch=64, epochs=15, step_epochs=None)
    ),
    viterbi_plan_net=PAPERS.viterbi_plan_net.replace(train=FEW, **SMALL),
)
FAST: tuple[PlannerName, ...] = ("viterbi_plan_net",)
"""The others take too long for every run of the tests; they are part of a campaign."""
LONG_S = 3600
"""Longest that one of these may take: PDPP takes minutes to learn anything."""
EACH = [
    one if one in FAST else pytest.param(one, marks=[pytest.mark.campaign, pytest.mark.timeout(LONG_S)])
    for one in PLANNERS
]


@cache
def world() -> World:
    """Steps in order, whose alternatives the intent decides, looks hardly tell and motion does not: ends leave much
    open, and a feature that tells more shows."""
    knobs = {"rho": 1.0, "advance": (0.0, 1.0, 0.0, 0.0), "positions": 4, "intents": 4, "label_appearance": 0.3}
    knobs |= {"kappa": 0.0, "style": 0.0}
    return sample_world(WORLD.replace(train_takes=160, **knobs))


def tables() -> Memory:
    """The world's tables with sentences about its labels."""
    memory = tables_of_world(world())
    ids = memory.table("labels")["label_id"]
    memory.table("label_classes", pa.table({"label_id": ids, "class_id": ids}))
    run_stage(
        text_bank.STAGE, TextConfig(encoder="bag_of_words", bag_width=16, descriptions="template"), memory, Path()
    )
    return memory


def at_one_horizon() -> Stage[PlannersConfig]:
    """The stage of the planners that trains models of the horizon H alone."""

    def sources(inputs: Inputs, cfg: PlannersConfig, data_root: str) -> list[Source]:
        return [one for one in planners.STAGE.sources(inputs, cfg, data_root) if one.shard.endswith(f"_h{H}")]

    return replace(planners.STAGE, sources=sources)


class Trained:
    def __init__(self, memory: Memory, method: PlannerName, scratch: Path) -> None:
        own = Memory(dict(memory.tables))
        run_stage(at_one_horizon(), CFG.replace(methods=(method,)), own, scratch)
        self.memory, self.method, self.data = own, method, load_planning_data(own, "test")
        opened = open_planners(own, self.data, chains_of(self.data)[0], "cpu")
        assert opened is not None
        self.opened: PlannerTables = opened

    @property
    def tested(self) -> Tensor:
        windows = self.data.windows[H]
        return windows.segments[windows.split == 2]

    def answer(self) -> DecodedPlan:
        rows = planner_rows(self.opened, 0, H, "cpu")
        assert rows is not None
        found = planned(rows, self.method, self.data, self.tested, masked=False)
        assert found is not None
        return found

    def right(self) -> float:
        """Share of the middle steps that are decoded right."""
        return float((self.answer().decoded[:, 1] == self.data.labels[self.tested[:, 1]]).double().mean())

    def majority(self) -> float:
        """The same share of the label that is most frequent there in training."""
        windows = self.data.windows[H]
        most = torch.mode(self.data.labels[windows.segments[windows.split == 0][:, 1]]).values
        return float((self.data.labels[self.tested[:, 1]] == most).double().mean())

    def verdict(self) -> str:
        """What the evaluation says of it against what can be known."""
        windows, answers = self.data.windows[H], self.answer()
        ids, scores = best(answers.scores.flatten(0, 1), 5)
        shape = (*self.tested.shape, ids.shape[1])
        given = Answers(ids.view(shape), scores.view(shape).float(), decoded=answers.decoded)
        rows = (windows.split == 2).nonzero()[:, 0]
        predictions = predictions_of(prediction_table(self.method, given, self.data, windows, rows, 0))
        known = known_of_predictions(world(), predictions, *(self.memory.table(of) for of in ("segments", "windows")))
        return row_check(self.method, [row for row in compare(predictions, known) if row.binding]).verdict


@pytest.fixture(scope="module")
def clean() -> Memory:
    return tables()


@pytest.fixture(scope="module")
def planted() -> Memory:
    """Every feature tells the label of its segment and of the next one, which is the middle of a window from there."""
    memory = tables()
    segments = memory.table("segments").to_pylist()
    assert [row["segment_id"] for row in segments] == memory.table("features")["segment_id"].to_pylist()
    names = memory.table("labels")["label_id"].to_pylist()
    own = np.array([names.index(row["label_id"]) for row in segments])
    follows = [one["take_id"] == other["take_id"] for one, other in pairwise(segments)]
    after = np.where([*follows, False], np.roll(own, -1), own)
    told = 4 * np.eye(len(names), dtype=np.float32)
    noise = 0.1 * np.random.default_rng(0).normal(size=(len(own), 2 * len(names)))
    return with_features(memory, np.concatenate([told[own], told[after]], axis=1) + noise)


def test_shuffled_transitions_hurt_the_decoding_of_the_same_scores() -> None:
    """Scores that tell the ends alone, of windows that walk round a circle of twelve labels."""
    first = torch.arange(12).repeat(4)
    labels_BH = (first[:, None] + torch.arange(5)) % 12
    plan_BHA = torch.zeros(48, 5, 12)
    plan_BHA[:, [0, -1]] = 9.0 * torch.eye(12)[labels_BH[:, [0, -1]]]
    counts = 10 * torch.eye(12).roll(1, 1)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))

    def right(method: PlannerName, counts_VV: Tensor) -> float:
        decoded = decode(method, plan_BHA.log_softmax(2), clamped_prior(counts_VV)).decoded
        return float((decoded == labels_BH)[:, 1:-1].double().mean())

    methods: tuple[PlannerName, ...] = ("schema", "viterbi_plan_net")
    for method in methods:
        assert right(method, counts) == 1.0
        assert right(method, counts[:, order]) < 0.3


@pytest.mark.parametrize("method", EACH)
def test_permuted_features_of_the_ends_leave_the_majority(clean: Memory, method: PlannerName, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).permutation(clean.vectors("features", "vector"))
    found = Trained(with_features(clean, vectors), method, tmp_path)
    assert abs(found.right() - found.majority()) < 0.1


@pytest.mark.parametrize("method", EACH)
def test_a_feature_that_tells_the_middle_gives_all_and_turns_the_check_of_its_ceiling_red(
    clean: Memory, planted: Memory, method: PlannerName, tmp_path: Path
) -> None:
    """In these few steps PDPP is right in 66 %, which is below the ceiling: that check stays green (planners.md)."""
    leaks, honest = Trained(planted, method, tmp_path / "planted"), Trained(clean, method, tmp_path / "clean")
    assert honest.verdict() == "holds"
    assert honest.right() > honest.majority() + 0.15
    if method == "pdpp":
        assert leaks.right() > leaks.majority() + 0.5
    else:
        assert (leaks.right() > 0.95, leaks.verdict()) == (True, "fails")
