"""Deploy everything to a Prefect server: work pools, deployments, and the automation against dead workers."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Literal

from prefect.automations import AutomationCore, EventTrigger, Posture
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState

from deployments.settings import SILENT_S, deploying_environment
from trajpilot_core.errors import InputError

CHECKOUT = Path(__file__).parents[1]
POOLS = ("trajpilot-cpu", "trajpilot-gpu")
TEMPLATES = Path(__file__).parent / "pools"
PoolKind = Literal["process", "docker", "kubernetes"]
CRASHED = "TrajPilot: mark runs of dead workers as crashed"


def deploy(place: dict[str, str], kind: PoolKind) -> None:
    """Make or update the work pools, every deployment and the automation; running it again changes nothing else.

    Args:
        place: defaults of the deployments, keys `data_root`, `root`, `recipe`.
        kind: what runs a flow: a process of the worker, a container, or a Kubernetes job.

    Raises:
        InputError: Prefect refused the deployments.
    """
    with get_client(sync_client=True) as client:
        for pool in POOLS:
            make_pool(client, pool, kind)
        declare(place)
        install_crash_automation(client)


def make_pool(client: SyncPrefectClient, name: str, kind: PoolKind) -> None:
    """Make a work pool, or bring it up to date."""
    pool = WorkPoolCreate(name=name, type=kind)
    if kind != "process":
        template = json.loads((TEMPLATES / f"{kind}-{name.removeprefix('trajpilot-')}.json").read_text())
        pool = WorkPoolCreate(name=name, type=kind, base_job_template=template)
    client.create_work_pool(pool, overwrite=True)


def declare(place: dict[str, str]) -> None:
    """Apply deployments/prefect.yaml with Prefect's own command."""
    file = ["--prefect-file", "deployments/prefect.yaml"]
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", *file]
    environment = deploying_environment(CHECKOUT, place)
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"Prefect refused the deployments:\n{done.stdout}{done.stderr}")


def crash_automation() -> AutomationCore:
    """Return the automation: a run that gave no sign of life for `SILENT_S` is marked as crashed."""
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.*"},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},  # type: ignore[arg-type]
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=SILENT_S),
    )
    message = (
        f"No sign of life for {SILENT_S} s: the worker or its machine died. Run it again; what is finished is kept."
    )
    action = ChangeFlowRunState(state=StateType.CRASHED, message=message)
    return AutomationCore(name=CRASHED, description=message, trigger=trigger, actions=[action])


def install_crash_automation(client: SyncPrefectClient) -> None:
    """Install the automation once, or bring it up to date."""
    wanted = crash_automation()
    present = client.read_automations_by_name(CRASHED)
    if present:
        client.update_automation(present[0].id, wanted)
    else:
        client.create_automation(wanted)
