"""What a run shows in the Prefect UI: its announcement, log lines, progress, tables and pictures of a stage.

Publishing must not stop the work: while the server is unreachable, it is skipped.
"""

import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, cast
from uuid import UUID

import httpx
from prefect.artifacts import (
    Artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from schemas.config import PipelineConfig
from trajpilot_core.engine.planning.staleness import changed_settings
from trajpilot_core.incoming import literal

if TYPE_CHECKING:
    from trajpilot_core.report.figures.base import Picture

T = TypeVar("T")
POLL_S = 5.0
LOG = logging.getLogger("trajpilot")
UPDATE_EVERY_S = 1.0
LOG_EVERY_S = 20.0
PATIENCE_S = 60.0
"""How long results of a stage wait for an unreachable server; progress does not wait."""
SHOWN = 6
"""Changes in the log line; the artifact lists all."""
CONTENT = " · of content "
"""In a picture's description, before the mark that identifies its content."""


def shown(what: str, publish: Callable[[], T], patience_s: float = 0.0) -> T | None:
    """Publish something; None where the server did not answer, or failed, for `patience_s` seconds.

    With `patience_s` a skipped publication is logged as a warning.

    Raises:
        httpx.HTTPStatusError: the server refused it (4xx), which is a bug here.
    """
    limit = time.monotonic() + patience_s
    while True:
        try:
            return publish()
        except httpx.HTTPError as error:
            if not is_away(error):
                raise
            if time.monotonic() >= limit:
                level = logging.WARNING if patience_s else logging.DEBUG  # progress is sent again within seconds
                LOG.log(level, "%s is not shown in the UI: the Prefect server is unreachable (%s)", what, error)
                return None
        time.sleep(min(POLL_S, max(0.0, limit - time.monotonic())))


def is_away(error: httpx.HTTPError) -> bool:
    """Return whether an error means that the server, or its database, is unreachable."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, httpx.TransportError)


LOG.setLevel(logging.INFO)  # Prefect shows this logger's lines in its UI; its level is set here


def artifact_key(name: str) -> str:
    """Return the key under which the UI keeps the history of an artifact, e.g. of a stage or one of its pictures."""
    return name.replace("_", "-").replace(".", "-")


def log_line(stage: str, message: str, seconds: float) -> None:
    """Log the final line of a stage."""
    LOG.info("%-13s %s  (%.0f s)", stage, message, seconds)


class StageProgress:
    """Callable that forwards progress to the UI and the log, at most every second; from 0 % to 100 %."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.monotonic()
        self.shown = self.logged = self.started
        self.artifact: UUID | None = None
        self.percent = 0.0
        self.ended = "done"
        """Final message."""

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.monotonic() - self.started

    def __enter__(self) -> Self:
        LOG.info("%-13s started", self.name)
        self.show(0.0, "checking what exists")
        return self

    def __call__(self, done: int, total: int, what: str) -> None:
        """Report that `done` of `total` units are finished; `what` names them, with optional details."""
        now = time.monotonic()
        if now - self.shown < UPDATE_EVERY_S:
            return
        self.shown = now
        line = f"{done:,} of {total:,} {what}"
        self.show(100.0 * done / max(total, 1), line)
        if now - self.logged >= LOG_EVERY_S:
            self.logged = now
            LOG.info("%-13s %s", self.name, line)

    def show(self, percent: float, what: str) -> None:
        """Create or update the progress artifact in the UI, if the server answers."""
        self.percent, text = percent, f"**{literal(self.name)}**: {literal(what)}"
        about, key = f"progress of {self.name}", artifact_key(f"{self.name}-progress")
        if self.artifact is None:
            made = shown(about, lambda: create_progress_artifact(progress=percent, key=key, description=text))
            self.artifact = cast(UUID | None, made)
        else:
            known = self.artifact
            shown(about, lambda: update_progress_artifact(known, progress=percent, description=text))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.show(100.0, self.ended)
        elif isinstance(error, Exception):
            self.show(self.percent, f"failed: {type(error).__name__}: {error}")


def is_shown(key: str, mark: str) -> bool:
    """Return whether the newest artifact of a key has this content mark, so that it need not be drawn again."""
    newest = shown(f"the picture {key}", lambda: cast(Artifact | None, Artifact.get(key)))
    return newest is not None and (newest.description or "").endswith(CONTENT + mark)


def publish_picture(stage: str, picture: "Picture", mark: str) -> None:
    """Publish a picture as a page; without a picture the page gives the reason."""
    shown_text = f"![{picture.title}]({picture.uri})\n\n{picture.text}"
    text = shown_text if picture.uri else f"No picture: {literal(picture.text)}"
    page = f"## {picture.title}\n\n{text}\n"
    publish_page(artifact_key(f"{stage}-{picture.name}"), picture.title + CONTENT + mark, page)


def publish_page(key: str, title: str, page: str) -> None:
    """Publish a page of Markdown."""
    shown(title, lambda: create_markdown_artifact(markdown=page, key=key, description=title), PATIENCE_S)


def headline(recipe: str, changes: Mapping[str, tuple[str, str]], config: PipelineConfig) -> str:
    """Return one line that describes the run."""
    listed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in [*changes.items()][:SHOWN])
    rest = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    summary = f"changed: {listed}{rest}" if changes else "nothing changed"
    return f"recipe {recipe}, {summary}; config {config.digest()[:12]}"


def announce(recipe: str, base: PipelineConfig, config: PipelineConfig) -> None:
    """Log the run, and publish every setting that differs from its recipe `base`."""
    changes = changed_settings(base.content(), config.content())
    line = headline(recipe, changes, config)
    LOG.info("%s", line)
    rows = [
        {"setting": name, f"recipe {recipe}": literal(old), "this run": literal(new)}
        for name, (old, new) in changes.items()
    ]
    description = literal(f"{line} (full digest {config.digest()})")
    shown(
        "configuration",
        lambda: create_table_artifact(table=rows, key="configuration", description=description),
        PATIENCE_S,
    )
