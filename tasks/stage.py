"""The shell of every stage: ask the store, compute what is missing, say what was done. Written once."""

from typing import cast

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as StateObject
from prefect.client.schemas.objects import TaskRun
from prefect.states import Completed

from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from tasks.artifacts import StageProgress, is_shown, picture_key, publish_outcome, publish_picture
from tasks.fan_out import fan_out
from trajpilot_core.pictures.gallery import draw, subjects
from trajpilot_core.pictures.look import look_at
from trajpilot_core.pipeline import STAGES
from trajpilot_core.stages.execute import Outcome, execute

RETRY_DELAYS_S: list[float] = [10.0, 60.0]


def can_heal(task_: Task[..., object], run: TaskRun, state: StateObject) -> bool:
    """Retry what time can heal (a disk, a network share, a store); an error in data or code comes again."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError)


def as_state(outcome: Outcome) -> State[ArtifactRef]:
    """Name the state after what happened, Cached or Completed, with the counts as its message."""
    name = "Cached" if outcome.cached else "Completed"
    return Completed(name=name, message=outcome.message(), data=outcome.ref)


@task(
    task_run_name="{name}",
    retries=len(RETRY_DELAYS_S),
    retry_delay_seconds=RETRY_DELAYS_S,
    retry_condition_fn=can_heal,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def run_stage(name: str, config: PipelineConfig, run: RunOptions) -> State[ArtifactRef]:
    """Run one declared stage; the store's manifests decide what is fresh, and a retry re-enters there."""
    with StageProgress(name) as progress:
        outcome = execute(STAGES[name], config, run, STAGES, progress, fan_out(config, run, progress))
        progress.ended = f"nothing to do; {outcome.message()}" if outcome.cached else outcome.message()
    publish_outcome(name, outcome)
    show_pictures(outcome.ref, config, run)
    return as_state(outcome)


def show_pictures(made: ArtifactRef, config: PipelineConfig, run: RunOptions) -> None:
    """Draw what a stage committed, unless the UI has the picture of just that content."""
    frames = "" if config.report.frames else ", without frames"
    mark = f"{made.fingerprint[:12]}{frames}"
    for subject in subjects(made.stage):
        if not is_shown(picture_key(made.stage, subject.name), mark):
            publish_picture(made.stage, draw(made.stage, subject, look_at(config, run)), mark)


def stage_output(name: str, config: PipelineConfig, run: RunOptions) -> ArtifactRef:
    """Run a stage as a task of the present flow and hand on the reference to what it wrote; its error is raised."""
    state = cast(State[ArtifactRef], run_stage(name, config, run, return_state=True))
    return state.result()
