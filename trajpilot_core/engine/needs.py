"""What a stage needs of a machine before it begins, what the machine has, and what to change where that is less.

Needs are stated by the stages (`Stage.needs`) from the sizes at hand; this file compares and words them. Bytes on the
host are anonymous memory of all processes of the stage: what files map can be dropped and counts for nothing. Imports
neither torch nor Prefect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trajpilot_core.errors import InputError

GB, MB = 10**9, 10**6
WORTH_SAYING = GB
"""Bytes from which on a line of the log says what a stage needs."""


class NeedsMachine(NamedTuple):
    """What of a machine decides how much a stage needs of it."""

    device: str
    """`cpu`, `cuda` or `cuda:<number>`."""
    workers: int
    """Processes at a time."""

    @property
    def is_gpu(self) -> bool:
        """Whether tensors of the models lie on a GPU and not on the host."""
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Need:
    """So many bytes at most, and what lowers them."""

    bytes: int = 0
    lower: tuple[str, ...] = ()
    """Settings as they are written, `predictor.train.batch`, or options, `--workers`; () where none lowers it."""


NOTHING_NEEDED = Need()


@dataclass(frozen=True)
class Needs:
    """What a stage needs at its peak."""

    host: Need
    """Anonymous memory of all its processes."""
    device: Need = NOTHING_NEEDED
    """Memory of the GPU; on a CPU nothing."""
    disk: Need = NOTHING_NEEDED
    """What it writes below the root."""
    scratch: Need = NOTHING_NEEDED
    """What it writes below the root's scratch, or below the system's where the root is remote, until it ends."""

    @property
    def largest(self) -> int:
        """The most bytes of any kind."""
        return max(self.host.bytes, self.device.bytes, self.disk.bytes + self.scratch.bytes)


@dataclass(frozen=True)
class MachineFree:
    """What is free; None where the system does not say, and nothing is refused for it."""

    host: int | None = None
    device: int | None = None
    disk: int | None = None
    scratch: int | None = None
    """Where that is another place than `disk`; None: the same."""


def needs_fit(stated: Callable[[int], Needs], workers: int, free: MachineFree) -> int:
    """Return how many processes at a time fit the host, at most `workers` and at least one.

    Args:
        stated: number of processes -> needs.
        workers: how many were asked for.
        free: what is there.
    """
    if free.host is None:
        return workers
    fitting = (n for n in range(workers, 1, -1) if stated(n).host.bytes <= free.host)
    return next(fitting, 1)


def require_needs(stage: str, needs: Needs, free: MachineFree) -> None:
    """Check that a machine has what a stage needs.

    Args:
        stage: its name.
        needs: what it needs.
        free: what is there.

    Raises:
        InputError: of something it has less; says of what, how much, and what to change.
    """
    missing = lacks(needs, free)
    if missing:
        anyway = "`--ignore-needs`, run.ignore_needs, begins all the same"
        raise InputError(f"stage {stage} cannot begin here: {'; '.join(missing)} ({anyway})")


def lacks(needs: Needs, free: MachineFree) -> list[str]:
    """Return what a machine lacks for a stage: one phrase each, with both figures and what to change."""
    disk, scratch = needs.disk.bytes, needs.scratch.bytes
    lower_disk = needs.scratch.lower + needs.disk.lower
    kinds = [
        ("memory", needs.host, free.host, "end other programs"),
        ("GPU memory", needs.device, free.device, "choose another --device"),
    ]
    if free.scratch is None:
        kinds.append(("disk", Need(disk + scratch, lower_disk), free.disk, "free some, or choose another --root"))
    else:
        kinds.append(("disk", needs.disk, free.disk, "free some, or choose another --root"))
        kinds.append(("temporary disk", needs.scratch, free.scratch, "free some, or set TMPDIR to another disk"))
    return [_lack(what, need, found, otherwise) for what, need, found, otherwise in kinds if _is_less(need, found)]


def _is_less(need: Need, found: int | None) -> bool:
    return found is not None and need.bytes > found


def _lack(what: str, need: Need, found: int | None, otherwise: str) -> str:
    names = " or ".join(name if name.startswith("--") else f"--set {name}" for name in need.lower)
    todo = f"ask for less with {names}, or {otherwise}" if names else otherwise
    return f"it needs {size_text(need.bytes)} of {what}, and {size_text(found or 0)} is free: {todo}"


def size_text(n_bytes: int) -> str:
    """Write a number of bytes in gigabytes as people read it; small ones in megabytes."""
    return f"{n_bytes / GB:.1f} GB" if n_bytes >= GB else f"{-(-n_bytes // MB)} MB"


def needs_text(needs: Needs) -> str:
    """State in a few words what a stage needs."""
    parts = [f"{size_text(needs.host.bytes)} of memory"]
    if needs.device.bytes:
        parts.append(f"{size_text(needs.device.bytes)} of GPU memory")
    parts.append(f"{size_text(needs.disk.bytes + needs.scratch.bytes)} of disk")
    return ", ".join(parts)
