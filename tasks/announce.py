"""Announces a run: its recipe, the changed settings, and the digest of its configuration."""

import logging
from collections.abc import Mapping

from prefect.artifacts import create_table_artifact
from prefect.events import emit_event

from schemas.config import PipelineConfig
from tasks.showing import shown
from trajpilot_core.engine.planning.differences import changed_settings
from trajpilot_core.incoming import literal

LOG = logging.getLogger("trajpilot")
DATA_CHANGED = "trajpilot.data-root.changed"
"""The event that triggers the automation in deployments/prefect.yaml."""
PATIENCE_S = 60.0
"""How long the announcement waits for an unreachable server."""
SHOWN = 6
"""Changes in the log line; the artifact lists all."""


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


def announce_change(data_root: str, news: tuple[str, ...]) -> None:
    """Emit the event that the data root has changed, with the stale stages and the reasons."""
    LOG.info("%s has changed: %s", data_root, "; ".join(news))
    resource = {"prefect.resource.id": f"trajpilot.data-root.{data_root}", "prefect.resource.name": data_root}
    emit_event(event=DATA_CHANGED, resource=resource, payload={"stale": list(news)})
