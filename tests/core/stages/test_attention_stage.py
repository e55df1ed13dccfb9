"""The stage of retrieval attention: its trainings as shards, and the same bytes whoever computes them."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from planning_world import Memory, planning_world, run_stage
from stored_world import SETTINGS, SIZE, options, stages_on, world

from schemas.arrow import rows_of
from schemas.config import PipelineConfig
from schemas.results import CurvePoint
from schemas.training import AttentionVariant
from trajpilot_core.data.contributions import Contributions
from trajpilot_core.data.cross_fitting import attention_row, noted_fitted
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.execution.sink import StageSink
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.report.committed import committed_under
from trajpilot_core.report.drawing.picture import NotDrawn
from trajpilot_core.report.figures import figures_of
from trajpilot_core.report.ui.gallery import draw
from trajpilot_core.stages import STAGES
from trajpilot_core.stages.attention import ENTRY
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import current_manifest

BEFORE = ("ingest", "trajectories", "features", "text_bank", "alignment")


def settings(*variants: AttentionVariant, seeds: tuple[int, ...] = (0,)) -> PipelineConfig:
    return SETTINGS.replace(
        attention=SETTINGS.attention.replace(variants=variants), alignment=SETTINGS.alignment.replace(seeds=seeds)
    )


TWO = settings("both", "alone")


def attend(root: Path, memory: Memory, config: PipelineConfig = TWO, **changes: Any) -> Outcome:
    """Run what it reads, and the stage."""
    stages = stages_on(memory)
    for name in BEFORE:
        execute(stages[name], config, options(root), stages)
    return execute(stages["attention"], config, options(root, **changes), stages)


def models(root: Path) -> dict[str, str]:
    manifest = current_manifest(LocalFolder(str(root)), "attention")
    assert manifest is not None
    return {file.key: file.sha256 for file in manifest.entries[ENTRY].files if file.key}


def counts(done: Outcome) -> tuple[int, int]:
    return done.reused, done.computed


@pytest.fixture(scope="module")
def memory() -> Memory:
    return world()


@pytest.fixture(scope="module")
def base(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("attention") / "root"
    assert counts(attend(root, memory)) == (0, 2)
    return root


def test_what_was_trained_is_kept_when_variants_and_seeds_are_added_and_when_some_go(
    base: Path, memory: Memory
) -> None:
    before = models(base)
    assert set(before) == {"final/s0/both", "final/s0/alone"}
    assert counts(attend(base, memory)) == (2, 0)
    more = settings("alone", "no_motion", "both", seeds=(0, 5))
    assert counts(attend(base, memory, more)) == (2, 4)
    assert before.items() < models(base).items()
    fewer = attend(base, memory, settings("both"))
    assert (counts(fewer), fewer.removed) == ((1, 0), 5)
    assert models(base) == {"final/s0/both": before["final/s0/both"]}
    assert counts(attend(base, memory, settings())) == (0, 0), "nothing is trained, and the entries are there"
    assert models(base) == {}
    assert counts(attend(base, memory)) == (2, 0)
    assert models(base) == before


@pytest.mark.parametrize("name", ["attention", "planners"])
def test_a_stage_that_is_asked_for_nothing_claims_no_work_and_logs_no_picture(
    name: str, base: Path, memory: Memory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page in the UI says so in the place of the picture."""
    nothing, run = settings(), options(base)
    stages = {stage: one for stage, one in stages_on(memory).items() if stage in (*BEFORE, name)}

    def work() -> tuple[str, int | None, int | None]:
        (row,) = (row for row in plan(stages, nothing, run) if row.stage == name)
        return row.state, row.compute, row.reused

    assert work()[1:] == (0, 0)
    done = execute(stages[name], nothing, run, stages)
    assert counts(done) == counts(execute(stages[name], nothing, run, stages)) == (0, 0)
    assert work() == ("fresh", 0, 0)
    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)
    with caplog.at_level(logging.INFO, "trajpilot"):
        (made,) = (draw(name, figure, committed_under(nothing, run)) for figure in figures_of(name))
    assert isinstance(made, NotDrawn)
    assert made.reason == "nothing was trained"
    assert caplog.text == ""


def changed(memory: Memory, split: str) -> Memory:
    """The world with the features of one take of a split changed."""
    take = next(row["take_id"] for row in memory.tables["takes"].to_pylist() if row["split"] == split)
    table = memory.tables["features"]
    rows = table.to_pylist()
    for row in rows:
        if row["take_id"] == take:
            row["vector"] = np.asarray(row["vector"], np.float16) + np.float16(0.5)
    return Memory({**memory.tables, "features": pa.Table.from_pylist(rows, schema=table.schema)})


def test_a_take_that_it_learns_from_or_is_measured_on_decides_and_one_of_test_does_not(
    base: Path, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counts(attend(base, changed(memory, "test"))) == (2, 0)
    for split in ("train", "dev"):
        assert counts(attend(base, changed(memory, split))) == (0, 2)
    monkeypatch.setattr(Contributions, "digest", lambda self, takes: "the same")  # the fault that this is about
    attend(tmp_path, memory)
    assert counts(attend(tmp_path, changed(memory, "train"))) == (2, 0)


class Killed(BaseException):
    """The process is gone."""


def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(
    base: Path, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = StageSink.model

    def dying(self: StageSink, name: str, *rest: object) -> None:
        if name == ENTRY:
            raise Killed
        kept(self, name, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(StageSink, "model", dying)
        with pytest.raises(Killed):
            attend(tmp_path, memory)
    with caplog.at_level("INFO", "trajpilot"):
        assert counts(attend(tmp_path, memory)) == (0, 2)
    assert "goes on" in caplog.text
    assert models(tmp_path) == models(base)
    assert list((tmp_path / "scratch").glob("*/*")) == []


def test_two_workers_leave_the_bytes_of_one(base: Path, memory: Memory, tmp_path: Path) -> None:
    assert counts(attend(tmp_path, memory, workers=2)) == (0, 2)
    assert models(tmp_path) == models(base)


def test_it_states_what_it_was_fitted_on_and_leaves_train_scores(tmp_path: Path) -> None:
    memory = planning_world(replace(SIZE, tokens=2))
    run_stage(STAGES["alignment"], SETTINGS.alignment.replace(folds=1), memory, tmp_path / "a")
    run_stage(STAGES["attention"], TWO.attention, memory, tmp_path / "b")
    curve = rows_of(CurvePoint, memory.table("attention_curves"))
    assert {row.model for row in curve} == {f"final/{attention_row(variant)}" for variant in ("both", "alone")}
    assert {(row.split, row.quantity) for row in curve} >= {("train", "M@1"), ("dev", "M@1"), ("train", "loss")}
    folds = memory.table("folds").to_pylist()
    fitted = noted_fitted(memory.entries[ENTRY].about)
    assert fitted == {"final": sorted(row["take_id"] for row in folds if row["fold"] == -1)}, "in the cheap mode"
    assert memory.counts == (memory.counts[1],) * 2
    assert memory.counts[0] > 0
