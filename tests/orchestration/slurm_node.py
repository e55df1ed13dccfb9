"""A Slurm of one node as processes of our own, from Debian's packages; no service of the machine is touched."""

import os
import platform
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from stack_processes import free_port, wait_for

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


def missing() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program) is None]


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
