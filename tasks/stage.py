"""Tasks of a stage and of a group of its shards: check the store, compute what is missing, report the counts."""

from collections.abc import Sequence
from typing import Any, cast

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as StateObject
from prefect.client.schemas.objects import TaskRun
from prefect.states import Completed
from prefect.utilities.annotations import opaque, quote

from schemas.artifacts import ArtifactRef, ShardGroup
from schemas.config import PipelineConfig, RunOptions
from tasks.artifacts import StageProgress, is_shown, log_line, picture_key, publish_outcome, publish_picture
from tasks.fan_out import fan_out
from tasks.tracking import track
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.execution.groups import compute_group
from trajpilot_core.report.committed import committed_under
from trajpilot_core.runtime import compiling
from trajpilot_core.stages import EVERY_STAGE

RETRY_DELAYS_S: list[float] = [10.0, 60.0]
NOT_RUN = "NotReady"
"""Prefect's name for the state of a task that does not run because a task before it failed."""


def can_heal(task_: Task[..., object], run: TaskRun, state: StateObject) -> bool:
    """Retry errors that may pass (a disk, a network share, a store); an error in data or code would recur."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError)


RETRIED: dict[str, Any] = {
    "retries": len(RETRY_DELAYS_S),
    "retry_delay_seconds": RETRY_DELAYS_S,
    "retry_condition_fn": can_heal,
    "cache_policy": NO_CACHE,
}
"""Options of both tasks."""


@task(task_run_name="{name}", persist_result=False, **RETRIED)
def run_stage(name: str, config: PipelineConfig, run: RunOptions) -> State[ArtifactRef]:
    """Run one declared stage; the store's manifests decide what is fresh, and a retry re-enters there."""
    with StageProgress(name) as progress, compiling(run.compile_models):
        outcome = execute(EVERY_STAGE[name], config, run, EVERY_STAGE, progress, fan_out(config, run, progress))
        progress.ended = f"nothing to do; {outcome.message()}" if outcome.cached else outcome.message()
    publish_outcome(name, outcome)
    if not outcome.cached:
        track(outcome.ref, run)
    show_pictures(outcome.ref, config, run)
    state_name = "Cached" if outcome.cached else "Completed"
    return Completed(name=state_name, message=outcome.message(), data=outcome.ref)


@task(task_run_name="{group.stage}", persist_result=False, **RETRIED)
def run_group(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> State[str]:
    """Compute the shards of a group that are missing; the run that started the group folds them into one manifest."""
    with StageProgress(group.stage) as progress, compiling(run.compile_models):
        outcome = compute_group(config, run, EVERY_STAGE, group, progress)
    log_line(group.stage, outcome.message(), outcome.seconds)
    name = "Completed" if outcome.computed else "Cached"
    return Completed(name=name, message=outcome.message(), data=outcome.message())


def show_pictures(made: ArtifactRef, config: PipelineConfig, run: RunOptions) -> None:
    """Draw what a stage committed, unless the UI has the picture of just that content."""
    # Imported here because it loads torch, which registering a deployment does not need.
    from trajpilot_core.report.figures import figures_of
    from trajpilot_core.report.ui.gallery import draw

    frames = "" if config.report.frames else ", without frames"
    mark = f"{made.fingerprint[:12]}{frames}"
    for figure in figures_of(made.stage):
        if not is_shown(picture_key(made.stage, figure.name), mark):
            publish_picture(made.stage, draw(made.stage, figure, committed_under(config, run)), mark)


def stage_state(
    name: str, config: PipelineConfig, run: RunOptions, read: Sequence[State[ArtifactRef]] = ()
) -> State[ArtifactRef]:
    """Run a stage as a task of the present flow.

    Args:
        name: the stage.
        config: what is computed.
        run: where and how.
        read: final states of the stages that it reads: the arrows of the UI. If one of them failed, the task does not
            run, and its state is called `NOT_RUN`.
    """
    # Prefect also draws an arrow where a task receives an object from another's result, and equal strings are often one
    # object: so it must inspect neither the settings nor the results of earlier stages.
    settings = cast(PipelineConfig, quote(config)), cast(RunOptions, quote(run))
    before = [opaque(state) for state in read]
    return cast(State[ArtifactRef], run_stage(name, *settings, return_state=True, wait_for=before))


def stage_output(name: str, config: PipelineConfig, run: RunOptions) -> ArtifactRef:
    """Run a stage as a task of the present flow and hand on the reference to what it wrote; its error is raised."""
    return stage_state(name, config, run).result()


def group_output(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> str:
    """Compute a group as a task of the present flow and return its counts in words; its error is raised."""
    return cast(State[str], run_group(config, run, group, return_state=True)).result()
