"""Workers on a real Slurm (worker.sbatch): jobs that are cut off in the middle of a stage go on, with equal bytes.

`make stack-test` runs it. Slurm holds a requeued job back for about two minutes.
"""

import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import CHECKOUT
from compose_server import LOGIN, Served, told
from stack_processes import artifact_bytes, free_port, wait_for

from schemas.world import soak_world
from trajpilot_core.simworld.write import write_world

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
CONFIG = """\
ClusterName=pilots
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=20
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 SocketsPerBoard=8 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=2000
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
"""Pids are tracked by their group and nothing is accounted: neither systemd nor a database is needed."""


class SlurmNode:
    """Controller, node and authentication, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        host = platform.node().split(".")[0]
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        ports = {"controller": free_port(), "node": free_port()}
        (self.folder / "slurm.conf").write_text(CONFIG.format(host=host, folder=self.folder, **ports))
        places = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        stated = [f"--{option}={self.folder}/munge.{ending}" for option, ending in places.items()]
        self.run("munged", "--foreground", "--force", *stated)
        wait_for(lambda: (self.folder / "munge.sock").exists())
        self.run("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self.run("slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", host)
        wait_for(lambda: "idle" in self.say("sinfo", "-h", "-o", "%t"))

    def run(self, *command: str) -> None:
        with (self.folder / f"{command[0]}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
            )

    def say(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout

    def end(self) -> None:
        """Cancel every job and end the processes, the node's before the controller's."""
        self.say("scancel", "--user=root")
        wait_for(lambda: not self.say("squeue", "-h").strip(), 40.0)
        for process in reversed(self.processes):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


if lacking := [program for program in PROGRAMS if shutil.which(program) is None]:
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


@pytest.fixture
def environment(served: Served, tmp_path: Path) -> dict[str, str]:
    """Of a user of a server that has every deployment of the recipe `soak` over a small world."""
    at = {"PREFECT_API_URL": f"{served.url}/api", "PREFECT_API_AUTH_STRING": LOGIN, "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **at, "PREFECT_HOME": str(tmp_path / "prefect")}
    write_world(soak_world(), tmp_path / "data", 1, lambda done, total, what: None)
    trajpilot(environment, "deploy", tmp_path, "a")
    return environment


def trajpilot(environment: dict[str, str], command: str, folder: Path, root: str) -> None:
    places = ("--data", str(folder / "data"), "--root", str(folder / root), "--recipe", "soak")
    program = [sys.executable, "-c", "from deployments.cli.main import main; main()", command, *places]
    done = subprocess.run(program, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def state(served: Served) -> str:
    (run,) = told(served.url, "/flow_runs/filter", {"flows": {"name": {"any_": ["full-pipeline"]}}})
    return str(run["state_name"])


def begun(log: Path, stage: str) -> bool:
    text = log.read_text() if log.exists() else ""
    return f"{stage} " in text and " started" in text.split(f"{stage} ")[-1]


def test_jobs_that_are_cut_off_go_on_and_the_bytes_are_equal(
    node: SlurmNode, served: Served, environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "worker.log"
    asked = ("--parsable", "--cpus-per-task=2", f"--output={log}", "deployments/slurm/worker.sbatch")
    in_slurm = {**environment, "SLURM_CONF": node.environment["SLURM_CONF"]}
    handed = subprocess.run(["sbatch", *asked], cwd=CHECKOUT, env=in_slurm, capture_output=True, text=True, check=True)
    job = handed.stdout.strip()
    prefect = [sys.executable, "-m", "prefect", "deployment", "run", "full-pipeline/full-pipeline"]
    subprocess.run(prefect, env=environment, check=True, capture_output=True)
    for stage, cut in (("features", ("scontrol", "requeue")), ("predictor", ("scancel", "--signal=USR1", "--batch"))):
        wait_for(lambda stage=stage: begun(log, stage), WHOLE_S)
        node.say(*cut, job)
        wait_for(lambda: state(served) == "AwaitingRetry", 60.0)
        assert node.say("squeue", "-h").strip(), f"the job was not put back into the queue by {cut}"
    wait_for(lambda: state(served) in ("Completed", "Failed", "Crashed"), WHOLE_S)
    assert state(served) == "Completed"
    said = log.read_text()
    assert "ended by TERM; runs given back: none" not in said
    assert [said.count(f"ended by {number}; runs given back: ") for number in ("TERM", "USR1")] == [1, 1]
    node.say("scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: not node.say("squeue", "-h").strip(), 300.0)
    assert "ended by USR1; runs given back: none" in log.read_text(), "a worker without work must end for good"
    trajpilot({**environment, "PREFECT_API_URL": ""}, "run", tmp_path, "b")
    cut_off, whole = artifact_bytes(tmp_path / "a"), artifact_bytes(tmp_path / "b")
    assert cut_off.keys() == whole.keys()
    assert [name for name in whole if cut_off[name] != whole[name]] == []
