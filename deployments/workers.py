"""The workers of one machine: one process per GPU, some for the CPU pool; kept alive, ended with what they started."""

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

from deployments.server_check import request
from deployments.settings import CHECKOUT, CPU_POOL, GPU_POOL, WORKER_MARK, worker_environment
from trajpilot_core.errors import InputError

LOOK_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""Before a worker that ended is started again: doubled each time."""
STEADY_S = 600.0
"""A worker that lived for so long begins again with the first pause."""
END_S = 30.0
"""What a worker may take to end its runs before it is killed."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class WorkerPlan:
    """One worker to be."""

    name: str
    pool: str
    limit: int
    """Runs at a time."""
    gpu: str | None = None
    """The one GPU that it sees, as CUDA_VISIBLE_DEVICES names it; empty: none; None: whatever the machine has."""

    def describe(self) -> str:
        """Describe it in one phrase."""
        device = f", GPU {self.gpu}" if self.gpu else ", on the CPU" if self.pool == GPU_POOL or self.gpu == "" else ""
        return f"{self.name}: pool {self.pool}, {self.limit} run{'s' * (self.limit > 1)} at a time{device}"

    def command(self) -> list[str]:
        """Return Prefect's own command."""
        stated = ["--pool", self.pool, "--name", self.name, "--limit", str(self.limit), "--type", "process"]
        return [sys.executable, "-m", "prefect", "worker", "start", *stated]


def planned(gpus: Sequence[str], gpu_workers: int | None, cpu_workers: int, cpu_limit: int) -> list[WorkerPlan]:
    """Return the workers of this machine.

    Args:
        gpus: names of the GPUs that may be used.
        gpu_workers: workers of the GPU pool; None: one per GPU, and one on the CPU where there is none.
        cpu_workers: workers of the CPU pool.
        cpu_limit: runs that each of those does at a time.

    Raises:
        InputError: more workers than GPUs are asked for.
    """
    wanted = max(1, len(gpus)) if gpu_workers is None else gpu_workers
    if gpus and wanted > len(gpus):
        raise InputError(
            f"{wanted} GPU workers are asked for, but {len(gpus)} GPUs are visible here ({', '.join(gpus)}); "
            "a GPU is not shared by two runs: ask for fewer"
        )
    host = platform.node() or "here"
    on_gpu = [WorkerPlan(f"{host}-gpu{gpu}", GPU_POOL, 1, gpu) for gpu in gpus[:wanted]]
    instead = [] if gpus else [WorkerPlan(f"{host}-no-gpu{number}", GPU_POOL, 1) for number in range(wanted)]
    seen = "" if on_gpu else None  # a GPU that has a worker is not shared with the runs of the other pool
    on_cpu = [WorkerPlan(f"{host}-cpu{number}", CPU_POOL, cpu_limit, seen) for number in range(cpu_workers)]
    return on_gpu + instead + on_cpu


def refuse_unready(url: str | None, login: str | None, pools: Sequence[str]) -> None:
    """Refuse to start workers that would have nothing to ask.

    Raises:
        InputError: no server is named or it does not answer, it refuses the login, or a pool is missing or not of
            type process.
    """
    if url is None:
        raise InputError("PREFECT_API_URL is not set, so there is no server to work for; see docs/operations.md, Start")
    health = request(f"{url}/health", None)
    if health.status != 200:
        said = health.body if health.status == 0 else f"HTTP {health.status}"
        raise InputError(f"the Prefect server {url} does not answer: {said}; start it, or correct PREFECT_API_URL")
    for pool in pools:
        answer = request(f"{url}/work_pools/{pool}", login)
        if answer.status == 401:
            raise InputError(f"the server {url} refuses the login; set PREFECT_API_AUTH_STRING to the server's own")
        if answer.status == 404:
            raise InputError(f"the server {url} has no work pool {pool}; run `trajpilot deploy` first")
        if answer.status != 200:
            raise InputError(f"the server {url} answers HTTP {answer.status} for the pool {pool}; see its log")
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
    """In the environment of everything that it starts: Prefect puts each run into a session of its own."""
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    pause_s: float = 0.0
    again_s: float = 0.0
    """When it is started again, where it ended."""

    def start(self) -> None:
        """Start the worker in a session of its own, so that Ctrl-C does not reach it before us; output to its log."""
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
        self.started_s = time.monotonic()

    def signal(self, number: int) -> None:
        """Signal the worker, its group, and whatever carries its mark."""
        group = [] if self.process is None else [self.process.pid]
        others = [pid for pid in marked(self.mark) if pid not in group]
        for send, pids in ((os.killpg, group), (os.kill, others)):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    send(pid, number)

    def lives(self) -> bool:
        """Return whether the worker or anything that it started is left."""
        return (self.process is not None and self.process.poll() is None) or bool(marked(self.mark))

    def kill(self) -> None:
        """Kill what is left: a run without its worker would hold a GPU that the next worker uses."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


@dataclass
class Keeper:
    """Keeps workers alive until it is asked to end them."""

    plans: Sequence[WorkerPlan]
    logs: Path
    say: Say
    kept: list[Kept] = field(default_factory=list)

    def keep(self) -> None:
        """Start all workers and restart those that end, until an exception (Ctrl-C) ends this; then end them all."""
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
                    self.look_after(worker)
        finally:
            self.end_all()

    def look_after(self, worker: Kept) -> None:
        """Report when a worker has ended, and start it again after a pause."""
        now = time.monotonic()
        if worker.process is None:
            if now >= worker.again_s:
                worker.start()
                self.say(f"{worker.plan.name} started again")
            return
        status = worker.process.poll()
        if status is None:
            return
        steady = now - worker.started_s > STEADY_S
        worker.pause_s = min(LONGEST_PAUSE_S, 2 * worker.pause_s) if worker.pause_s and not steady else FIRST_PAUSE_S
        worker.kill()
        worker.process, worker.again_s = None, now + worker.pause_s
        self.say(f"{worker.plan.name} ended with status {status}; again in {worker.pause_s:.0f} s; see {worker.log}")

    def end_all(self) -> None:
        """End every worker and what it started, all at the same time: first by asking, then by force."""
        living = [worker for worker in self.kept if worker.process is not None]
        for worker in living:
            worker.signal(signal.SIGTERM)
        limit_s = time.monotonic() + END_S
        while any([worker.lives() for worker in living]) and time.monotonic() < limit_s:
            time.sleep(0.1)
        for worker in living:
            worker.kill()
        self.say("1 worker ended" if len(living) == 1 else f"{len(living)} workers ended")


def marked(mark: str) -> list[int]:
    """Return the ids of the processes that inherited a mark, on systems that list them (/proc)."""
    wanted, found = f"{WORKER_MARK}={mark}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:
            continue
    return found
