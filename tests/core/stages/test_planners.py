"""Class heads and planners of other papers from training to the rows of the tables, on one small closed world."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from planning_fixture import ALIGNMENT, PREDICTOR, SCORER
from planning_world import Memory, WorldSize, planning_world, run_stage
from torch import Tensor

from schemas.config import CompletedEvaluation
from schemas.planners import PLANNERS, PlannersConfig, PlannerTraining
from schemas.results import CurvePoint
from schemas.training import GOAL_DROPOUT, ClosedDecodingConfig, TrainConfig
from trajpilot_core.data.chains import chains_of
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.headroom import sampling_scores
from trajpilot_core.evaluation.predictions import RowsResult, predict_all
from trajpilot_core.evaluation.trained_rows import judge_planner
from trajpilot_core.methods import method, planner_models
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.planner_models import open_planners, planner_rows
from trajpilot_core.models.planners.matched import MatchedPlanner, PlannerInputs
from trajpilot_core.models.planners.temporal_unet import TemporalUnet
from trajpilot_core.stages import EVERY_STAGE as STAGES
from trajpilot_core.stages.evaluation import FURTHER, trained

SIZE = WorldSize(tasks=2, steps=4, alternatives=2, train=24, dev=4, test=4, max_horizon=3, segments=6)
TRAIN = TrainConfig(epochs=12, patience=None, lr=3e-3, batch=32, precision="fp32")
PREDICT = PREDICTOR.replace(
    width=32, hidden=32, dropout=0.1, head="classes", bridge_weight=0.15, twin_goal_dropout=GOAL_DROPOUT, train=TRAIN
)
DECODING = ClosedDecodingConfig(weight=1.0, smoothing=0.5, is_masked=True)
SCORE = SCORER.replace(candidates=4, dropout=0.1, ablations=("no_labels",), decoding=DECODING)
EVALUATION = CompletedEvaluation(shuffles=2, headroom_pools=(1, 4), further_entries=FURTHER["planners"])
DROPOUT = {"no_traj_goal_dropout": "final/no_traj_goal_dropout", "oracle_goal_dropout": "final/traj_goal_dropout"}
"""Row of a goal-dropout twin -> its model."""
PAPERS = PlannersConfig()
CFG = PAPERS.replace(
    methods=PLANNERS,
    seeds=(0,),
    rates=(1.0,),
    schema_net=PAPERS.schema_net.replace(
        width=32, heads=4, layers=1, input_dropout=0.1, dropout=0.0, train=PlannerTraining(lr=3e-3, batch=32, epochs=5)
    ),
    pdpp=PAPERS.pdpp.replace(
        width=32,
        times=10,
        sampling_steps=4,
        epoch_steps=5,
        average_start=10,
        train=PlannerTraining(lr=1e-3, batch=32, epochs=4, step_epochs=None),
    ),
    viterbi_plan_net=PAPERS.viterbi_plan_net.replace(
        width=32, input_dropout=0.1, dropout=0.0, train=PlannerTraining(lr=3e-3, batch=32, epochs=25)
    ),
)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """A world with everything trained, goal-dropout twins and planners included."""
    folder, memory = tmp_path_factory.mktemp("planners"), planning_world(SIZE)
    run_stage(STAGES["alignment"], ALIGNMENT.replace(train=TRAIN), memory, folder / "alignment")
    run_stage(STAGES["predictor"], PREDICT, memory, folder / "predictor")
    run_stage(STAGES["scorer"], SCORE, memory, folder / "scorer")
    run_stage(STAGES["planners"], CFG, memory, folder / "planners")
    return memory


Evaluated = tuple[pa.Table, RowsResult]
"""The predictions, and what is complete once they were read."""


@pytest.fixture(scope="module")
def evaluated(memory: Memory) -> Evaluated:
    found = predict_all(memory, EVALUATION, "cpu", no_progress)
    return pa.concat_tables(list(found.predictions)), found


@pytest.fixture(scope="module")
def predictions(evaluated: Evaluated) -> pa.Table:
    return evaluated[0]


def of(predictions: pa.Table, row: str) -> pa.Table:
    return predictions.filter(pc.equal(predictions["variant"], row))


def right(predictions: pa.Table, row: str) -> float:
    table = of(predictions, row)
    mid = np.array(table["position"].to_pylist()) % (np.array(table["horizon"].to_pylist()) - 1) > 0
    same = np.array(table["decoded_id"].to_pylist()) == np.array(table["label_id"].to_pylist())
    return float(same[mid].mean())


def test_every_planner_answers_the_windows_that_our_rows_answer_and_one_that_was_trained_is_right(
    predictions: pa.Table,
) -> None:
    """That each of them learns is shown in tests/core/models/planners; here few steps are made."""
    ours = of(predictions, "no_traj")["window_id"].to_pylist()
    for row in PLANNERS:
        assert of(predictions, row)["window_id"].to_pylist() == ours
    assert right(predictions, "viterbi_plan_net") > right(predictions, "majority") + 0.15


def test_only_labels_that_the_scenario_allows_are_answered_under_a_mask(memory: Memory, predictions: pa.Table) -> None:
    assert {"endpoint_traj", "majority"} < set(predictions["variant"].to_pylist())
    scenario_of = {take["take_id"]: take["scenario"] for take in memory.table("takes").to_pylist()}
    rows = memory.table("scenario_labels").to_pylist()
    allowed = {(row["scenario"], row["label_id"]) for row in rows if row["is_allowed"]}
    ours = ("no_traj", "oracle", "scorer", "no_traj_no_prior", "graph_only", *DROPOUT)
    for row in (*ours, *(f"{planner}_masked" for planner in PLANNERS)):
        answers = of(predictions, row).to_pylist()
        assert answers, row
        for answer in answers:
            assert (scenario_of[answer["take_id"]], answer["decoded_id"]) in allowed, row


def batch_of(memory: Memory, cfg: PlannersConfig = CFG) -> Any:
    """The test windows and the planners of the only horizon, as rows see them, under other settings of the rows."""
    data = load_planning_data(memory, "evaluation")
    tables = open_planners(memory, data, chains_of(data)[0], "cpu")
    assert tables is not None
    windows = data.windows[3]
    return SimpleNamespace(
        planners=planner_rows(replace(tables, config=cfg), 0, 3, "cpu"),
        view=SimpleNamespace(data=data),
        segments=windows.segments[windows.split == 2],
    )


def answer(row: str, batch: Any) -> Answers | None:
    answers = method(row).answer
    assert answers is not None
    return answers(batch)


def passes(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> int:
    """How often PDPP's network runs."""
    real = TemporalUnet.predict
    seen: list[int] = []

    def counted(self: TemporalUnet, *given: Any) -> Any:
        seen.append(1)
        return real(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(TemporalUnet, "predict", counted)
        act()
    return len(seen)


def test_the_second_row_of_pdpp_samples_at_all_times_from_the_same_weights(
    memory: Memory, predictions: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault, DDIM under the name of DDPM, shows in the passes of the network, and in the answers."""
    batch = batch_of(memory)
    assert of(predictions, "pdpp_ddpm")["window_id"].to_pylist() == of(predictions, "pdpp")["window_id"].to_pylist()
    assert passes(monkeypatch, lambda: answer("pdpp", batch)) == 4
    assert passes(monkeypatch, lambda: answer("pdpp_ddpm", batch)) == CFG.pdpp.times == 10
    ddim, ddpm = (of(predictions, row)["top_scores"].to_pylist() for row in ("pdpp", "pdpp_ddpm"))
    assert ddim != ddpm
    real = MatchedPlanner.plan
    monkeypatch.setattr(MatchedPlanner, "plan", lambda self, inputs, seed, *, ddpm: real(self, inputs, seed))
    assert passes(monkeypatch, lambda: answer("pdpp_ddpm", batch)) == 4
    faulty, first = (answer(row, batch) for row in ("pdpp_ddpm", "pdpp"))
    assert faulty is not None
    assert first is not None
    assert faulty.scores.equal(first.scores)


def test_the_second_row_of_pdpp_is_absent_where_it_is_not_asked_for_and_changes_no_training(memory: Memory) -> None:
    """The steps of its sampling, on the other hand, are those by which dev chooses epochs."""
    alone, all_times = CFG.replace(has_ddpm_row=False, samplings=1), CFG.pdpp.replace(sampling_steps=None)
    others = (alone, CFG.replace(pdpp=all_times))
    for batch in (batch_of(memory, other) for other in others):
        assert answer("pdpp", batch) is not None
        assert answer("pdpp_ddpm", batch) is None
    keyed = [STAGES["planners"].settings_of_shards(cfg.content()) for cfg in (CFG, *others)]
    assert keyed[0] == keyed[1] != keyed[2]


def test_samplings_of_pdpp_are_scored_and_the_first_is_that_of_its_row(
    memory: Memory, evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: every sampling has the seed of the row."""
    table, found = evaluated
    assert [(row.variant, row.seed, row.horizon, row.sampling) for row in found.figures.samplings] == [
        ("pdpp", 0, 3, sampling) for sampling in range(5)
    ]
    assert found.figures.samplings[0].m1 == pytest.approx(100 * right(table, "pdpp"))
    batch, real = batch_of(memory), MatchedPlanner.plan
    seeds: list[int] = []

    def noting(self: MatchedPlanner, inputs: PlannerInputs, seed: int, *, ddpm: bool) -> Tensor:
        seeds.append(seed)
        return real(self, inputs, seed, ddpm=ddpm)

    monkeypatch.setattr(MatchedPlanner, "plan", noting)
    assert sampling_scores(batch.planners, batch.view.data, batch.segments) == found.figures.samplings
    assert (seeds[0], len(set(seeds))) == (0, 5)
    monkeypatch.setattr(planner_models, "SEEDS_APART", 0)
    seeds.clear()
    sampling_scores(batch.planners, batch.view.data, batch.segments)
    assert set(seeds) == {0}


def test_the_learning_rate_that_dev_prefers_is_kept_and_all_curves_are(memory: Memory, tmp_path: Path) -> None:
    own = Memory(tables=dict(memory.tables), entries=dict(memory.entries))
    run_stage(STAGES["planners"], CFG.replace(methods=("viterbi_plan_net",), rates=(1e-4, 1.0)), own, tmp_path)
    dev = [r for r in own.table("planners_curves").to_pylist() if (r["split"], r["quantity"]) == ("dev", "Mid mAcc")]
    best = {name: max(row["value"] for row in dev if row["model"] == name) for name in {row["model"] for row in dev}}
    kept = "final/viterbi_plan_net_h3"
    assert set(best) == {kept, f"{kept}, rate x0.0001"}
    assert best[f"{kept}, rate x0.0001"] < best[kept]


def test_a_planner_is_judged_against_the_floors_of_its_own_horizon(memory: Memory) -> None:
    checks = {one.check for one in trained(memory, EVALUATION)}
    assert {f"trained: final/{method}, seed 0" for method in PLANNERS} <= checks
    flat = [
        CurvePoint(model="final/schema_h3", seed=0, epoch=e, split="dev", quantity="Mid mAcc", value=0.2)
        for e in range(1, 9)
    ]
    floors = [
        CurvePoint(model=f"final/{name}", seed=0, epoch=0, split="dev", quantity=f"M@1 H={h}", value=value)
        for name in ("majority", "previous")
        for h, value in ((3, 0.3), (4, 0.1))
    ]
    assert judge_planner(flat + floors, "schema", 0).verdict == "undertrained"
    low = [point.replace(quantity="M@1 H=3", value=0.1) for point in floors if point.quantity == "M@1 H=3"]
    assert judge_planner(flat + low, "schema", 0).verdict == "holds"


def test_without_descriptions_the_stage_says_what_to_set(memory: Memory, tmp_path: Path) -> None:
    bare = Memory(tables=dict(memory.tables), entries=dict(memory.entries))
    bare.table("descriptions", memory.table("descriptions").slice(0, 0))
    with pytest.raises(InputError, match=r"set text_bank\.descriptions to template"):
        run_stage(STAGES["planners"], CFG, bare, tmp_path / "bare")


def test_the_head_and_goal_dropout_twins_learn_and_twins_are_judged_and_stand_next_to_their_originals(
    memory: Memory, predictions: pa.Table
) -> None:
    def share_right(row: str) -> float:
        table = of(predictions, row)
        return float(np.mean(np.array(table["decoded_id"].to_pylist()) == np.array(table["label_id"].to_pylist())))

    judged = {one.check for one in trained(memory, EVALUATION)}
    assert min(map(share_right, ("no_traj", "oracle", *DROPOUT))) > share_right("majority") + 0.2
    for row, model in DROPOUT.items():
        assert f"trained: {model}, seed 0" in judged
        original = of(predictions, row.removesuffix("_goal_dropout"))
        assert of(predictions, row)["window_id"].equals(original["window_id"])
        assert of(predictions, row)["top_scores"].to_pylist() != original["top_scores"].to_pylist()


def test_a_sequence_is_decoded_under_the_prior_and_without_it_step_by_step(predictions: pa.Table) -> None:
    together, alone = of(predictions, "no_traj").to_pylist(), of(predictions, "no_traj_no_prior").to_pylist()
    assert all(row["decoded_id"] == row["top_ids"][0] for row in alone)
    assert any(a["decoded_id"] != b["decoded_id"] for a, b in zip(together, alone, strict=True))
