"""Errors that a user can act on. Each message states what was found, where, what was allowed, what to do."""

from schemas.rejects import RejectCode


class TrajPilotError(Exception):
    """Base of all errors that this project raises on purpose."""


class InputError(TrajPilotError):
    """An input as a whole cannot be used (a single bad record is a reject, not an error)."""


class NotBuiltError(InputError):
    """An experiment of the paper needs parts that this project does not have yet."""


class MixedSourcesError(InputError):
    """Head motions of several pose sources, frames or scales stand in one set although that was not requested."""


class StoreError(TrajPilotError):
    """An artifact is absent, damaged, or requested by a stage that did not declare it."""


class StoreIOError(StoreError, OSError):
    """The disk or the object store failed under the artifact store; trying again may help."""


class VersionError(StoreError):
    """An artifact is whole, but another version of this project wrote it."""


class CheckpointError(TrajPilotError):
    """A weight file is not of the layout or digest that was expected."""


class TrainingError(TrajPilotError):
    """A training cannot go on."""


class WorkerError(TrajPilotError):
    """A process that did part of the work crashed: it was killed, or out of memory."""


class StagesFailedError(TrajPilotError):
    """Stages of a run failed; it names each with its error, and the stages that did not run because of them."""


class TakeFault(TrajPilotError):
    """One take cannot be used. It becomes a reject with `code`, never the end of a run."""

    def __init__(self, code: RejectCode, detail: str, source_file: str | None = None) -> None:
        super().__init__(f"{code}: {detail}" + (f" ({source_file})" if source_file else ""))
        self.code, self.detail, self.source_file = code, detail, source_file


class LeakError(TrajPilotError):
    """Data that a query must not see (its own take, dev, test) reached its bank or its pool."""


class WorldError(TrajPilotError):
    """The simulated world cannot be written where it was asked for."""


class MethodError(TrajPilotError):
    """The declaration of a row of the tables contradicts itself, or there is no such row."""
