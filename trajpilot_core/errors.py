"""Errors that a user can act on, and the commands that they name, which work when pasted into a shell.

Each message states the problem, its place, the limit and what to do.
"""

import shlex
import sys
from pathlib import Path

from schemas.rejects import RejectCode


class TrajPilotError(Exception):
    """Base of all errors that this project raises on purpose."""


class InputError(TrajPilotError):
    """An input as a whole cannot be used (a single bad record is a reject, not an error)."""


class NotBuiltError(InputError):
    """An experiment needs parts that this project does not have."""


class MixedSourcesError(InputError):
    """Head motions of several pose sources, frames or scales are in one set."""


class StoreError(TrajPilotError):
    """An artifact is missing, damaged, or requested by a stage that did not declare it."""


class StoreIOError(StoreError, OSError):
    """The disk or the object store failed under the artifact store; trying again may help."""


class VersionError(StoreError):
    """An artifact is intact, but was written by another version of this project."""


class CheckpointError(TrajPilotError):
    """A weight file does not have the expected layout or digest."""


class TrainingError(TrajPilotError):
    """A training cannot continue."""


class StagesFailedError(TrajPilotError):
    """Stages of a run failed; it names each with its error, and the stages that did not run because of them."""


class TakeFault(TrajPilotError):
    """One take cannot be used. It becomes a reject with `code` and never ends a run."""

    def __init__(self, code: RejectCode, detail: str, source_file: str | None = None) -> None:
        super().__init__(f"{code}: {detail}" + (f" ({source_file})" if source_file else ""))
        self.code, self.detail, self.source_file = code, detail, source_file


class LeakError(TrajPilotError):
    """Data that a query must not see (its own take, dev, test) reached its bank or its pool."""


class WorldError(TrajPilotError):
    """The simulated world cannot be written at the requested place."""


class MethodError(TrajPilotError):
    """The declaration of a row is inconsistent, or there is no such row."""


CHECKOUT = Path(__file__).parents[1]


def command(*words: str, program: str = "trajpilot") -> str:
    """Format a command for a new shell: with the path of a program next to this Python, quoted where needed.

    Format folders among the words with `shown`.
    """
    installed = Path(sys.executable).absolute().parent / program
    return shlex.join([shown(installed) if installed.exists() else program, *words])


def shown(place: str | Path) -> str:
    """Format a path: relative if it is in the checkout and that is the current folder, else absolute."""
    if "://" in str(place):
        return str(place)
    path = Path(place).absolute()
    is_short = Path.cwd() == CHECKOUT and path.is_relative_to(CHECKOUT) and path != CHECKOUT
    return str(path.relative_to(CHECKOUT) if is_short else path)
