"""The shell of a group of shards: a run of its own, on whatever worker claims it."""

from typing import cast

from prefect import State, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed

from schemas.config import PipelineConfig, RunOptions
from schemas.groups import ShardGroup
from tasks.artifacts import StageProgress, log_line
from tasks.stage import RETRY_DELAYS_S, can_heal
from trajpilot_core.engine.execution.groups import compute_group
from trajpilot_core.runtime import compiling
from trajpilot_core.stages import EVERY_STAGE


@task(
    task_run_name="{group.stage}",
    retries=len(RETRY_DELAYS_S),
    retry_delay_seconds=RETRY_DELAYS_S,
    retry_condition_fn=can_heal,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def run_group(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> State[str]:
    """Compute the shards of a group that are missing; the run that started the group folds them into one manifest."""
    with StageProgress(group.stage) as progress, compiling(run.compile_models):
        outcome = compute_group(config, run, EVERY_STAGE, group, progress)
    log_line(group.stage, outcome.message(), outcome.seconds)
    name = "Completed" if outcome.computed else "Cached"
    return Completed(name=name, message=outcome.message(), data=outcome.message())


def group_output(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> str:
    """Compute a group as a task of the present flow and return its counts in words; its error is raised."""
    state = cast(State[str], run_group(config, run, group, return_state=True))
    return state.result()
