"""The automation for runs that a worker took and never started, on a real server with its clock set short."""

import json
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from compose_server import LOGIN, Served, ask

from deployments.deploy import TAKEN, crash_automation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WITHIN_S = 20
"""On a loaded machine the server may hear of an event ten seconds late; both runs have to be told in time."""
LIMIT_S = 150.0
PULLED = "prefect.flow-run.pull-step.executed"


def told(served: Served, method: str, path: str, body: object = None) -> Any:
    answer = ask(served.url, method, f"/api{path}", LOGIN, body)
    assert answer.status < 300, answer.body
    return json.loads(answer.body) if answer.body else None


def taken_and_pulled(served: Served, after: set[str]) -> str:
    """Make a run under an automation of its own; its worker takes it, pulls the code and dies."""
    flow = told(served, "POST", "/flows/", {"name": "unstarted"})
    run_id = str(told(served, "POST", "/flow_runs/", {"flow_id": flow["id"], "state": {"type": "SCHEDULED"}})["id"])
    body = crash_automation(f"short {run_id}", after, WITHIN_S, "never started").model_dump(mode="json")
    body["trigger"]["match"] = {"prefect.resource.id": f"prefect.flow-run.{run_id}"}
    body.pop("owner_resource", None)
    told(served, "POST", "/automations/", body)
    time.sleep(3.0)
    told(served, "POST", f"/flow_runs/{run_id}/set_state", {"state": {"type": "PENDING"}})
    time.sleep(2.0)
    event = {
        "id": str(uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": PULLED,
        "resource": {"prefect.resource.id": f"prefect.flow-run.{run_id}"},
    }
    told(served, "POST", "/events", [event])
    return run_id


def state_of(served: Served, run_id: str) -> str:
    return str(told(served, "GET", f"/flow_runs/{run_id}")["state"]["type"])


def test_a_run_whose_worker_died_after_the_pull_step_is_marked_and_without_that_event_it_would_not_be(
    served: Served,
) -> None:
    forgotten = taken_and_pulled(served, TAKEN - {PULLED})
    marked = taken_and_pulled(served, TAKEN)
    limit = time.monotonic() + LIMIT_S
    while state_of(served, marked) != "CRASHED":
        assert time.monotonic() < limit, "the automation did not fire"
        time.sleep(1.0)
    assert state_of(served, forgotten) == "PENDING"
