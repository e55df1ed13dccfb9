"""A failing disk under the real stages: a full one, one that may not be written to, one that fails now and then."""

import errno
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checks
import forked
from countdown import Countdown
from forked import Place, Ran
from kills import Reference, prepared, traced, up_to

from trajpilot_core.stages import STAGES

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES, "EROFS": errno.EROFS}
SIZES = ("220k", "700k", "3200k", "4m", "4600k", "5m", "64m")
"""Sizes of the disk, one after the other until one is large enough."""
LEAST_FULL = 3
"""So often the disk must have been full."""
NOBODY = 65534


def named(ran: Ran, root: Path, why: str = "") -> list[str]:
    """Check that a run came through, or failed with a name, the path, the cause and what to do."""
    problems = [f"left: {process}" for process in ran.left]
    if ran.status == 0:
        return problems
    wanted = ("StoreIOError", str(root), "nothing that was committed before is lost", why)
    missing = [text for text in wanted if text not in ran.failure]
    if ran.status != forked.NAMED or missing:
        problems.append(f"status {ran.status}, without {missing}: {ran.failure}")
    return problems


def fail_stages(work: Path, known: Reference, seed: int, n_faults: int) -> Iterator[dict[str, Any]]:
    """Fail operations of the real stages, drawn by seed: once, or from the n-th on; then run again without."""
    chance = random.Random(seed)
    for number in range(n_faults):
        began = time.monotonic()
        stage = list(STAGES)[number % len(STAGES)]
        kinds = known.operations[1][stage]
        at = chance.randint(1, sum(len(kinds[kind]) for kind in ("write", "fsync", "rename")))
        name, persistent = chance.choice(sorted(ERRORS)), chance.random() < 0.5
        place = prepared(work, stage, known, 1)
        before = checks.tree(place.root)
        fault = Countdown(str(place.root), str(traced(place)), stage, at=at, error=ERRORS[name], persistent=persistent)
        failed = forked.run(place, fault, until=stage)
        problems = [*named(failed, place.root), *checks.nothing_torn(place.root, known.tree)]
        problems += [f"lost: {path}" for path in before.keys() - checks.tree(place.root).keys()]
        problems += forked.run(place, None, until=stage).problems("the second run")
        problems += checks.recovered(place.root, known.tree, up_to(stage))
        facts = {"stage": stage, "at": at, "error": name, "persistent": persistent, "status": failed.status}
        yield checks.row_of("fault", problems, **facts, seconds=round(time.monotonic() - began, 2))


def fill_disk(work: Path, known: Reference) -> Iterator[dict[str, Any]]:
    """Run on a small disk that grows after every failure; nothing but one row where none can be mounted."""
    disk = work / "disk"
    disk.mkdir(exist_ok=True)
    if not mount(disk, SIZES[0], "nosuid"):
        yield {"row": "disk", "problems": [], "verdict": "skip", "why": "mounting a tmpfs is not allowed here"}
        return
    try:
        place = Place(disk / "root", work / "world")
        full = 0
        for size in SIZES:
            mount(disk, size, "remount")
            # what a run says of itself is next to its root: elsewhere, or it would fail for want of space, too
            ran = forked.run(place, None, reports=work)
            problems = named(ran, place.root, "No space left on device") + checks.nothing_torn(place.root, known.tree)
            full += ran.status != 0
            if ran.status == 0:
                problems += checks.swept(place.root, known.tree)
                problems += [] if full >= LEAST_FULL else [f"the disk was full {full} times only"]
            elif size == SIZES[-1]:
                problems.append("the largest disk was too small")
            facts = {"size": size, "status": ran.status, "stages": len(ran.outcomes), "failure": ran.failure}
            yield checks.row_of("disk", problems, **facts)
            if ran.status == 0:
                break
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def mount(disk: Path, size: str, option: str) -> bool:
    """Mount a tmpfs of that size, or change the size of one; False where that is not allowed."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        return False
    typed = ["mount", "-t", "tmpfs", "-o", f"{option},size={size}", "tmpfs", str(disk)]
    return subprocess.run(typed, check=False, capture_output=True).returncode == 0


def read_only(work: Path, known: Reference) -> Iterator[dict[str, Any]]:
    """Run as somebody who may read the root and not write it; then as somebody who may."""
    if os.geteuid() != 0:
        yield {"row": "read-only", "problems": [], "verdict": "skip", "why": "only root can become somebody else"}
        return
    for stage in ("ingest", "features", "predictor", "report"):
        place = prepared(work, stage, known, 1)
        before = checks.tree(place.root)
        ran = forked.run(place, None, until=stage, first=become_nobody)
        problems = named(ran, place.root, "Permission denied")
        if ran.status == 0:
            problems.append("it could be written to: nothing was tested")
        problems += checks.differences(checks.tree(place.root), before)
        problems += forked.run(place, None, until=stage).problems("the second run")
        problems += checks.recovered(place.root, known.tree, [stage])
        yield checks.row_of("read-only", problems, stage=stage, status=ran.status, failure=ran.failure)


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def all_faults(work: Path, known: Reference, seed: int, n_faults: int) -> Iterator[dict[str, Any]]:
    yield from fail_stages(work, known, seed, n_faults)
    yield from fill_disk(work, known)
    yield from read_only(work, known)
