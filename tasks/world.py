"""The simulated world as a task: a corpus on disk in the layout of a data set."""

from pathlib import Path

from prefect import State, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed

from schemas.world import WorldConfig
from tasks.artifacts import StageProgress, log_line
from trajpilot_core.simworld.write import write_world


@task(task_run_name="world", cache_policy=NO_CACHE, persist_result=False)
def simulate_world(world: WorldConfig, folder: str, workers: int) -> State[str]:
    """Write the simulated world, unless it is complete."""
    with StageProgress("world") as progress:
        summary = write_world(world, Path(folder), workers, progress)
    message = f"{summary.n_good} good takes ({summary.n_test} of them test), {summary.n_broken} broken ones; "
    message += f"reused {summary.reused}, written {summary.written}"
    log_line("world", message, progress.seconds)
    state: State[str] = Completed(name="Completed" if summary.written else "Cached", message=message, data=folder)
    return state
