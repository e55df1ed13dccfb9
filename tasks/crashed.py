"""What a crashed run leaves in the UI: Prefect marks the run, and its tasks stay as if they were running."""

import logging

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.states import Crashed

from tasks.showing import shown

LOG = logging.getLogger("trajpilot")
OURS = "trajpilot"
"""Tag of every deployment of deployments/prefect.yaml; runs of other projects on the server are left alone."""


def mark_tasks_of_crashed_runs() -> None:
    """Mark the tasks that crashed runs left running as crashed; left out while the server is away."""
    n_marked = shown("end of crashed stages", mark_left_tasks)
    if n_marked:
        LOG.info("marked %d tasks of crashed runs as crashed", n_marked)


def mark_left_tasks() -> int:
    """Mark them and return how many there were."""
    crashed = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])),
        tags=FlowRunFilterTags(all_=[OURS]),
    )
    running = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING])))
    with get_client(sync_client=True) as client:
        left = client.read_task_runs(flow_run_filter=crashed, task_run_filter=running)
        for task in left:
            client.set_task_run_state(task.id, Crashed(message="Its run crashed."), force=True)
    return len(left)
