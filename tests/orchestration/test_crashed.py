"""What a dead worker leaves: runs that it never started and tasks of crashed runs are marked, and nothing else."""

import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from compose_server import LOGIN, Served, told
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Running
from stack_processes import wait_for

from deployments.deploy import TAKEN, crash_automation
from tasks.crashed import OURS, mark_left_tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WITHIN_S = 40
"""On a loaded machine the server may hear of an event ten seconds late; both runs have to be told in time."""
LIMIT_S = 150.0
PENDING = "prefect.flow-run.Pending"
PULLED = "prefect.flow-run.pull-step.executed"


def taken_and_pulled(served: Served, *after: set[str]) -> list[str]:
    """Make a run under each automation; their workers take them, pull the code and die."""
    flow, runs = told(served.url, "/flows/", {"name": "unstarted"}), []
    for events in after:
        run = told(served.url, "/flow_runs/", {"flow_id": flow["id"], "state": {"type": "SCHEDULED"}})
        body = crash_automation(f"short {run['id']}", events, WITHIN_S, "never started").model_dump(mode="json")
        body["trigger"]["match"] = {"prefect.resource.id": f"prefect.flow-run.{run['id']}"}
        body.pop("owner_resource", None)
        told(served.url, "/automations/", body)
        runs.append(str(run["id"]))
    time.sleep(3.0)
    for run_id in runs:
        told(served.url, f"/flow_runs/{run_id}/set_state", {"state": {"type": "PENDING"}})
    for run_id in runs:
        heard = {"event": {"name": [PENDING]}, "any_resource": {"id": [f"prefect.flow-run.{run_id}"]}}
        wait_for(lambda asked=heard: told(served.url, "/events/filter", {"filter": asked})["total"] > 0)  # type: ignore[misc]
    time.sleep(1.0)
    for run_id in runs:
        event = {"id": str(uuid4()), "occurred": datetime.now(UTC).isoformat(), "event": PULLED}
        told(served.url, "/events", [{**event, "resource": {"prefect.resource.id": f"prefect.flow-run.{run_id}"}}])
    return runs


def state_of(served: Served, run_id: str) -> str:
    return str(told(served.url, f"/flow_runs/{run_id}")["state"]["type"])


def test_a_run_whose_worker_died_after_the_pull_step_is_marked_and_without_that_event_it_would_not_be(
    served: Served,
) -> None:
    forgotten, marked = taken_and_pulled(served, TAKEN - {PULLED}, TAKEN)
    wait_for(lambda: state_of(served, marked) == "CRASHED", LIMIT_S)
    assert state_of(served, forgotten) == "PENDING"


@flow(name="left")
def left() -> None:
    """Never run."""


@task(name="stage")
def stage() -> None:
    """Never run."""


def started(client: SyncPrefectClient, *tags: str) -> tuple[object, object]:
    """A run with one running task."""
    run = client.create_flow_run(left, state=Running(), tags=tags)
    return run.id, client.create_task_run(stage, run.id, dynamic_key="0", state=Running()).id


def test_tasks_of_crashed_runs_are_marked_and_those_of_a_living_run_are_not(served: Served) -> None:
    at = {PREFECT_API_URL: f"{served.url}/api", PREFECT_API_AUTH_STRING: LOGIN}
    with temporary_settings(at), get_client(sync_client=True) as client:
        (dead, dead_task), (_, living_task) = started(client, OURS), started(client, OURS)
        foreign, foreign_task = started(client)
        assert mark_left_tasks() == 0
        for run_id in (dead, foreign):
            client.set_flow_run_state(run_id, Crashed(), force=True)
        assert mark_left_tasks() == 1
        names = [client.read_task_run(id_).state_name for id_ in (dead_task, living_task, foreign_task)]
    assert names == ["Crashed", "Running", "Running"]
