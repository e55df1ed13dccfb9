"""Deploy everything to a Prefect server: work pools, deployments, and the automations that handle dead workers."""

import json
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from prefect.automations import AutomationCore, EventTrigger, Posture
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

from deployments.declared import prefect_file
from deployments.recipes import recipe
from deployments.settings import CHECKOUT, POOLS, SILENT_S, UNSTARTED_S, deploying_environment
from trajpilot_core.errors import InputError

CRASHED = "TrajPilot: mark runs of dead workers as crashed"
UNSTARTED = "TrajPilot: mark runs that a worker took and never started as crashed"
TAKEN = {
    "prefect.flow-run.Pending",
    "prefect.flow-run.Submitting",
    "prefect.flow-run.InfrastructurePending",
    "prefect.flow-run.pull-step.executed",
}
"""Events of a run between a worker's claim and its first heartbeat; each must restart the clock, because each is also
an event that the previous automation was waiting for."""


def deploy(place: dict[str, str]) -> None:
    """Create or update the work pools, the deployments (`place`: their defaults) and the automations; safe to repeat.

    Raises InputError: Prefect rejected the deployments.
    """
    with get_client(sync_client=True) as client:
        for pool in POOLS:
            make_pool(client, pool)
        environment = deploying_environment(place)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "prefect.yaml"
            file.write_text(json.dumps(prefect_file(recipe(place["recipe"])), indent=1), encoding="utf-8")
            words = ("--no-prompt", "deploy", "--all", "--prefect-file", str(file))
            command = [sys.executable, "-m", "deployments.declared", *words]
            done = subprocess.run(command, cwd=CHECKOUT, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            raise InputError(f"Prefect rejected the deployments:\n{done.stdout}{done.stderr}")
        for wanted in crash_automations():  # created or updated; a paused one stays paused
            present = client.read_automations_by_name(wanted.name)
            if not present:
                client.create_automation(wanted)
                continue
            fields = {**wanted.model_dump(exclude={"owner_resource"}), "enabled": present[0].enabled}
            client.update_automation(present[0].id, AutomationCore.model_validate(fields))  # PUT needs every field


def make_pool(client: SyncPrefectClient, name: str) -> None:
    """Create a work pool whose runs are processes of its workers; a pool that exists is left as the user set it."""
    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))


def crash_automations() -> list[AutomationCore]:
    """Return the automations that mark a run as crashed when it has sent no heartbeat for too long."""
    silent = f"No heartbeat for {SILENT_S} s: the worker or its machine died. Run it again; finished work is kept."
    unstarted = f"Claimed by a worker, but not started within {UNSTARTED_S} s: the worker died. Run it again."
    return [
        crash_automation(CRASHED, {"prefect.flow-run.heartbeat"}, SILENT_S, silent),
        crash_automation(UNSTARTED, TAKEN, UNSTARTED_S, unstarted),
    ]


def crash_automation(name: str, after: set[str], within_s: int, message: str) -> AutomationCore:
    """Return the automation that marks a run as crashed if no event follows within `within_s` of one of `after`."""
    trigger = EventTrigger(
        after=after,
        expect={"prefect.flow-run.*"},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=within_s),
    )
    action = ChangeFlowRunState(state=StateType.CRASHED, message=message)
    return AutomationCore(name=name, description=message, trigger=trigger, actions=[action])
