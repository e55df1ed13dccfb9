"""The table of pose sources: rows that must be equal are, a mismatch is seen, and the accuracy that goes with it."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from planning_world import Memory, WorldSize, head_motions, planning_world, run_stage
from pydantic import ValidationError

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.poses import POSE_MODELS, CompletedPoseSources, PoseScore, VideoMotionsConfig
from schemas.results import Judgement
from schemas.training import AlignmentConfig, ClosedDecodingConfig, PredictorConfig, TrainConfig
from trajpilot_core.data.two_motions import common
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.pose_rows import pose_rows, scores_of, trained_on
from trajpilot_core.report.pose_page import PoseResults, documents, main_table, verdict
from trajpilot_core.report.tables.latex import latex_text
from trajpilot_core.report.tables.table import DAGGER
from trajpilot_core.stages import EVERY_STAGE, alignment, pose_sources
from trajpilot_core.store.tensors import tensors_bytes

TRAIN = TrainConfig(epochs=6, patience=None, lr=3e-3, batch=32, precision="fp32")
ALIGNMENT = AlignmentConfig(width=32, layers=1, heads=2, hidden=64, folds=1, seeds=(0,), train=TRAIN.replace(epochs=12))
CFG = CompletedPoseSources(
    is_asked=True,
    bootstrap=100,
    predictor=PredictorConfig(
        width=32, layers=1, heads=2, hidden=64, queries=4, dropout=0.0, head="classes", train=TRAIN.replace(epochs=8)
    ),
    decoding=ClosedDecodingConfig(weight=1.0, smoothing=0.5, is_masked=True),
)
SOURCES = ("aria", "odometry")
ROWS = pose_rows(SOURCES)
SAME, VIDEO, RAW = (row.name for row in ROWS[:3])
SIZE = WorldSize(tasks=2, steps=4, alternatives=3, train=16, dev=4, test=8, motion_strength=3.0, max_horizon=5)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = planning_world(SIZE)
    takes = memory.table("takes")
    memory.tables["takes"] = takes.append_column("corpus", pa.array([SIMULATED] * len(takes)))
    run_stage(alignment.STAGE, ALIGNMENT, memory, tmp_path_factory.mktemp("alignment"))
    return memory


def from_video(memory: Memory, change: object) -> pa.Table:
    """The same head motions as another source gives them."""
    own = memory.table("motions")
    motions = np.array(own["motions"].to_pylist(), dtype=np.float32).reshape(-1, 16, 6)
    changed = change(motions)  # type: ignore[operator]
    return head_motions(own["segment_id"].to_pylist(), changed, source="odometry", scale="arbitrary")


def turned(motions: np.ndarray) -> np.ndarray:
    """The same motions in other axes and lengths."""
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    return np.concatenate([9 * motions[..., :3] @ turn.T, motions[..., 3:] @ turn.T], axis=-1)


def table_of_rows(world: Memory, change: object, folder: Path, cfg: CompletedPoseSources = CFG) -> dict[str, PoseScore]:
    """Run the stage with these motions from video; return the differences of the middles, mean over the seeds."""
    world.tables["video_motions"] = from_video(world, change)
    run_stage(EVERY_STAGE["pose_sources"], cfg, world, folder)
    scores = rows_of(PoseScore, world.table("pose_scores"))
    return {one.row: one for one in scores if one.seed is None and one.metric == "mid" and one.against is not None}


@pytest.mark.slow
def test_motions_in_other_axes_and_lengths_are_a_mismatch_that_training_on_them_mends(
    world: Memory, tmp_path: Path
) -> None:
    found = table_of_rows(world, turned, tmp_path)
    assert found[RAW].high < 0, "the planted mismatch must be seen"
    checks = set(world.table("pose_judgements")["check"].to_pylist())
    assert checks == {f"trained: {name}, seed 0" for name in trained_on(SOURCES).values()}
    scores = {
        (one.row, one.metric): one.value
        for one in rows_of(PoseScore, world.table("pose_scores"))
        if one.seed is None and one.against is None
    }
    assert {row for row, _ in scores} == {row.name for row in ROWS}
    assert all(scores[VIDEO, metric] > scores[RAW, metric] for metric in ("mid", "full"))
    assert scores["aria + odometry -> odometry", "mid"] > scores[RAW, "mid"]
    page = world.documents["pose_sources.html"].decode()
    assert "Mid mAcc" in page
    assert "published Mid" not in page, "simulated takes stand next to no figure of the paper"
    assert "did not show the paper's drop" in page.replace("&#39;", "'")


@pytest.mark.slow
def test_where_video_gives_the_motions_of_the_files_no_row_differs(world: Memory, tmp_path: Path) -> None:
    few = CFG.replace(predictor=CFG.predictor.replace(train=TRAIN.replace(epochs=2)))
    found = table_of_rows(world, lambda motions: motions, tmp_path, few)
    assert (found[RAW].value, found[RAW].low, found[RAW].high) == (0.0, 0.0, 0.0)


def all_right(sources: tuple[str, str]) -> list[PoseScore]:
    """The scores of rows that answer three windows of nine takes each, all of them right."""
    answers = {(row.name, 0): np.ones((27, 2)) for row in pose_rows(sources)}
    return scores_of(answers, sources, np.repeat(np.arange(9), 3), CFG)


def test_equal_answers_give_equal_rows_and_a_difference_of_nothing() -> None:
    takes = np.concatenate([np.repeat(np.arange(8), 5), np.repeat(np.arange(8), 3)])
    every = np.random.default_rng(0).integers(0, 2, (len(takes), 2)).astype(float)
    rows = scores_of({(row.name, 0): every for row in ROWS}, SOURCES, takes, CFG)
    for one in rows:
        at = 0 if one.metric == "mid" else 1
        wanted = 0.0 if one.against is not None else 100 * every[:, at].mean()
        assert one.value == pytest.approx(wanted)
        assert one.against is None or (one.low, one.high) == (0.0, 0.0)
    few = scores_of({(row.name, 0): np.ones((10, 2)) for row in ROWS}, SOURCES, np.repeat(np.arange(5), 2), CFG)
    assert few[0].high == np.inf


def test_pages_scores_checks_and_latex_name_rows_after_the_sources_that_ran() -> None:
    for sources, same, video in (
        (("aria", "pi3"), "aria -> aria", "pi3 -> pi3"),
        (("odometry", "odometry"), "odometry 1 -> odometry 1", "odometry 2 -> odometry 2"),
    ):
        of_files, of_video, _, _, both, both_equal, _ = pose_rows(sources)
        assert (of_files.name, of_video.name) == (same, video)
        scores = all_right(sources)
        made = documents(PoseResults(scores, (), (), is_simulated=False, is_closed=True))
        for name in ("pose_sources.html", "pose_sources.tex", "pose_sources.json"):
            text = made[name].decode().replace("&gt;", ">")
            printed = latex_text if name.endswith("tex") else str
            assert all(printed(row.name) in text for row in (of_files, of_video)), name
            assert printed("files ->") not in text
            assert printed("video ->") not in text
            assert "pi3" in sources or "pi3" not in text.lower()
        assert f"{video} − {same}: 0.0 [0.0, 0.0]" in made["pose_sources.json"].decode()
        assert {one.row for one in scores if one.against == video} == {both.name, both_equal.name}


def test_an_untrained_predictor_is_marked_in_the_table_and_in_the_first_sentence_and_no_other_is() -> None:
    judged = [
        Judgement(check=f"trained: {name}, seed 0", verdict="undertrained" if model == "video" else "holds", detail="")
        for model, name in trained_on(SOURCES).items()
    ]
    shown = PoseResults(all_right(SOURCES), judged, (), is_simulated=True, is_closed=True)
    assert [str(row[0]) for row in main_table(shown).rows if DAGGER in str(row[0])] == [f"{VIDEO}{DAGGER}"]
    assert verdict(shown).count(DAGGER) == 1
    assert DAGGER not in verdict(dataclasses.replace(shown, judgements=()))


def test_the_papers_column_stands_next_to_recorded_takes_alone_and_to_its_own_sources() -> None:
    shown = PoseResults(all_right(("aria", "pi3")), (), (), is_simulated=False, is_closed=True)
    table = main_table(shown)
    of_odometry = main_table(dataclasses.replace(shown, scores=all_right(SOURCES)))
    assert [str(row[-1]) for row in of_odometry.rows] == ["24.29", *[""] * 6], "odometry is no Pi3"
    assert [row[-1] != "" for row in table.rows] == [True, True, True, False, True, False, False]
    assert table.header[-2:] == ("published Mid", "published Full")
    assert table.rows[0][-2:] == ("19.47", "24.29")
    assert "published Mid" not in main_table(dataclasses.replace(shown, is_simulated=True)).header


def test_rows_use_the_segments_that_both_sources_have_and_without_any_nothing_is_trained(
    world: Memory, tmp_path: Path
) -> None:
    own, whole = world.table("motions"), from_video(world, lambda motions: motions)
    assert [len(kept) for kept in common(own, whole.slice(5))] == [len(own) - 5] * 2
    with pytest.raises(InputError, match="no segment has motions from both"):
        common(own.slice(0, 3), own.slice(3))
    with pytest.raises(ValidationError, match="'pi3' or 'odometry'"):
        VideoMotionsConfig(source="aria")
    split = {row["take_id"]: row["split"] for row in world.table("takes").to_pylist()}
    untested = [split[take] != "test" for take in whole["take_id"].to_pylist()]
    memory = Memory({**world.tables, "video_motions": whole.filter(pa.array(untested))}, world.entries)
    with pytest.raises(InputError, match="no test window has motions from both sources"):
        run_stage(EVERY_STAGE["pose_sources"], CFG, memory, tmp_path)
    assert memory.trained == {}


def pose_bytes(memory: Memory) -> dict[str, object]:
    tables = {name: memory.table(name) for name in ("pose_scores", "pose_judgements", "pose_sources_curves")}
    weights = memory.entries[pose_sources.ENTRY].weights
    digests = {key: tensors_bytes(of_model) for key, of_model in weights.items()}
    return {**tables, **digests, **memory.documents}


def test_trainings_that_workers_share_give_the_bytes_of_one_process(
    world: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def each_alone(work: Work[CompletedPoseSources]) -> None:
        for source in work.pending:
            pose_sources.STAGE.run(dataclasses.replace(work, pending=(source,)))

    few = CFG.replace(predictor=CFG.predictor.replace(train=TRAIN.replace(epochs=1)))
    world.tables["video_motions"] = from_video(world, turned)
    run_stage(pose_sources.STAGE, few, world, tmp_path / "whole")
    whole = pose_bytes(world)
    assert sorted(world.trained) == sorted(f"final/s0/{name}" for name in POSE_MODELS)
    run_stage(dataclasses.replace(pose_sources.STAGE, run=each_alone), few, world, tmp_path / "shared")
    assert pose_bytes(world) == whole
    real = pose_sources.job_of
    monkeypatch.setattr(  # planted: what a training is given rests on which others are asked for; alone it is the same
        pose_sources, "job_of", lambda work, *given: real(work, *given)._replace(seed=len(work.pending) - 1)
    )
    run_stage(pose_sources.STAGE, few, world, tmp_path / "planted")
    assert pose_bytes(world) != whole
