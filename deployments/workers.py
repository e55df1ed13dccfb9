"""The workers of one machine: one process per GPU, some for the CPU pool; restarted on exit, stopped with runs."""

import contextlib
import os
import platform
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deployments.embedded import request
from deployments.settings import CHECKOUT, CPU_POOL, GPU_POOL, WORKER_MARK, worker_environment
from trajpilot_core.errors import InputError

LOOK_S = 1.0
PAUSE_S = 30.0
"""Pause before a worker that exited is restarted."""
END_S = 30.0
"""Seconds that a worker has to end its runs before it is killed."""


@dataclass(frozen=True)
class WorkerPlan:
    """A worker to start."""

    name: str
    pool: str
    limit: int
    """Runs at the same time."""
    gpu: str | None = None
    """The one GPU visible to it, as named in CUDA_VISIBLE_DEVICES; empty: none; None: all of the machine."""

    def describe(self) -> str:
        """Return a description in one phrase."""
        device = f", GPU {self.gpu}" if self.gpu else ", on the CPU" if self.pool == GPU_POOL or self.gpu == "" else ""
        return f"{self.name}: pool {self.pool}, {self.limit} run{'s' * (self.limit > 1)} at a time{device}"

    def command(self) -> list[str]:
        """Return the command that starts it."""
        stated = ["--pool", self.pool, "--name", self.name, "--limit", str(self.limit), "--type", "process"]
        return [sys.executable, "-m", "prefect", "worker", "start", *stated]


def planned(gpus: Sequence[str], gpu_workers: int | None, cpu_workers: int, cpu_limit: int) -> list[WorkerPlan]:
    """Return the workers of this machine.

    Args:
        gpus: names of the GPUs that may be used.
        gpu_workers: workers of the GPU pool; None: one per GPU, or one on the CPU if there is none.
        cpu_workers: workers of the CPU pool.
        cpu_limit: runs that each worker of the CPU pool executes at the same time.

    Raises:
        InputError: more workers than GPUs are requested.
    """
    wanted = max(1, len(gpus)) if gpu_workers is None else gpu_workers
    if gpus and wanted > len(gpus):
        raise InputError(
            f"{wanted} GPU workers are requested, but {len(gpus)} GPUs are visible ({', '.join(gpus)}); "
            "two runs do not share a GPU: request fewer"
        )
    host = platform.node() or "here"
    on_gpu = [WorkerPlan(f"{host}-gpu{gpu}", GPU_POOL, 1, gpu) for gpu in gpus[:wanted]]
    instead = [] if gpus else [WorkerPlan(f"{host}-no-gpu{number}", GPU_POOL, 1) for number in range(wanted)]
    visible = "" if on_gpu else None  # runs of the CPU pool do not use a GPU that has a worker
    on_cpu = [WorkerPlan(f"{host}-cpu{number}", CPU_POOL, cpu_limit, visible) for number in range(cpu_workers)]
    return on_gpu + instead + on_cpu


def refuse_unready(url: str, login: str | None, pools: Sequence[str]) -> None:
    """Check, before workers are started, that the pools of a server are usable.

    Raises:
        InputError: a pool is missing or not of type process.
    """
    for pool in pools:
        answer = request(f"{url}/work_pools/{pool}", login)
        if answer.status == 404:
            raise InputError(f"the server {url} has no work pool {pool}; run `trajpilot deploy` first")
        if answer.status != 200:
            raise InputError(f"the server {url} returns HTTP {answer.status} for the pool {pool}; see its log")
        kind = answer.body.get("type") if isinstance(answer.body, dict) else None
        if kind != "process":
            raise InputError(
                f"work pool {pool} is of type {kind}, and this command starts process workers; "
                f"start a {kind} worker as docs/operations.md describes under Worker pools"
            )


@dataclass
class Kept:
    """One worker and its process."""

    plan: WorkerPlan
    log: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    """In the environment of everything that it starts: Prefect runs each run in its own session."""
    process: subprocess.Popen[bytes] | None = None
    again_s: float = 0.0
    """Time of the next restart, after it exited."""

    def start(self) -> None:
        """Start the worker in its own session, so that Ctrl-C reaches this process first; output to its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.plan.command(),
                cwd=CHECKOUT,
                env=worker_environment(self.plan.gpu, self.mark),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """Send a signal to the worker, its group, and all processes that carry its mark."""
        group = [] if self.process is None else [self.process.pid]
        others = [pid for pid in marked(self.mark) if pid not in group]
        for send, pids in ((os.killpg, group), (os.kill, others)):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    send(pid, number)

    def lives(self) -> bool:
        """Return whether the worker or any process that it started is still running."""
        return (self.process is not None and self.process.poll() is None) or bool(marked(self.mark))

    def kill(self) -> None:
        """Kill what still runs: a run without its worker would occupy a GPU that the next worker uses."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


@dataclass
class Keeper:
    """Restarts workers until it is interrupted."""

    plans: Sequence[WorkerPlan]
    logs: Path
    say: Callable[[str], None]
    kept: list[Kept] = field(default_factory=list)

    def keep(self) -> None:
        """Start all workers and restart those that exit, until an exception such as Ctrl-C; then stop them all."""
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            for plan in self.plans:
                worker = Kept(plan, self.logs / f"{plan.name}.log")
                self.kept.append(worker)
                worker.start()
                self.say(f"{plan.describe()}; log {worker.log}")
            while True:
                time.sleep(LOOK_S)
                for worker in self.kept:
                    if worker.process is None:
                        if time.monotonic() >= worker.again_s:
                            worker.start()
                            self.say(f"{worker.plan.name} restarted")
                    elif (status := worker.process.poll()) is not None:
                        worker.kill()
                        worker.process, worker.again_s = None, time.monotonic() + PAUSE_S
                        then = f"restart in {PAUSE_S:.0f} s; see {worker.log}"
                        self.say(f"{worker.plan.name} exited with status {status}; {then}")
        finally:
            self.end_all()

    def end_all(self) -> None:
        """Stop every worker and what it started, all at the same time: first SIGTERM, then SIGKILL."""
        living = [worker for worker in self.kept if worker.process is not None]
        for worker in living:
            worker.signal(signal.SIGTERM)
        limit_s = time.monotonic() + END_S
        while any([worker.lives() for worker in living]) and time.monotonic() < limit_s:
            time.sleep(0.1)
        for worker in living:
            worker.kill()
        self.say("1 worker stopped" if len(living) == 1 else f"{len(living)} workers stopped")


def marked(mark: str) -> list[int]:
    """Return the ids of the processes that inherited a mark, on systems with /proc."""
    wanted, pids = f"{WORKER_MARK}={mark}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                pids.append(int(place.name))
        except OSError:
            continue
    return pids
