"""What people see while a stage runs and after it: log lines, progress and tables in the Prefect UI."""

import logging
import time
from types import TracebackType
from typing import Self, cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from tasks.showing import shown
from tasks.texts import literal
from trajpilot_core.stages.execute import Outcome

LOG = logging.getLogger("trajpilot")
UPDATE_EVERY_S = 2.0
LOG_EVERY_S = 20.0
PATIENCE_S = 60.0
"""How long what a stage leaves waits for a server that is away; its progress does not wait."""


def artifact_key(name: str) -> str:
    """Return the key under which the UI keeps the history of a stage's artifacts."""
    return name.replace("_", "-").replace(".", "-")


def log_line(stage: str, message: str, seconds: float) -> None:
    """Log the one line that a stage leaves."""
    LOG.info("%-12s %s  (%.0f s)", stage, message, seconds, extra={"stage": stage})


class StageProgress:
    """Callable that forwards progress to the UI and the log, at most every few seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()
        self.shown = self.logged = self.started
        self.artifact: UUID | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self.started

    def __enter__(self) -> Self:
        LOG.info("%-12s started", self.name, extra={"stage": self.name, "progress": 0.0})
        return self

    def __call__(self, done: int, total: int, what: str) -> None:
        """Report that `done` of `total` pieces of work are finished."""
        now = time.monotonic()
        if now - self.shown < UPDATE_EVERY_S and done < total:
            return
        self.shown = now
        self.show(100.0 * done / max(total, 1), what)
        if now - self.logged >= LOG_EVERY_S:
            self.logged = now
            LOG.info(
                "%-12s %d of %d %s",
                self.name,
                done,
                total,
                what,
                extra={"stage": self.name, "progress": done / max(total, 1)},
            )

    def show(self, percent: float, what: str) -> None:
        """Move the progress artifact of this stage."""
        shown(f"progress of {self.name}", lambda: self.move(percent, what))

    def move(self, percent: float, what: str) -> None:
        """Make the progress artifact, or bring it up to date."""
        if self.artifact is None:
            key = artifact_key(f"{self.name}-progress")
            made = create_progress_artifact(progress=percent, key=key, description=f"{self.name}: {literal(what)}")
            self.artifact = cast(UUID, made)
        else:
            update_progress_artifact(self.artifact, progress=percent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.artifact is not None:
            self.show(100.0, "done")


def publish_outcome(name: str, outcome: Outcome) -> None:
    """Log the stage's line and publish its counts as a table."""
    log_line(name, outcome.message(), outcome.seconds)
    key, told = artifact_key(name), f"**{name}**: {literal(outcome.message())}"
    shown(
        f"table of {name}",
        lambda: create_table_artifact(table=outcome.summary(), key=key, description=told),
        PATIENCE_S,
    )


def publish_report(report: str) -> None:
    """Publish where the report lies."""
    markdown, told = f"Report: {literal(report)}", "Where the report lies"
    shown(
        "place of the report",
        lambda: create_markdown_artifact(markdown=markdown, key="report-place", description=told),
        PATIENCE_S,
    )
