"""Runs of the pipeline in processes that are forked from a warm one, and what is left of them."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import countdown
import planted
from countdown import Countdown

LIMIT_S = 600.0
"""A run that takes longer is ended, and red."""
GONE_S = 30.0
"""Until then every process of a killed run must be gone."""
NAMED, TRACEBACK = 2, 70
"""Exit status of a failure with a name, as the command has it, and of any other."""


@dataclass(frozen=True)
class Ran:
    status: int
    """Exit status; minus the signal where it was killed."""
    seconds: float
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """A row per stage that came through."""
    failure: str = ""
    left: list[str] = field(default_factory=list)
    """Processes that outlived it."""

    def problems(self, what: str) -> list[str]:
        return [] if self.status == 0 else [f"{what} ended with {self.status}: {self.failure}"]


@dataclass(frozen=True)
class Place:
    root: Path
    world: Path
    workers: int = 1


def run_stages(place: Place, until: str, out: IO[str]) -> int:
    """Body of the forked process: the stages in order, a line for each; as `trajpilot run` without Prefect."""
    from deployments.recipes.simulated import soak
    from schemas.config import RunOptions
    from trajpilot_core.engine.execution.execute import execute
    from trajpilot_core.errors import TrajPilotError
    from trajpilot_core.stages import STAGES

    places = {"root": str(place.root), "data_root": str(place.world), "workers": place.workers}
    # a checkpoint after each epoch: by the clock, these trainings of two epochs would leave one in the end only
    options = RunOptions(**places, device="cpu", checkpoint_s=0)
    for stage in STAGES.values():
        os.environ[countdown.STAGE] = stage.name
        try:
            done = execute(stage, soak(), options, STAGES)
        except TrajPilotError as error:
            out.write(json.dumps({"stage": stage.name, "failure": f"{type(error).__name__}: {error}"}) + "\n")
            return NAMED
        counts = {"reused": done.reused, "computed": done.computed, "cached": done.cached}
        out.write(json.dumps({"stage": stage.name, **counts, "seconds": round(done.seconds, 3)}) + "\n")
        out.flush()
        if stage.name == until:
            break
    return 0


def run(
    place: Place,
    plan: Countdown | None,
    *,
    until: str = "",
    plant: str = "",
    reports: Path | None = None,
    first: Callable[[], None] = lambda: None,
) -> Ran:
    """Fork, run the stages up to `until` (all where it is empty) under a countdown, wait for all that it started."""
    report = (reports or place.root.parent) / f"{place.root.name}.outcomes"
    began = time.monotonic()

    def work() -> int:
        for name in ("deployments.recipes", "trajpilot_core.engine.execution.execute"):
            import_module(name)  # before `first`: somebody else may not be able to read the packages
        with report.open("w", encoding="utf-8") as out:
            first()
            return run_stages(place, until, out)

    pid = fork(work, plan, plant, report.with_suffix(".log"))
    status = wait(pid)
    seconds = time.monotonic() - began
    rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    report.unlink(missing_ok=True)
    failure = "".join(row.get("failure", "") for row in rows)
    if status == TRACEBACK:
        failure = report.with_suffix(".log").read_text()[-3000:]
    return Ran(status, seconds, [row for row in rows if "failure" not in row], failure, left_of(pid))


def fork(work: Callable[[], int], plan: Countdown | None, plant: str, log: Path) -> int:
    """Start `work` in a session of its own, output to a file."""
    pid = os.fork()
    if pid:
        return pid
    status = TRACEBACK
    try:
        os.setsid()
        os.environ[planted.VARIABLE] = plant
        os.environ[countdown.PLAN] = json.dumps(asdict(plan)) if plan else ""
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(handle, stream)
        planted.plant()
        countdown.arm()
        status = work()
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(status)


def wait(pid: int) -> int:
    """Wait for a child's end and return its status, minus the signal where one ended it."""
    end = time.monotonic() + LIMIT_S
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)


def left_of(session: int) -> list[str]:
    """Return the processes of a session that do not end by themselves, and end them."""
    return ended(lambda: alive(lambda fields: int(fields[3]) == session))


def ended(living: Callable[[], dict[int, str]]) -> list[str]:
    """Wait for processes to be gone; end those that stay, and return them."""
    end = time.monotonic() + GONE_S
    while (found := living()) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return [f"{pid} {command}" for pid, command in found.items()]


def alive(wanted: Callable[[list[str]], bool]) -> dict[int, str]:
    """Return process id -> command of the processes whose fields of /proc/PID/stat, after the name, are wanted."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if fields[0] not in "ZX" and wanted(fields):
            found[int(entry.name)] = command[:400]
    return found
