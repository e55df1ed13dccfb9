"""A pilot: one worker inside the job of a batch system, until nothing is left to do or the job is told to go.

Whatever run it holds when it must go is given back to the server, which hands it to the next worker; what that run has
finished is in the store. Reasons: docs/decisions/slurm.md.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from deployments.settings import FLOW_RUN
from deployments.workers import Kept, Say, marked
from trajpilot_core.errors import TrajPilotError

LOOK_S = 1.0
GAVE_BACK = "Its worker had to go before it ended; it waits for the next one, and what it finished is kept."
Why = Literal["idle", "told", "time", "died"]
"""It found nothing to do for too long; it was told to go; its job's time is almost up; or its worker ended."""


@dataclass
class Pilot:
    """One worker and how long it waits for work."""

    worker: Kept
    idle_s: float
    """Seconds without a run after which it ends."""
    say: Say
    gives_back: Callable[[Sequence[UUID]], int]
    """Hands runs back to the server and returns how many it took."""
    asked: Why | None = None
    """Set by the handler of a signal."""

    def fly(self) -> Why:
        """Work until there is a reason to end; leave no process behind, and no run that seems to be running."""
        self.worker.start()
        self.say(f"{self.worker.plan.describe()}; log {self.worker.log}")
        held: list[UUID] = []
        try:
            why = self.wait()
            held = runs_of(self.worker.mark)
        finally:
            self.worker.kill()
        if held:
            self.say(f"{self.gives_back(held)} of {len(held)} runs given back to the server")
        return why

    def wait(self) -> Why:
        """Look after the worker until it must end, and return why."""
        last_s = time.monotonic()
        while self.asked is None:
            time.sleep(LOOK_S)
            if self.worker.process is None or self.worker.process.poll() is not None:
                return "died"
            if runs_of(self.worker.mark):
                last_s = time.monotonic()
            elif time.monotonic() - last_s > self.idle_s:
                return "idle"
        return self.asked


def runs_of(mark: str) -> list[UUID]:
    """Return the flow runs whose processes carry a worker's mark, on systems that list them (/proc), sorted."""
    found = set()
    for pid in marked(mark):
        try:
            stated = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {value for name, _, value in (one.partition(b"=") for one in stated) if name == FLOW_RUN.encode()}
    return sorted(UUID(value.decode()) for value in found if value)


def give_back(ids: Sequence[UUID]) -> int:
    """Let runs wait for another worker, unless they have ended; returns how many do."""
    from prefect.client.orchestration import get_client
    from prefect.states import AwaitingRetry

    given = 0
    with get_client(sync_client=True) as client:
        for run_id in ids:
            state = client.read_flow_run(run_id).state
            if state is None or not state.is_final():
                client.set_flow_run_state(run_id, AwaitingRetry(message=GAVE_BACK), force=True)
                given += 1
    return given


def requeue(job: str) -> None:
    """Put a Slurm job back into its queue.

    Raises:
        TrajPilotError: Slurm refuses.
    """
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TrajPilotError(f"Slurm did not requeue job {job}: {done.stderr.strip()}; submit it again")
