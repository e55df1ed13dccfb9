"""Kill worker, server or PostgreSQL of the running stack in the middle of a run, and recover as documented.

Every kill disturbs a full pipeline into a root of its own. What ended starts again, as `restart: unless-stopped` does
it; where the run crashed, the deployment is run again. Then nothing may be lost, done twice or left behind, and every
artifact must have the bytes of an undisturbed run (kill_evidence.py).
"""

import dataclasses
import json
import random
import re
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from kill_evidence import Moment, differences, digests, faults, look
from stack_client import FINAL, Client
from stack_processes import PATIENCE, Stack

VICTIMS = ("worker", "server", "database")
SERVICE = {"worker": "worker-no-gpu", "server": "server", "database": "database"}
CONFIG = {"alignment": {"train": {"epochs": 10}}, "predictor": {"train": {"epochs": 20}}}
"""Longer trainings than `soak` has, so that kills meet them."""
POOL = "trajpilot-gpu"
SHARDED = re.compile(r"reused ([\d,]+), computed ([\d,]+), removed")
CRASHED_S = 300.0 * PATIENCE
AWAY = (OSError, HTTPException)
"""How a server that is away shows."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """One kill, drawn beforehand."""

    number: int
    victim: str
    at_s: float
    """Seconds after the run was asked for."""


@dataclasses.dataclass(frozen=True)
class Kill:
    """What one kill came to."""

    number: int
    victim: str
    at_s: float
    stage: str
    end: str
    """What became of the run: went on, or crashed and was run again."""
    recovered_s: float
    """From the kill to the complete artifacts."""
    crashed_s: float | None
    """From the kill to the mark; None: the run went on."""
    faults: tuple[str, ...]
    redone: str

    def line(self) -> str:
        """Say it in one line."""
        told = f"kill {self.number:2d}  {self.victim:8s} at {self.at_s:5.1f} s ({self.stage}): {self.end}"
        marked = "" if self.crashed_s is None else f", marked after {self.crashed_s:.0f} s"
        bad = "".join(f"\n    FAULT {fault}" for fault in self.faults)
        return f"{told}{marked}; recovered after {self.recovered_s:.0f} s; redone: {self.redone}{bad}"


def planned(seed: int, number: int, span_s: float) -> Planned:
    """Draw a kill: the victims take turns, the moment lies anywhere in the run."""
    return Planned(number, VICTIMS[number % 3], random.Random(f"{seed}-{number}").uniform(0.0, span_s))


WENT_ON, AGAIN, BETWEEN = "went on", "run again", "between stages"


class Killer:
    """Kills in a running stack."""

    def __init__(self, stack: Stack, client: Client) -> None:
        self.stack, self.client = stack, client
        client.prefect("work-pool", "set-concurrency-limit", POOL, "1")

    def stated(self, root: Path) -> dict[str, Any]:
        """Parameters of a run into a root."""
        return {"config": CONFIG, "run": {"root": str(root), "checkpoint_s": 0}}

    def undisturbed(self) -> tuple[dict[str, str], float]:
        """Run without a kill; return the digests of its artifacts, and seconds from asking to the end."""
        root, began = self.stack.ground.folder / "artifacts" / "undisturbed", time.monotonic()
        run = self.client.finished(self.client.run_deployment("full-pipeline", **self.stated(root)))
        assert run["state"]["type"] == "COMPLETED", run["state"]
        return digests(root), time.monotonic() - began

    def kill(self, plan: Planned, wanted: dict[str, str]) -> Kill:
        """Disturb one run, recover, and compare."""
        root = self.stack.ground.folder / "artifacts" / f"kill-{plan.number:02d}"
        run_id = self.client.run_deployment("full-pipeline", **self.stated(root))
        time.sleep(plan.at_s)
        stage = self.stage_of(run_id)
        self.stack.kill(SERVICE[plan.victim])
        killed, clock = time.monotonic(), time.time()
        before = look(root)
        revived = self.stack.until_healthy()
        first = self.ended(run_id)
        marked = time.monotonic() - killed if first["state"]["type"] != "COMPLETED" else None
        last = first if marked is None else self.again(root, run_id)
        found = differences(digests(root), wanted)
        log = None if marked is None else self.log_of(last["id"])
        found += faults(before, look(root), self.outcomes(last["id"]), log)
        found += self.left_behind(root)
        redone = "nothing" if marked is None else told_loss(before, stage, clock)
        others = [name for name in revived if name != SERVICE[plan.victim]]
        end = WENT_ON if marked is None else f"{first['state']['type'].lower()} and {AGAIN}"
        end += f" ({', '.join(others)} ended, too)" if others else ""
        recovered = time.monotonic() - killed
        return Kill(plan.number, plan.victim, plan.at_s, stage, end, recovered, marked, tuple(found), redone)

    def stage_of(self, run_id: str) -> str:
        """What a run is at."""
        state = self.client.api(f"/flow_runs/{run_id}")["state"]["name"]
        running = [name for name, now in self.client.task_states(run_id).items() if now == "Running"]
        return running[0] if running else f"{BETWEEN}, {state}"

    def ended(self, run_id: str) -> dict[str, Any]:
        """Wait until a disturbed run has ended or is marked; what ends meanwhile starts again."""
        limit = time.monotonic() + CRASHED_S
        while True:
            self.stack.revive()
            run = answered(lambda: self.client.api(f"/flow_runs/{run_id}"))
            if run is not None and run["state"]["type"] in FINAL:
                return dict(run)
            assert time.monotonic() < limit, f"neither ended nor marked within {CRASHED_S:.0f} s: {run}"
            time.sleep(1.0)

    def again(self, root: Path, before: str) -> dict[str, Any]:
        """Run the deployment again, as a user does."""
        stated = json.dumps(self.stated(root))
        done = self.client.prefect("deployment", "run", "full-pipeline", "--watch", "--params", stated)
        run = self.client.runs("full-pipeline")[0]
        assert run["id"] != before, done.stdout + done.stderr
        assert run["state"]["type"] == "COMPLETED", f"{run['state']}\n{done.stdout}{done.stderr}"
        return run

    def outcomes(self, run_id: str) -> dict[str, tuple[int, int]]:
        """Sharded stage -> (reused, computed), as the states of its tasks tell."""
        tasks = self.client.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
        found = {task["name"]: SHARDED.search(task["state"]["message"] or "") for task in tasks}
        return {name: (number(told[1]), number(told[2])) for name, told in found.items() if told}

    def log_of(self, run_id: str) -> str:
        """What a run logged to the server."""
        asked = {"logs": {"flow_run_id": {"any_": [run_id]}}, "limit": 200, "sort": "TIMESTAMP_ASC"}
        return "\n".join(line["message"] for line in self.client.api("/logs/filter", asked))

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


def answered(ask: Callable[[], Any]) -> Any:
    """Ask the server; None while it is away."""
    try:
        return ask()
    except AWAY:
        return None


def number(text: str) -> int:
    """Read a count as people write it."""
    return int(text.replace(",", ""))


def told_loss(moment: Moment, stage: str, clock: float) -> str:
    """Say what a kill cost, and what was finished and kept."""
    if stage.startswith(BETWEEN):
        return f"no work; {told_progress(moment)}"
    lost = f"{clock - moment.last_s:.1f} s of {stage}" if moment.last_s else f"{stage} from its beginning"
    return f"{lost}; {told_progress(moment)}"


def told_progress(moment: Moment) -> str:
    """Say what was finished and kept at a kill."""
    shards = " and ".join(f"{moment.shards(stage)} {stage}" for stage in ("trajectories", "features"))
    trained = ", ".join(f"{t.name} after epoch {t.kept}" for t in moment.trainings.values())
    return f"kept {shards} shards" + (f", {trained}" if trained else "")
