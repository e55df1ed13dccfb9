"""An array of pilot workers as a Slurm job: its script, and handing it in. Reasons: docs/decisions/slurm.md."""

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from deployments.settings import CHECKOUT
from trajpilot_core.command_line import command
from trajpilot_core.errors import InputError

WARNED_S = 120
"""Before its time is up, a job is told so."""
SCRIPT = "pilots.sbatch"
OWN = ("--array", "--output", "--error", "--requeue", "--no-requeue", "--signal", "--open-mode", "--wrap")
"""Options of sbatch that the script states itself."""


@dataclass(frozen=True)
class PilotArray:
    """What is asked of Slurm."""

    workers: int
    pool: str
    gpus: int
    """For each worker."""
    cpus: int
    """For each worker."""
    time: str
    """Longest life of a job, as Slurm writes it; a job that still has work goes back into the queue."""
    idle_s: int
    """Seconds without a run after which a worker ends."""
    logs: Path
    """Absolute; on a file system that this machine and the nodes share."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, such as --partition=gpu."""

    def script(self) -> str:
        """Return the job script: directives, then the pilot in the shell's place, so that signals reach it.

        Raises:
            InputError: an option is one that the script needs for itself, or no option.
        """
        for option in self.options:
            if not re.fullmatch(r"--?[A-Za-z][^\n]*", option):
                raise InputError(f"--sbatch {option!r} is no option of sbatch; write it like --sbatch=--partition=gpu")
            if option.split("=")[0].split()[0] in OWN:
                raise InputError(f"--sbatch {option!r} is stated by the script itself; leave it out")
        directives = (
            "--job-name=trajpilot",
            f"--array=0-{self.workers - 1}",
            "--ntasks=1",
            f"--cpus-per-task={self.cpus}",
            *([f"--gres=gpu:{self.gpus}"] if self.gpus else []),
            f"--time={self.time}",
            "--requeue",
            "--open-mode=append",
            f"--signal=B:USR1@{WARNED_S}",
            f"--output={self.logs}/%A_%a.log",
            *self.options,
        )
        program = command("pilot", "--pool", self.pool, "--idle-s", str(self.idle_s), "--logs", str(self.logs))
        lines = ["#!/bin/bash", *(f"#SBATCH {one}" for one in directives), f"cd {shlex.quote(str(CHECKOUT))} || exit 1"]
        return "\n".join([*lines, f"exec {program}", ""])


def submit(array: PilotArray) -> tuple[str, Path]:
    """Write the script below the folder of the logs and hand it in; returns the job's number and the script.

    Raises:
        InputError: this machine has no Slurm, or Slurm refuses the job.
    """
    text = array.script()
    array.logs.mkdir(parents=True, exist_ok=True)
    file = array.logs / SCRIPT
    file.write_text(text, encoding="utf-8")
    try:
        done = subprocess.run(["sbatch", "--parsable", str(file)], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise InputError(
            f"there is no sbatch on this machine; run this where jobs are handed in, or hand in {file} yourself"
        ) from error
    if done.returncode:
        raise InputError(f"Slurm refuses {file}: {done.stderr.strip()}")
    return done.stdout.strip().split(";")[0], file
