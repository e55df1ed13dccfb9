"""The planted faults, each at the kill that shows it."""

from dataclasses import replace
from pathlib import Path

import checks
import forked
from countdown import Countdown, read_trace
from kills import Reference, kill_and_recover, prepared, traced
from plan import Kill

from trajpilot_core.store.inventory import INVENTORY

AGAIN = 0
"""Kill at the first best weights of a training that has left some before, between them and its checkpoint."""
SHOWN_BY: dict[str, tuple[Kill, int]] = {
    "direct_write": (Kill("text_bank", "write", 1, "torn"), 1),
    "record_first": (Kill("trajectories", "rename", 2, "after"), 1),
    "pointer_first": (Kill("text_bank", "rename", -2, "before"), 1),
    "no_resume": (Kill("alignment", "checkpoint", 2, "after"), 1),
    "other_chance": (Kill("predictor", "checkpoint", 1, "after"), 1),
    "one_best": (Kill("predictor", "best", AGAIN, "after"), 1),
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
    if kill.at == AGAIN:
        folders = [Path(path).parent for path in paths]
        at = next(n for n, folder in enumerate(folders, start=1) if folder in folders[: n - 1])
    aimed = replace(kill, at=at)
    place = prepared(work, kill.stage, known, workers)
    # the undisturbed run saved what it learned in this stage: so must this one, whether or not the world was moved
    (place.root / INVENTORY).unlink()
    return kill_and_recover(place, aimed, known, plant=name).problems
