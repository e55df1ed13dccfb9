"""One part of a rehearsal in this process: its stages through the ordinary executor, each reported when it ends.

Run by `runner.run_part`: `python -m benchmarks.rehearsal.child REQUEST`, a file as `runner.Request` writes it.
"""

import ctypes
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.rehearsal.faults import with_fault
from benchmarks.rehearsal.memory import anonymous_bytes, tree_bytes
from benchmarks.rehearsal.sizes import Sizes
from benchmarks.rehearsal.store import planted
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.progress import Progress
from trajpilot_core.stages import stages_of

SHOWN_S = 10.0


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def written_bytes() -> int:
    """Return the bytes that this process and its children that have ended sent to a disk, mapped files included."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def held_bytes() -> int:
    """Return the anonymous memory of this process once nothing is left to collect."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return anonymous_bytes(os.getpid())


def reported(stage: str) -> Progress:
    """Return what prints how far a stage is: into the log of the part."""

    def show(done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if now - last[0] >= SHOWN_S:
            last[0] = now
            print(f"{stage}: {done} of {total} {what}", flush=True)

    last = [time.monotonic()]
    return show


def main(request: Path) -> None:
    """Run the stages of a request; that each began and ended is appended to its file of events."""
    asked = json.loads(request.read_text())
    config = PipelineConfig.model_validate(asked["config"])
    asked_for = {name: asked[name] for name in ("root", "data_root", "workers")}
    options = RunOptions(**asked_for, device="cpu", force=tuple(asked["stages"]))  # what lies there costs nothing
    stages = with_fault(planted(stages_of(config), Sizes(*asked["sizes"])), asked["fault"])
    with Path(asked["events"]).open("a", buffering=1) as events:

        def say(**event: Any) -> None:
            events.write(json.dumps(event) + "\n")

        for name in asked["stages"]:
            base, root_bytes = held_bytes(), tree_bytes(Path(asked["root"]))
            say(began=name, base=base)
            before = cpu_s(), written_bytes(), time.monotonic()
            outcome = execute(stages[name], config, options, stages, reported(name))
            spent = cpu_s() - before[0], written_bytes() - before[1], time.monotonic() - before[2]
            left, kept = held_bytes() - base, tree_bytes(Path(asked["root"])) - root_bytes
            say(ended=name, cpu_s=spent[0], written=spent[1], wall_s=spent[2], left=left, kept=kept, rows=outcome.n_out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
