"""Kill worker, server or PostgreSQL of the running stack in the middle of a run, and recover as documented.

Every kill disturbs a full pipeline into a root of its own. What ended starts again, as `restart: unless-stopped` does
it; where the run crashed, the deployment is run again. Then nothing may be lost, done twice or left behind, and every
artifact must have the bytes of an undisturbed run.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from compose_server import ask, told
from stack_processes import CHECKOUT, PATIENCE, Stack, artifact_bytes

RUN_S = 600.0 * PATIENCE
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Client:
    """A user with the login: the API, and the `prefect` command in the checkout."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.ground = stack, stack.ground
        worker = stack.environment("deployer")
        self.environment = {k: v for k, v in worker.items() if k != "PREFECT_PLUGINS_ENABLED"}

    def api(self, path: str, body: object = None, method: str = "") -> Any:
        return told(self.ground.url, path, body, self.ground.login, method)

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "prefect"), *arguments]
        return subprocess.run(
            command, cwd=CHECKOUT, env=self.environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow, newest first."""
        body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC"}
        return list(self.api("/flow_runs/filter", body))

    def reached(self, run_id: str, *states: str) -> dict[str, Any]:
        limit = time.monotonic() + RUN_S
        while True:
            run = dict(self.api(f"/flow_runs/{run_id}"))
            if run["state"]["type"] in states:
                return run
            assert time.monotonic() < limit, f"{run['name']}: {run['state']}\n{self.stack.tail('worker-no-gpu')}"
            time.sleep(1.0)

    def task_states(self, run_id: str) -> dict[str, str]:
        tasks = self.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
        return {task["name"]: task["state"]["name"] for task in tasks}

    def run_deployment(self, name: str, **parameters: object) -> str:
        deployment = self.api(f"/deployments/name/{name}/{name}")
        return str(self.api(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})["id"])


SERVICE = {"worker": "worker-no-gpu", "server": "server", "database": "database"}
"""Victims, in turn."""
CONFIG = {"alignment": {"train": {"epochs": 10}}, "predictor": {"train": {"epochs": 20}}}
"""Longer trainings than `soak` has, so that kills meet them."""
POOL = "trajpilot-gpu"
CRASHED_S = 300.0 * PATIENCE


class Kill(NamedTuple):
    line: str
    crashed_s: float | None
    """From the kill to the mark; None: the run went on."""
    faults: list[str]


def committed(root: Path) -> dict[str, int]:
    """Completion markers of stages and shards below a root, and when each was written."""
    found = (path for name in ("manifest.json", "record.json") for path in root.glob(f"artifacts/**/{name}"))
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in found}


def faults(root: Path, before: dict[str, int], wanted: dict[str, bytes]) -> list[str]:
    """Say what a recovery did that it should not; `before` is what was finished at the kill."""
    now, made = committed(root), artifact_bytes(root)
    again = [f"{name} was finished and is written again" for name in before if now.get(name) != before[name]]
    names = sorted(made.keys() | wanted.keys())
    return again + [f"{name} is not as it was to be" for name in names if made.get(name) != wanted.get(name)]


class Killer:
    def __init__(self, stack: Stack, client: Client) -> None:
        self.stack, self.client = stack, client
        client.prefect("work-pool", "set-concurrency-limit", POOL, "1")
        root = stack.ground.folder / "artifacts" / "undisturbed"
        run = client.reached(client.run_deployment("full-pipeline", **self.stated(root)), *FINAL)
        assert run["state"]["type"] == "COMPLETED", run["state"]
        self.wanted, self.span_s = artifact_bytes(root), run["total_run_time"]

    def stated(self, root: Path) -> dict[str, Any]:
        return {"config": CONFIG, "run": {"root": str(root), "checkpoint_s": 0}}

    def kill(self, number: int) -> Kill:
        """Disturb one run, recover, and compare; the victims take turns, the moment lies anywhere in the run."""
        root = self.stack.ground.folder / "artifacts" / f"kill-{number:02d}"
        victim, at_s = list(SERVICE)[number % 3], random.Random(f"0-{number}").uniform(0.0, self.span_s)
        run_id = self.client.run_deployment("full-pipeline", **self.stated(root))
        self.client.reached(run_id, "RUNNING", *FINAL)  # before, a run has no worker that it could lose
        time.sleep(at_s)
        running = [name for name, now in self.client.task_states(run_id).items() if now == "Running"]
        self.stack.kill(SERVICE[victim])
        killed, before = time.monotonic(), committed(root)
        self.stack.until_healthy()
        first = self.ended(run_id)
        marked = None if first["state"]["type"] == "COMPLETED" else time.monotonic() - killed
        if marked is not None:
            self.again(root, run_id)
        found = faults(root, before, self.wanted) + self.left_behind(root)
        end = "went on" if marked is None else f"marked after {marked:.0f} s and run again"
        line = f"kill {number} of the {victim} at {at_s:.1f} s in {running or 'no stage'}: {end}"
        return Kill(f"{line}; recovered after {time.monotonic() - killed:.0f} s", marked, found)

    def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until a disturbed run has ended or is marked; what ends meanwhile starts again."""
        limit = time.monotonic() + CRASHED_S
        while True:
            self.stack.revive()
            ground = self.stack.ground
            answer = ask(ground.url, "GET", f"/api/flow_runs/{run_id}", ground.login)  # the server may be away
            if answer.status == 200 and (run := json.loads(answer.body))["state"]["type"] in FINAL:
                return dict(run)
            assert time.monotonic() < limit, f"neither ended nor marked within {CRASHED_S:.0f} s: {answer}"
            time.sleep(1.0)

    def again(self, root: Path, before: str) -> None:
        stated = json.dumps(self.stated(root))
        done = self.client.prefect("deployment", "run", "full-pipeline", "--watch", "--params", stated)
        run = self.client.runs("full-pipeline")[0]
        assert run["id"] != before, done.stdout + done.stderr
        assert run["state"]["type"] == "COMPLETED", f"{run['state']}\n{done.stdout}{done.stderr}"

    def left_behind(self, root: Path) -> list[str]:
        """Say which runs and slots are left, and whether something was run more often than needed."""
        open_ = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}}}
        found = [
            f"run {run['name']} stays {run['state']['name']}" for run in self.client.api("/flow_runs/filter", open_)
        ]
        tasks = self.client.api("/task_runs/filter", {"task_runs": {"state": {"type": {"any_": ["RUNNING"]}}}})
        found += [f"task {task['name']} stays Running" for task in tasks]
        slots = self.client.api(f"/work_pools/{POOL}").get("active_slots")
        found += [f"{slots} slots of {POOL} stay taken"] if slots else []
        limits = self.client.api("/v2/concurrency_limits/filter", {})
        found += [f"limit {one['name']} stays taken" for one in limits if one["active_slots"]]
        stated = [(run["parameters"].get("run", {}), run) for run in self.client.runs("full-pipeline")]
        mine = [run for parameters, run in stated if parameters.get("root") == str(root)]
        completed = sum(run["state"]["type"] == "COMPLETED" for run in mine)
        return found + ([f"{completed} runs completed"] if completed != 1 else [])
