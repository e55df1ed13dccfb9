"""What a run is: its recipe, what it changes there, and the fingerprint of its configuration."""

import logging
from collections.abc import Mapping

from prefect.artifacts import create_table_artifact
from prefect.events import emit_event

from schemas.config import PipelineConfig
from tasks.showing import shown
from trajpilot_core.engine.planning.differences import changed_settings
from trajpilot_core.markdown_escape import literal

LOG = logging.getLogger("trajpilot")
DATA_CHANGED = "trajpilot.data-root.changed"
"""The event that the trigger of deployments/prefect.yaml waits for."""
PATIENCE_S = 60.0
"""How long the announcement waits for a server that is away."""
SHOWN = 6
"""Changes that the log names; the artifact has all."""


def headline(recipe: str, changes: Mapping[str, tuple[str, str]], config: PipelineConfig) -> str:
    """State in one line what runs."""
    listed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in [*changes.items()][:SHOWN])
    rest = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    said = f"changed: {listed}{rest}" if changes else "nothing changed"
    return f"recipe {recipe}, {said}; config {config.digest()[:12]}"


def announce(recipe: str, base: PipelineConfig, config: PipelineConfig) -> None:
    """Log what runs, and publish it with every setting that differs from its recipe `base`."""
    changes = changed_settings(base.content(), config.content())
    said = headline(recipe, changes, config)
    LOG.info("%s", said)
    rows = [
        {"setting": name, f"recipe {recipe}": literal(old), "this run": literal(new)}
        for name, (old, new) in changes.items()
    ]
    description = literal(f"{said} (full digest {config.digest()})")
    shown(
        "configuration",
        lambda: create_table_artifact(table=rows, key="configuration", description=description),
        PATIENCE_S,
    )


def announce_change(data_root: str, news: tuple[str, ...]) -> None:
    """Emit the event that the data root has changed, with the stages that are stale and why."""
    LOG.info("%s has changed: %s", data_root, "; ".join(news))
    resource = {"prefect.resource.id": f"trajpilot.data-root.{data_root}", "prefect.resource.name": data_root}
    emit_event(event=DATA_CHANGED, resource=resource, payload={"stale": list(news)})
