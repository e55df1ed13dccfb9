"""Stages in a store: diagnostics are computed again where a feature changed, a readout alone for another vocabulary."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from planning_world import Memory, with_features
from stored_world import SETTINGS, options, stages_on, world

from deployments.recipes import recipe
from schemas.annotation import CorpusCount
from schemas.arrow import arrow_schema
from schemas.config import DiagnosticsConfig, PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.stage import AnyStage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES, stages_of
from trajpilot_core.stages.report import completed
from trajpilot_core.studies.paper_tables.cells import cells_of, read_run
from trajpilot_core.studies.paper_tables.labels.scored import GEOMETRY, MONOTONICITY, STAGE

CONFIG = SETTINGS.replace(diagnostics=DiagnosticsConfig(bootstrap=100))


def recordings() -> Memory:
    """The small world, its takes called recorded ones."""
    memory = world()
    takes = memory.table("takes")
    memory.tables["takes"] = takes.append_column("corpus", pa.array(["egoexo4d"] * takes.num_rows))
    return memory


def with_another_feature(memory: Memory) -> Memory:
    """The same tables, the first segment seen otherwise."""
    vectors = memory.vectors("features", "vector").copy()
    vectors[0] += np.asarray(1, vectors.dtype)
    return with_features(memory, vectors)


def run_until_diagnostics(root: Path, memory: Memory) -> Outcome:
    stages = {**stages_on(memory), STAGE: STAGES[STAGE]}
    for name in ("ingest", "trajectories", "features"):
        execute(stages[name], CONFIG, options(root), stages)
    return execute(stages[STAGE], CONFIG, options(root), stages)


def test_a_root_without_an_evaluation_fills_what_its_stages_left_and_not_from_other_features_than_those_that_count(
    tmp_path: Path,
) -> None:
    memory = recordings()
    run_until_diagnostics(tmp_path / "root", memory)
    run = read_run(str(tmp_path / "root"))
    assert run.dataset == "egoexo4d_atomic"
    assert {cell.table for cell in cells_of([run])} == {GEOMETRY, MONOTONICITY}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no evaluation"):
        read_run(str(tmp_path / "empty"))
    other = stages_on(with_another_feature(memory))
    execute(other["features"], CONFIG, options(tmp_path / "root"), other)
    with pytest.raises(InputError, match="fills no table of the paper"):
        cells_of([read_run(str(tmp_path / "root"))])


def write_something(work: Work[Any], stage: AnyStage) -> None:
    for name in stage.writes:
        if "." in name:
            work.sink.document(name, name.encode())
        elif name == "counts":
            work.sink.table(name, arrow_schema(CorpusCount).empty_table())
        else:
            work.sink.table(name, pa.table({"of": [name]}))
    work.sink.count(1, 1)


def pretended(stage: AnyStage) -> AnyStage:
    """The stage with its own settings, inputs and version; whole, and its run writes something."""
    run = partial(write_something, stage=stage)
    return replace(stage, run=run, sources=None, shard_by=None, conclude=None, video_s=None)


def stages_here(config: PipelineConfig) -> dict[str, AnyStage]:
    return {name: pretended(stage) for name, stage in stages_of(config).items()}


def planned(config: PipelineConfig, run: RunOptions) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(stages_here(config), config, run)}


def test_the_other_vocabulary_under_the_same_root_reuses_every_stage_up_to_the_evaluation(tmp_path: Path) -> None:
    first, second = "atomic", "atomic_closed"
    run = RunOptions(root=str(tmp_path / "root"), data_root=str(tmp_path), device="cpu", workers=1)
    stages = stages_here(recipe(first))
    for stage in stages.values():
        execute(stage, recipe(first), run, stages)
    assert {row.state for row in planned(recipe(first), run).values()} == {"fresh"}
    other = recipe(second).replace(text_bank=recipe(first).text_bank)  # descriptions leave the bank's vectors alone
    found = planned(other, run)
    changed = {name for name, row in found.items() if row.state != "fresh"}
    assert changed == {"planners", "evaluation", "report"}
    assert [completed(recipe(name)).is_closed for name in (first, second)] == [False, True]
