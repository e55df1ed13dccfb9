"""A countdown over a run's operations below a folder, in all of its processes: the n-th ends a process, or fails.

The way of SQLite's fault injector. What is counted goes to a trace, one line per operation, so that a run without a
fault tells how many there are. Processes that a run spawns arm themselves: the plan is in the environment.
"""

import dataclasses
import io
import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLAN, STAGE = "TRAJPILOT_TEST_COUNTDOWN", "TRAJPILOT_TEST_STAGE"
CHECKPOINT = "checkpoint.safetensors"
KINDS = ("write", "fsync", "rename", "checkpoint")
"""What a countdown can end a process at."""
BY_HANDLE, RENAMES = ("write", "fsync"), ("replace", "rename", "link")
OTHERS = ("open", "mkdir", "unlink", "listdir", "stat", "lstat")
REAL: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in (*BY_HANDLE, *RENAMES, *OTHERS)}
REAL_OPEN = io.open


@dataclasses.dataclass(frozen=True)
class Countdown:
    """What is counted, and what happens at the n-th; with `at` 0 nothing happens."""

    below: str
    trace: str
    """File that gets a line per operation; not below `below`."""
    stage: str = ""
    kind: str = ""
    at: int = 0
    moment: str = "before"
    """before, torn (after half of the bytes) or after."""
    victim: str = "self"
    """self: the process that counts to n; leader: the one that runs the stages; group: all, as a lost machine."""
    error: int = 0
    """Fail with this error in place of an end; then every kind counts, opening and looking too."""
    persistent: bool = False
    """Fail from the n-th on."""


class Armed:
    def __init__(self, plan: Countdown) -> None:
        self.plan = plan
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.trace, self.counter = (REAL["open"](path, flags, 0o644) for path in (plan.trace, f"{plan.trace}.count"))

    def install(self, put: Callable[[Any, str, Any], None] = setattr) -> None:
        for name in BY_HANDLE:
            put(os, name, self.by_handle(name))
        for name in RENAMES:
            put(os, name, self.rename(name))
        if self.plan.error:
            for name in OTHERS:
                put(os, name, self.by_path(name, REAL[name]))
            put(io, "open", self.by_path("open", REAL_OPEN))

    def counted(self) -> int:
        return Path(f"{self.plan.trace}.count").stat().st_size

    def close(self) -> None:
        os.close(self.trace)
        os.close(self.counter)

    def by_handle(self, name: str) -> Callable[..., Any]:
        real = REAL[name]

        def watched(handle: int, *content: Any) -> Any:
            path = path_of(handle)
            if not self.mine(path):
                return real(handle, *content)
            half = [memoryview(part)[: len(part) // 2] for part in content]
            return self.step([name], path, lambda: real(handle, *content), lambda: real(handle, *half))

        return watched

    def rename(self, name: str) -> Callable[..., Any]:
        real = REAL[name]

        def watched(source: Any, target: Any, **options: Any) -> Any:
            path = str(Path(target).absolute())
            if not self.mine(path):
                return real(source, target, **options)
            kinds = ["rename", "checkpoint"] if path.endswith(f"/{CHECKPOINT}") else ["rename"]
            cut = (lambda: os.truncate(source, Path(source).stat().st_size // 2)) if len(kinds) > 1 else (lambda: None)
            return self.step(kinds, path, lambda: real(source, target, **options), cut, os.fspath(source))

        return watched

    def by_path(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(place: Any = ".", *rest: Any, **options: Any) -> Any:
            path = place if isinstance(place, str | os.PathLike) else ""
            if not path or not self.mine(str(Path(path).absolute())):
                return real(place, *rest, **options)
            return self.step([name], os.fspath(path), lambda: real(place, *rest, **options), lambda: None)

        return watched

    def mine(self, path: str) -> bool:
        return path == self.plan.below or path.startswith(f"{self.plan.below}/")

    def step(
        self, kinds: list[str], path: str, act: Callable[[], Any], torn: Callable[[], Any], source: str = ""
    ) -> Any:
        """Do one operation; where the countdown ends here, end or fail."""
        for kind in kinds:
            self.note(kind, path, source)
        if not any(self.ends(kind) for kind in kinds):
            return act()
        if self.plan.error:
            raise OSError(self.plan.error, os.strerror(self.plan.error), path)
        if self.plan.moment == "after" and self.plan.victim != "leader":
            act()
        elif self.plan.moment == "torn" and self.plan.victim != "leader":
            torn()
        if self.plan.victim == "group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getsid(0) if self.plan.victim == "leader" else os.getpid(), signal.SIGKILL)
        return act()  # where it was not this process that ended

    def ends(self, kind: str) -> bool:
        """Count an operation; say whether it is the n-th."""
        plan = self.plan
        wanted = plan.error or kind == plan.kind
        if not plan.at or not wanted or plan.stage not in ("", os.environ.get(STAGE, "")):
            return False
        REAL["write"](self.counter, b".")
        n = os.lseek(self.counter, 0, os.SEEK_CUR)  # the length of the file as of this write, whoever else writes
        return n == plan.at or (plan.persistent and n > plan.at)

    def note(self, kind: str, path: str, source: str = "") -> None:
        at = os.path.relpath(path, self.plan.below)
        by = os.path.relpath(source, self.plan.below) if source else ""
        line = "\t".join((os.environ.get(STAGE, ""), kind, str(os.getpid()), at, by))
        REAL["write"](self.trace, f"{line}\n".encode(errors="replace"))


def path_of(handle: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{handle}").readlink())
    except OSError:
        return ""


def arm() -> Armed | None:
    """Install the countdown that the environment names; None where it names none."""
    text = os.environ.get(PLAN)
    if not text:
        return None
    armed = Armed(Countdown(**json.loads(text)))
    armed.install()
    count_work(armed)
    return armed


def count_work(armed: Armed) -> None:
    """Note every epoch of a training and every encoded clip in the trace: what is done again shows there."""
    from trajpilot_core.stages import features
    from trajpilot_core.training import loop

    run_epoch, encode = loop.run_epoch, features._encode

    def noted_epoch(training: Any, optimizer: Any, generator: Any, state: Any, device: str) -> None:
        armed.note("epoch", f"{armed.plan.below}/{training.name}/s{training.seed}/{state.epoch + 1}")
        run_epoch(training, optimizer, generator, state, device)

    def noted_clips(batch: list[Any], embedder: Any) -> None:
        for state, clip, _ in batch:
            armed.note("clip", f"{armed.plan.below}/{state.take_id}/{clip['segment']}")
        encode(batch, embedder)

    loop.run_epoch, features._encode = noted_epoch, noted_clips


@dataclasses.dataclass(frozen=True)
class Operation:
    """A line of a trace."""

    stage: str
    kind: str
    pid: int
    path: str
    """Relative to the counted folder."""
    source: str


def read_trace(path: Path) -> list[Operation]:
    """Return what was counted, in order; nothing where nothing was."""
    if not path.exists():
        return []
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [Operation(stage, kind, int(pid), at, source) for stage, kind, pid, at, source in rows]


def by_stage(trace: list[Operation]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for operation in trace:
        found[operation.stage][operation.kind].append(operation.path)
    return found
