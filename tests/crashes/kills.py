"""Kills by countdown: one at a time in a forked run of the stages, then the recovery, then the checks.

At the end the planted faults, each at the kill that shows it.
"""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import checks
import forked
from countdown import Countdown, by_stage, read_trace
from forked import Place, Ran
from plan import Kill, Operations, Round

from trajpilot_core.stages import STAGES
from trajpilot_core.store.inventory import INVENTORY


@dataclass(frozen=True)
class Reference:
    """The undisturbed run that all others must equal."""

    root: Path
    tree: checks.Tree
    operations: dict[int, Operations]
    """Number of workers -> its operations by stage and kind."""
    seconds: dict[int, float]
    stage_s: dict[str, float]
    problems: list[str]
    """What is wrong with it itself."""


@dataclass(frozen=True)
class Verdict:
    problems: list[str]
    redone: checks.Redone
    killed: Ran
    recovery: Ran


def reference(work: Path, workers: tuple[int, ...]) -> Reference:
    """Run undisturbed with each number of workers, or read what an earlier call noted."""
    note = work / "reference.json"
    if note.exists():
        seen = json.loads(note.read_text())
        seen |= {name: {int(n): of_n for n, of_n in seen[name].items()} for name in ("operations", "seconds")}
        if set(workers) <= set(seen["operations"]):
            return Reference(work / "reference-1", **seen)
    operations: dict[int, Operations] = {}
    seconds, stage_s, trees, problems = {}, {}, [], list[str]()
    for n in workers:
        place = Place(work / f"reference-{n}", work / "world", n)
        shutil.rmtree(place.root, ignore_errors=True)
        trace = traced(place)
        ran = forked.run(place, Countdown(str(place.root), str(trace)))
        problems += ran.problems("the undisturbed run") + checks.durable(read_trace(trace))
        problems += checks.no_row_twice(place.root)
        operations[n] = {stage: dict(kinds) for stage, kinds in by_stage(read_trace(trace)).items()}
        seconds[n], trees = ran.seconds, [*trees, checks.tree(place.root)]
        stage_s |= {row["stage"]: row["seconds"] for row in ran.outcomes}
    problems += [f"workers change bytes: {text}" for found in trees[1:] for text in checks.differences(found, trees[0])]
    made = {"tree": trees[0], "operations": operations, "seconds": seconds, "stage_s": stage_s, "problems": problems}
    note.write_text(json.dumps(made))
    return Reference(work / f"reference-{workers[0]}", **made)


def traced(place: Place) -> Path:
    """Return the file that counts the operations of the next run at a place; an earlier one is removed."""
    trace = place.root.parent / f"{place.root.name}.trace"
    for path in (trace, Path(f"{trace}.count")):
        path.unlink(missing_ok=True)
    return trace


def kill_and_recover(place: Place, kill: Kill, known: Reference, plant: str = "") -> Verdict:
    """End a run at the operation, look, run again up to the stage of the kill, look again."""
    trace = traced(place)
    plan = Countdown(str(place.root), str(trace), kill.stage, kill.kind, kill.at, kill.moment, kill.victim)
    killed = forked.run(place, plan, plant=plant)
    before = read_trace(trace)
    problems = [*as_killed(killed, place), *checks.nothing_torn(place.root, known.tree), *checks.durable(before)]
    trace = traced(place)
    recovery = forked.run(place, Countdown(str(place.root), str(trace)), until=kill.stage, plant=plant)
    after = read_trace(trace)
    problems += [*recovery.problems("the recovery"), *checks.recovered(place.root, known.tree, up_to(kill.stage))]
    problems += [*checks.durable(after), *reused_all_before(recovery, kill.stage)]
    problems += [f"left after the recovery: {process}" for process in recovery.left]
    twice = checks.redone(before, after, kill.stage)
    return Verdict(problems + twice.too_much(place.workers), twice, killed, recovery)


def as_killed(killed: Ran, place: Place) -> list[str]:
    problems = [f"left by the killed run: {process}" for process in killed.left]
    by_child = place.workers > 1 and killed.status == forked.NAMED and "process crashed" in killed.failure
    if killed.status != -9 and not by_child:
        problems.append(f"the killed run ended with {killed.status}: {killed.failure}")
    return problems


def up_to(stage: str) -> list[str]:
    return list(STAGES)[: list(STAGES).index(stage) + 1]


def reused_all_before(recovery: Ran, stage: str) -> list[str]:
    return [
        f"{row['stage']} was computed again" for row in recovery.outcomes if row["stage"] != stage and not row["cached"]
    ]


