"""Errors that a user can act on. Each message states the problem, its place, the limit and what to do."""

from schemas.rejects import RejectCode


class TrajPilotError(Exception):
    """Base of all errors that this project raises on purpose."""


class InputError(TrajPilotError):
    """An input as a whole cannot be used (a single bad record is a reject, not an error)."""


class NotBuiltError(InputError):
    """An experiment needs parts that this project does not have."""


class MixedSourcesError(InputError):
    """Head motions of several pose sources, frames or scales are in one set although that was not requested."""


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


class WorkerError(TrajPilotError):
    """A worker process crashed: it was killed, or out of memory."""


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
