"""Watch completed runs of the running stack: nothing may mark them anew, while the automations wait for heartbeats.

    python tests/orchestration/stack_watch.py --runs 30 --minutes 10 --folder runs/stack-watch [--database sqlite]

The automations mark a run as crashed when nothing is heard of it for a while after a heartbeat; a run that has ended
gives no heartbeats either, so a fault in them would show minutes after the end. Every tenth run computes the pipeline
in a root of its own and lasts for several heartbeats; the others reuse its results. Where no run was heard, or the
automations are off, the watch sees nothing, and that is a fault as well.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stack_client import Client
from stack_processes import Ground, Stack

from deployments.deploy import CRASHED, UNSTARTED
from schemas.world import soak_world
from trajpilot_core.simworld.write import write_world

CONFIG = {"alignment": {"train": {"epochs": 100}}, "predictor": {"train": {"epochs": 100}}}
"""Trainings that outlast the time between two heartbeats."""
FRESH = 10
"""Every so many runs one computes; the others find everything."""
LOOK_S = 10.0
DATABASES = ("postgresql", "sqlite")


def marked(ended: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say which completed runs are no longer what they were, and which are gone."""
    said = {name: now.get(name, "gone") for name in ended}
    return [f"{name}: {ended[name]} became {state}" for name, state in said.items() if state != ended[name]]


def blind(automations: Mapping[str, bool], heartbeats: int) -> list[str]:
    """Say why the watch could not have seen a fault.

    Args:
        automations: name of each that the server has -> whether it is enabled.
        heartbeats: how many were heard of the watched runs.
    """
    asleep = [name for name in (CRASHED, UNSTARTED) if not automations.get(name, False)]
    found = [f"the automation {name!r} is off or missing" for name in asleep]
    return found + ([] if heartbeats else ["no heartbeat of any watched run was heard"])


class Watch:
    """Runs of one stack, and what becomes of them."""

    def __init__(self, client: Client, say: Callable[[str], None]) -> None:
        self.client, self.say = client, say
        self.ids: list[str] = []

    def complete(self, n: int) -> list[str]:
        """Run the pipeline `n` times, one after the other; return what did not complete."""
        faults = []
        for at in range(n):
            root = self.client.ground.folder / "artifacts" / f"watched-{at // FRESH:02d}"
            stated = {"config": CONFIG, "run": {"root": str(root)}}
            run = self.client.finished(self.client.run_deployment("full-pipeline", **stated))
            self.ids.append(run["id"])
            if run["state"]["type"] != "COMPLETED":
                faults.append(f"{run['name']} ended as {run['state']['type']}: {run['state']['message']}")
            if at % FRESH == 0:
                self.say(f"run {at + 1} of {n} computed in {run['total_run_time']:.0f} s")
        return faults

    def states(self) -> dict[str, str]:
        """Id of a watched run -> its state."""
        runs = self.client.api("/flow_runs/filter", {"flow_runs": {"id": {"any_": self.ids}}})
        return {run["id"]: str(run["state"]["type"]) for run in runs}

    def watch(self, minutes: float) -> list[str]:
        """Look again and again; return each change once."""
        before, seen = self.states(), dict[str, None]()
        limit = time.monotonic() + 60.0 * minutes
        while time.monotonic() < limit:
            time.sleep(LOOK_S)
            seen |= dict.fromkeys(marked(before, self.states()))
        return list(seen)

    def heartbeats(self) -> int:
        """How many heartbeats of the watched runs the server holds."""
        resources = [f"prefect.flow-run.{one}" for one in self.ids]
        asked = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "any_resource": {"id": resources}}
        return int(self.client.api("/events/filter", {"filter": asked, "limit": 1})["total"])

    def automations(self) -> dict[str, bool]:
        """Name -> whether it is enabled."""
        found: list[dict[str, Any]] = self.client.api("/automations/filter", {})
        return {str(one["name"]): bool(one["enabled"]) for one in found}


def watched(stack: Stack, runs: int, minutes: float, say: Callable[[str], None]) -> list[str]:
    """Start a stack, complete runs, watch them; return the faults."""
    place = stack.ground.folder
    write_world(soak_world(), place / "data", 2, lambda done, total, what: None)
    (place / "artifacts").mkdir()
    stack.start_all()
    watch = Watch(Client(stack), say)
    faults = watch.complete(runs)
    say(f"{runs - len(faults)} of {runs} runs completed; watched for {minutes:g} minutes from now")
    faults += watch.watch(minutes)
    heard = watch.heartbeats()
    say(f"{heard} heartbeats of these runs were heard")
    locked = sum(stack.logs.joinpath(f"{name}.log").read_text(errors="replace").count("database is locked")
                 for name in stack.processes)  # fmt: skip
    say(f"'database is locked' stands {locked} times in the logs")
    return faults + blind(watch.automations(), heard)


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch on one database or on both in turn; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--database", choices=DATABASES, help="one of them; without it both in turn")
    parser.add_argument("--folder", type=Path, default=Path("runs/stack-watch"))
    asked = parser.parse_args(arguments)
    n_faults = 0
    for database in (asked.database,) if asked.database else DATABASES:
        kept = asked.folder / database
        kept.mkdir(parents=True, exist_ok=True)

        def say(line: str, kept: Path = kept, database: str = database) -> None:
            told = f"{time.strftime('%H:%M:%S')}  {database}: {line}"
            sys.stdout.write(told + "\n")
            sys.stdout.flush()
            with (kept / "watch.log").open("a") as log:
                log.write(told + "\n")

        place = Path(tempfile.mkdtemp(prefix=f"trajpilot-watch-{database}-"))
        place.chmod(0o711)
        stack = Stack(Ground(place), postgresql=database == "postgresql")
        try:
            faults = watched(stack, asked.runs, asked.minutes, say)
        finally:
            stack.end_all()
            shutil.rmtree(kept / "logs", ignore_errors=True)
            shutil.copytree(stack.logs, kept / "logs")
            shutil.rmtree(place, ignore_errors=True)
        for fault in faults:
            say(f"FAULT {fault}")
        say(f"{len(faults)} faults")
        n_faults += len(faults)
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
