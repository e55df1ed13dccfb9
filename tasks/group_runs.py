"""Deployed runs: groups of shards, started and followed by the parent run; the tasks that crashed runs have left."""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from schemas.artifacts import ShardGroup
from schemas.base import Record, fingerprint
from schemas.config import PipelineConfig, RunOptions
from tasks.artifacts import shown
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError

PAGE = 200
"""Maximum number of runs in one answer of the server."""
OPEN = [StateType.SCHEDULED, StateType.PENDING]
LOG = logging.getLogger("trajpilot")
OURS = "trajpilot"
"""Tag of every deployment in deployments/prefect.yaml; runs of other projects are left alone."""


@dataclass(frozen=True)
class Seen:
    """State of a group's run at one time."""

    stage: Literal["waiting", "claimed", "running", "ended"]
    name: str
    """Name of its Prefect state."""
    message: str = ""
    where: str = ""
    """Machine and process."""
    seconds: float = 0.0


def group_deployment(stage: AnyStage, config: Record) -> str:
    """Return the name of the deployment for groups of a stage, in the pool that fits its settings."""
    wanted = stage.on_gpu(config)
    return next(name for name, on_gpu in group_deployments(stage).items() if on_gpu == wanted)


def group_deployments(stage: AnyStage) -> dict[str, bool]:
    """Return the deployments for groups of a stage -> whether they are for the pool with GPUs.

    A stage whose settings decide whether a model runs has one per pool; one that cannot be shared out has none.
    """
    if not stage.is_shared_out:
        return {}
    name = stage.name.replace("_", "-")
    if callable(stage.uses_gpu):
        return {f"{name}-group": False, f"{name}-gpu-group": True}
    return {f"{name}-group": stage.uses_gpu}


@dataclass
class DeployedRuns:
    """Groups as deployed runs, sub-flows of the present run."""

    client: SyncPrefectClient
    stage: str
    name: str
    """Name of the deployment (`group_deployment`)."""
    config: PipelineConfig
    run: RunOptions
    """From `handed`."""

    def __post_init__(self) -> None:
        self.once = secrets.token_hex(8)
        self.tag = f"group:{self.stage}:{fingerprint(self.run.root)[:12]}"

    def start(self, group: ShardGroup, attempt: int) -> UUID:
        """Start the run of a group; a repeated call for the same attempt starts nothing.

        Raises:
            InputError: the deployment does not exist.
        """
        parameters = {
            "config": self.config.model_dump(mode="json"),
            "run": self.run.model_dump(mode="json"),
            "group": group.model_dump(mode="json"),
        }
        name = group.label() + (f" · attempt {attempt}" if attempt > 1 else "")
        key = f"{self.once}-{group.number}-{attempt}"
        try:
            started = run_deployment(
                f"{self.name}/{self.name}",
                parameters=parameters,
                timeout=0,
                flow_run_name=name,
                tags=[OURS, self.tag],
                idempotency_key=key,
            )
        except ObjectNotFound as error:
            raise InputError(
                f"there is no deployment {self.name} to share {self.stage} out; run `trajpilot deploy` again, "
                "or leave group_video_s empty"
            ) from error
        return cast(FlowRun, started).id

    def look(self, ids: Sequence[UUID]) -> dict[UUID, Seen]:
        """Read the states of runs, page by page; deleted ones are missing."""
        states: dict[UUID, Seen] = {}
        for at in range(0, len(ids), PAGE):
            chosen = FlowRunFilter(id=FlowRunFilterId(any_=list(ids[at : at + PAGE])))
            states |= {r.id: seen(r) for r in self.client.read_flow_runs(flow_run_filter=chosen, limit=PAGE)}
        return states

    def take_back(self, run_id: UUID) -> bool:
        """Cancel a run that no worker has begun; False where one has.

        If one begins at the same moment, its work is done twice, harmlessly.
        """
        try:
            state = self.client.read_flow_run(run_id).state
        except ObjectNotFound:
            return True
        if state is None or state.type not in OPEN:
            return False
        self.cancel(run_id, "not needed: the parent run computes it itself, or has ended")
        return True

    def clear(self) -> None:
        """Cancel runs that a crashed parent run left waiting under the same tag."""
        waiting = FlowRunFilter(
            tags=FlowRunFilterTags(all_=[self.tag]),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=OPEN)),
        )
        while left := self.client.read_flow_runs(flow_run_filter=waiting, limit=PAGE):
            for run in left:
                self.cancel(run.id, "the parent run has ended", force=True)

    def cancel(self, run_id: UUID, why: str, *, force: bool = False) -> None:
        """Mark a run as cancelled."""
        state: State[None] = Cancelled(message=why)
        self.client.set_flow_run_state(run_id, state, force=force)


def seen(run: FlowRun) -> Seen:
    """Return the state of a Prefect run."""
    state = run.state
    if state is None:
        return Seen("waiting", "Scheduled")
    place, seconds = run.infrastructure_pid or "", run.total_run_time.total_seconds()
    if state.is_final():
        return Seen("ended", state.name or state.type.value, state.message or "", place, seconds)
    if state.type is StateType.SCHEDULED:
        return Seen("waiting", state.name or "Scheduled")
    if state.type is StateType.PENDING:
        return Seen("claimed", state.name or "Pending", "", place)
    return Seen("running", state.name or state.type.value, "", place, seconds)


def mark_tasks_of_crashed_runs() -> None:
    """Mark running tasks of crashed runs as crashed: Prefect leaves them. Skipped while the server is unreachable."""
    n_marked = shown("the state of crashed tasks", mark_left_tasks)
    if n_marked:
        LOG.info("marked %d tasks of crashed runs as crashed", n_marked)


def mark_left_tasks() -> int:
    """Mark these tasks and return their number."""
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
