"""A user of the running stack: the API with the login, and the `prefect` command in the checkout."""

import base64
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stack_processes import CHECKOUT, PATIENCE, Stack

RUN_S = 600.0 * PATIENCE
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Client:
    """A user with the login: the API, and the `prefect` command in the checkout."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.ground = stack, stack.ground
        worker = stack.environment("deployer")
        self.environment = {k: v for k, v in worker.items() if k != "PREFECT_PLUGINS_ENABLED"}

    def api(self, path: str, body: object = None, method: str | None = None) -> Any:
        token = base64.b64encode(self.ground.login.encode()).decode()
        request = urllib.request.Request(
            f"{self.ground.url}/api{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Basic {token}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60 * PATIENCE) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "prefect"), *arguments]
        return subprocess.run(
            command, cwd=CHECKOUT, env=self.environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow, newest first."""
        body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC"}
        return list(self.api("/flow_runs/filter", body))

    def finished(self, run_id: str, limit_s: float = RUN_S) -> dict[str, Any]:
        return self.until(lambda run: run["state"]["type"] in FINAL, run_id, limit_s)

    def until(self, enough: Callable[[dict[str, Any]], bool], run_id: str, limit_s: float) -> dict[str, Any]:
        limit = time.monotonic() + limit_s
        while True:
            run = dict(self.api(f"/flow_runs/{run_id}"))
            if enough(run):
                return run
            assert time.monotonic() < limit, f"{run['name']}: {run['state']}\n{self.stack.tail('worker-no-gpu')}"
            time.sleep(1.0)

    def task_states(self, run_id: str) -> dict[str, str]:
        tasks = self.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
        return {task["name"]: task["state"]["name"] for task in tasks}

    def run_deployment(self, name: str, **parameters: object) -> str:
        deployment = self.api(f"/deployments/name/{name}/{name}")
        return str(self.api(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})["id"])
