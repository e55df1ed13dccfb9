"""Workers on a real Slurm (worker.sbatch): jobs that are cut off in the middle of a stage go on, with equal bytes.

`make stack-test` runs it. Slurm holds a requeued job back for about two minutes.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import CHECKOUT
from pool_fixture import artifact_bytes
from slurm_node import SlurmNode, missing
from stack_processes import free_port, wait_for

from schemas.world import soak_world
from trajpilot_core.simworld.write import write_world

if lacking := missing():
    pytest.skip(
        f"no Slurm on this machine: {', '.join(lacking)} (Debian: apt-get install slurmctld slurmd slurm-client munge)",
        allow_module_level=True,
    )
if os.geteuid() != 0:
    pytest.skip("the Slurm of this test runs as root", allow_module_level=True)
pytestmark = [pytest.mark.stack, pytest.mark.timeout(1800)]
WHOLE_S = 900.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SlurmNode]:
    made = SlurmNode(tmp_path / "slurm")
    try:
        made.start()
        yield made
    finally:
        made.end()


class Server:
    """A Prefect server with every deployment of the recipe `soak` over a small world."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{free_port()}/api"
        self.environment = {
            **os.environ,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_API_URL": self.url,
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> None:
        """Start it and deploy."""
        port = self.url.split(":")[-1].removesuffix("/api")
        serve = [sys.executable, "-m", "prefect", "server", "start", "--no-ui", "--port", port]
        stated = {name: value for name, value in self.environment.items() if name != "PREFECT_API_URL"}
        with (self.folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(serve, stdout=log, stderr=log, env=stated, start_new_session=True)
        wait_for(self.answers, 120.0)
        write_world(soak_world(), self.folder / "data", 1, lambda done, total, what: None)
        self.trajpilot("deploy", "--data", str(self.folder / "data"), "--root", str(self.folder / "a"), *SOAK)

    def answers(self) -> bool:
        """Return whether it is healthy."""
        try:
            return bool(self.ask("/health"))
        except OSError:
            return False

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask the API."""
        content = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, content, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())

    def state(self) -> str:
        """Return the state of the only run."""
        (run,) = self.ask("/flow_runs/filter", {})
        return str(run["state_name"])

    def trajpilot(self, *words: str, **more: str) -> str:
        """Run our command with the environment of the test."""
        program = [sys.executable, "-c", "from deployments.cli.main import main; main()", *words]
        stated = {**self.environment, **more}
        done = subprocess.run(program, cwd=CHECKOUT, env=stated, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def end(self) -> None:
        """End it."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(timeout=60)


SOAK = ("--recipe", "soak")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.end()


def begun(log: Path, stage: str) -> bool:
    """Return whether a stage is the last one that the worker of a job has begun."""
    text = log.read_text() if log.exists() else ""
    return f"{stage} " in text and " started" in text.split(f"{stage} ")[-1]


def test_jobs_that_are_cut_off_go_on_and_the_bytes_are_equal(node: SlurmNode, server: Server, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    asked = ("--parsable", "--cpus-per-task=2", f"--output={log}", "deployments/slurm/worker.sbatch")
    in_slurm = {**server.environment, "SLURM_CONF": node.environment["SLURM_CONF"]}
    handed = subprocess.run(["sbatch", *asked], cwd=CHECKOUT, env=in_slurm, capture_output=True, text=True, check=True)
    job = handed.stdout.strip()
    prefect = [sys.executable, "-m", "prefect", "deployment", "run", "full-pipeline/full-pipeline"]
    subprocess.run(prefect, env=server.environment, check=True, capture_output=True)
    for stage, cut in (("features", ("scontrol", "requeue")), ("predictor", ("scancel", "--signal=USR1", "--batch"))):
        wait_for(lambda stage=stage: begun(log, stage), WHOLE_S)
        node.say(*cut, job)
        wait_for(lambda: server.state() == "AwaitingRetry", 60.0)
        assert node.say("squeue", "-h").strip(), f"the job was not put back into the queue by {cut}"
    wait_for(lambda: server.state() in ("Completed", "Failed", "Crashed"), WHOLE_S)
    assert server.state() == "Completed"
    said = log.read_text()
    assert "ended by TERM; runs given back: none" not in said
    assert [said.count(f"ended by {number}; runs given back: ") for number in ("TERM", "USR1")] == [1, 1]
    node.say("scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: not node.say("squeue", "-h").strip(), 300.0)
    assert "ended by USR1; runs given back: none" in log.read_text(), "a worker without work must end for good"
    server.trajpilot("run", "--data", str(tmp_path / "data"), "--root", str(tmp_path / "b"), *SOAK, PREFECT_API_URL="")
    cut_off, whole = artifact_bytes(tmp_path / "a"), artifact_bytes(tmp_path / "b")
    assert cut_off.keys() == whole.keys()
    assert [name for name in whole if cut_off[name] != whole[name]] == []
