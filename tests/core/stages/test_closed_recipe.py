"""The closed vocabulary of atomic descriptions is a readout: nothing is trained again for it."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from deployments.recipes import recipe
from schemas.annotation import CorpusCount
from schemas.arrow import arrow_schema
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.stage import AnyStage, Work
from trajpilot_core.stages import stages_of
from trajpilot_core.stages.report import completed


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
    assert found["scorer"].state == "fresh"


def test_the_recipe_differs_in_what_an_answer_is_and_in_nothing_else() -> None:
    atomic, closed = recipe("atomic"), recipe("atomic_closed")
    assert closed.evaluation == atomic.evaluation.replace(vocabulary="classes")
    ours = ("ingest", "trajectories", "features", "alignment", "predictor", "scorer")
    assert all(getattr(closed, stage) == getattr(atomic, stage) for stage in ours)
    assert completed(closed).is_closed
    assert not completed(atomic).is_closed
