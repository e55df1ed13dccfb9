"""The ends of the scale: ten times the takes, and one take, which must be refused by name."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.rehearsal.runner import PartFailed, Place, run_part
from benchmarks.rehearsal.settings import Part, narrow_text
from benchmarks.rehearsal.sizes import Sizes
from benchmarks.rehearsal.store import planted
from deployments.recipes import recipe
from schemas.config import RunOptions
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.engine.planning.status import status
from trajpilot_core.stages import STAGES

MANY_TAKES = Sizes(takes=25_000, segments=1_489_188, labels=8_472)
ONE_TAKE = Sizes(takes=1, segments=60, labels=20)
Seen = Callable[[str], None]


def many_takes(folder: Path, seen: Seen) -> str:
    """Run ingest and trajectories, then look at the root as `plan` and `status` do."""
    part = Part("many_takes", ("ingest", "trajectories"), narrow_text(recipe("atomic")), "")
    place = Place(folder, MANY_TAKES)
    found = run_part(part, place, seen)
    stages = planted(STAGES, MANY_TAKES)
    options = RunOptions(root=str(place.root), data_root=str(folder / "corpus"), device="cpu")
    spent = {}
    for name, look in (("plan", plan), ("status", status)):
        began = time.process_time()
        look(stages, part.config, options)
        spent[name] = time.process_time() - began
    looks = ", ".join(f"{name} {cpu_s:.1f} CPU seconds" for name, cpu_s in spent.items())
    each = ", ".join(f"{one.stage} {one.cpu_s:.0f} CPU seconds, {one.peak_bytes / 2**30:.1f} GiB" for one in found)
    return f"{each}, {looks}"


def refused(folder: Path, seen: Seen, sizes: Sizes, part: Part) -> str:
    """Return what a part says when it ends, which must be an error of ours.

    Raises:
        PartFailed: it ended without one, or with one that is not ours.
    """
    try:
        run_part(part, Place(folder, sizes), seen)
    except PartFailed as failed:
        last = str(failed).strip().splitlines()[-1]
        if last.startswith("trajpilot_core.errors."):
            return last.removeprefix("trajpilot_core.errors.")
        raise
    raise PartFailed(f"{part.name} was to be refused and ended without an error")


def one_take(folder: Path, seen: Seen) -> str:
    """Ask for a training on a single take."""
    stages = ("ingest", "trajectories", "features", "text_bank", "alignment")
    return refused(folder, seen, ONE_TAKE, Part("one_take", stages, narrow_text(recipe("atomic")), ""))


ENDS: Mapping[str, Callable[[Path, Seen], str]] = {
    "many_takes": many_takes,
    "one_take": one_take,
}
