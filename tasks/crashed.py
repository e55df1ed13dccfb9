"""Tasks of crashed runs in the UI: Prefect marks the run as crashed but leaves its tasks running."""

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

from tasks.artifacts import shown

LOG = logging.getLogger("trajpilot")
OURS = "trajpilot"
"""Tag of every deployment in deployments/prefect.yaml; runs of other projects are left alone."""


def mark_tasks_of_crashed_runs() -> None:
    """Mark running tasks of crashed runs as crashed; skipped while the server is unreachable."""
    n_marked = shown("the state of crashed tasks", mark_left_tasks)
    if n_marked:
        LOG.info("marked %d tasks of crashed runs as crashed", n_marked)


def mark_left_tasks() -> int:
    """Mark them and return their number."""
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
