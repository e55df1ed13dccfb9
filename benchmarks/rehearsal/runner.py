"""Run the parts of a rehearsal, each in a process of its own, and measure what each stage of it takes.

Memory is what the system calls anonymous, summed over the process and its children, sampled; shared and mapped pages
count in the process that dirtied them. CPU seconds are those of the kernel's account, children included.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rehearsal.faults import Fault
from benchmarks.rehearsal.memory import anonymous_bytes, family, tree_bytes
from benchmarks.rehearsal.settings import Part
from benchmarks.rehearsal.sizes import Sizes

SAMPLE_S = 0.2
"""Seconds between two looks at small processes."""
LONGEST_S = 3.0
"""Seconds between two looks, at most."""
AT_REST = 20
"""Times as long as a look at the memory took, before the next: of large processes it takes a tenth of a second."""
CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Measured:
    """What one stage took."""

    part: str
    stage: str
    cpu_s: float
    wall_s: float
    peak_bytes: int
    """Highest sum of anonymous memory over the processes of the stage."""
    base_bytes: int
    """The same where it began: imports, and what earlier stages of the process left."""
    left_bytes: int
    """What its own process still holds when it has ended, above where it began; imports among it."""
    written: int
    """Bytes sent to the disk."""
    kept: int
    """Bytes below the root afterwards, less those before."""
    scratch: int
    """Most bytes seen in scratch."""
    rows: int

    @property
    def own_bytes(self) -> int:
        """Peak above where it began."""
        return max(0, self.peak_bytes - self.base_bytes)


class Place(NamedTuple):
    """Where a rehearsal lies."""

    folder: Path
    sizes: Sizes
    workers: int = 2

    @property
    def root(self) -> Path:
        """The store."""
        return self.folder / "root"


class PartFailed(Exception):
    """A part ended with an error; its message is the end of what it printed."""


def run_part(
    part: Part, place: Place, seen: Callable[[str], None] = lambda line: None, fault: Fault | None = None
) -> list[Measured]:
    """Run one part and return what each of its stages took.

    Args:
        part: which stages, and their settings.
        place: where, and how much.
        seen: called with the figures of each stage as it ends, as JSON.
        fault: what is planted (`faults.with_fault`).

    Raises:
        PartFailed: it ended with an error.
    """
    data_root = place.folder / "corpus"
    data_root.mkdir(parents=True, exist_ok=True)
    events, request = place.folder / "events.jsonl", place.folder / "request.json"
    events.write_text("")
    asked = {
        "root": str(place.root),
        "data_root": str(data_root),
        "sizes": astuple(place.sizes),
        "stages": part.stages,
        "config": part.config.model_dump(mode="json"),
        "events": str(events),
        "workers": place.workers,
        "fault": fault,
    }
    request.write_text(json.dumps(asked))
    log = place.folder / f"{part.name}.log"
    command = [sys.executable, "-m", "benchmarks.rehearsal.child", str(request)]
    with log.open("w") as output:
        child = subprocess.Popen(command, cwd=CHECKOUT, stdout=output, stderr=subprocess.STDOUT)
        found = watch(child, part, place, events, seen)
    if child.returncode:
        raise PartFailed(f"{part.name} ended with {child.returncode}: " + log.read_text()[-2000:])
    return found


@dataclass
class Sampled:
    """Highest values of the stage at work, and what it began with."""

    base: int
    peak: int
    scratch: int = 0


def watch(
    child: "subprocess.Popen[bytes]", part: Part, place: Place, events: Path, seen: Callable[[str], None]
) -> list[Measured]:
    """Sample a child until it ends; its events say which stage is at work."""
    found: list[Measured] = []
    n_read, now = 0, Sampled(0, 0)
    while True:
        ended = child.poll() is not None
        lines = events.read_text().splitlines()
        for event in map(json.loads, lines[n_read:]):
            if "began" in event:
                now = Sampled(event["base"], event["base"])
            else:
                found.append(measured(part, event, now))
                seen(json.dumps(asdict(found[-1])))
        n_read = len(lines)
        if ended:
            return found
        looked = time.monotonic()
        now.peak = max(now.peak, sum(map(anonymous_bytes, family(child.pid))))
        now.scratch = max(now.scratch, tree_bytes(place.root / "scratch"))
        time.sleep(min(LONGEST_S, max(SAMPLE_S, AT_REST * (time.monotonic() - looked))))


def measured(part: Part, event: dict[str, Any], now: Sampled) -> Measured:
    """Return what a stage took, given the event of its end."""
    return Measured(
        part=part.name,
        stage=event["ended"],
        cpu_s=round(event["cpu_s"], 2),
        wall_s=round(event["wall_s"], 2),
        peak_bytes=now.peak,
        base_bytes=now.base,
        left_bytes=event["left"],
        written=event["written"],
        kept=event["kept"],
        scratch=now.scratch,
        rows=event["rows"],
    )