def run_round(work: Path, planned: Round, known: Reference) -> Iterator[dict[str, Any]]:
    """Take one root through the pipeline, a kill in every stage; yield a row per kill, the last for the end."""
    place = Place(work / f"round-{planned.number}", work / "world", planned.workers)
    shutil.rmtree(place.root, ignore_errors=True)
    for kill in planned.kills:
        began = time.monotonic()
        verdict = kill_and_recover(place, kill, known)
        yield row_of(planned, kill, verdict, time.monotonic() - began)
    began = time.monotonic()
    last = forked.run(place, None)
    problems = last.problems("the last run")
    left = len(checks.temporaries(place.root))
    problems += [*checks.swept(place.root, known.tree), *checks.no_row_twice(place.root)]
    again = forked.run(place, None)
    problems += [f"{row['stage']} is not fresh in the end" for row in again.outcomes if not row["cached"]]
    facts = {"round": planned.number, "workers": planned.workers, "kills": len(planned.kills), "temporaries": left}
    yield checks.row_of("round", problems, **facts, seconds=round(time.monotonic() - began, 2))
    if not problems:
        shutil.rmtree(place.root)


def row_of(planned: Round, kill: Kill, verdict: Verdict, seconds: float) -> dict[str, Any]:
    found = verdict.recovery.outcomes[-1] if verdict.recovery.outcomes else {}
    facts = {"round": planned.number, "workers": planned.workers, **asdict(kill), "status": verdict.killed.status}
    facts |= {f"{name}_again": n for name, n in asdict(verdict.redone).items()}
    facts |= {name: found.get(name) for name in ("reused", "computed")}
    facts |= {"seconds": round(seconds, 2), "recovery_s": round(verdict.recovery.seconds, 2)}
    return checks.row_of("kill", verdict.problems, **facts)


def prepared(work: Path, stage: str, known: Reference, workers: int) -> Place:
    """Make a root in which all stages before `stage` are done."""
    place = Place(work / "prepared", work / "world", workers)
    shutil.rmtree(place.root, ignore_errors=True)
    for before in up_to(stage)[:-1]:
        shutil.copytree(known.root / "artifacts" / before, place.root / "artifacts" / before)
    place.root.mkdir(exist_ok=True)
    shutil.copy(known.root / INVENTORY, place.root)
    return place


SHOWN_BY: dict[str, tuple[Kill, int]] = {
    "direct_write": (Kill("text_bank", "write", 1, "torn"), 1),
    "record_first": (Kill("trajectories", "rename", 2, "after"), 1),
    "pointer_first": (Kill("text_bank", "rename", -2, "before"), 1),
    "no_resume": (Kill("alignment", "checkpoint", 2, "after"), 1),
    "other_chance": (Kill("predictor", "checkpoint", 1, "after"), 1),
    "no_reuse": (Kill("trajectories", "rename", -4, "before"), 1),
    "orphans": (Kill("predictor", "checkpoint", 1, "before", "leader"), 2),
}
"""Fault -> where to kill (a negative number counts from the end), and workers.

`record_first` shows after the second rename of `trajectories`. The first is that of the inventory: the stage saves the
digests of the poses and videos that it has read before it delivers a shard. The second is, under the fault, the record
of the first shard, whose table is still to come. That holds where the root has no inventory of these files; with one,
nothing is learned or saved, the second rename completes the shard, and the kill shows nothing (`prove_one`).
"""


def needs(name: str) -> int:
    """Return how many processes side by side it takes to show a fault."""
    return SHOWN_BY[name][1] if name in SHOWN_BY else 1


def prove_one(work: Path, name: str, known: Reference) -> list[str]:
    if name == "no_fsync":  # what kill -9 cannot show: the page cache survives it
        place = prepared(work, "text_bank", known, 1)
        trace = traced(place)
        forked.run(place, Countdown(str(place.root), str(trace)), until="text_bank", plant=name)
        return checks.durable(read_trace(trace))
    kill, workers = SHOWN_BY[name]
    paths = known.operations[workers][kill.stage][kill.kind]
    at = kill.at if kill.at > 0 else len(paths) + 1 + kill.at
    aimed = replace(kill, at=at)
    place = prepared(work, kill.stage, known, workers)
    # the undisturbed run saved what it learned in this stage: so must this one, whether or not the world was moved
    (place.root / INVENTORY).unlink()
    return kill_and_recover(place, aimed, known, plant=name).problems
