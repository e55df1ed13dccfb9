"""What a run is: its recipe, what it changes there, and the fingerprint of its configuration."""

import logging

from prefect.artifacts import create_table_artifact
from prefect.events import emit_event

from schemas.changes import Change
from schemas.config import PipelineConfig

LOG = logging.getLogger("trajpilot")
DATA_CHANGED = "trajpilot.data-root.changed"
"""The event that the trigger of deployments/prefect.yaml waits for."""
SHOWN = 6
"""Changes that the log names; the artifact has all."""


def headline(recipe: str, changes: tuple[Change, ...], config: PipelineConfig) -> str:
    """Say it in one line."""
    told = ", ".join(str(change) for change in changes[:SHOWN])
    rest = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return (
        f"recipe {recipe}, {f'changed: {told}{rest}' if changes else 'nothing changed'}; config {config.digest()[:12]}"
    )


def announce(recipe: str, changes: tuple[Change, ...], config: PipelineConfig) -> None:
    """Log what runs, and publish it with every changed setting."""
    said = headline(recipe, changes, config)
    LOG.info("%s", said)
    rows = [{"setting": c.setting, f"recipe {recipe}": str(c.before), "this run": str(c.after)} for c in changes]
    create_table_artifact(table=rows, key="configuration", description=f"{said} (full digest {config.digest()})")


def announce_change(data_root: str, news: tuple[str, ...]) -> None:
    """Emit the event that the data root has changed, with the stages that are stale and why."""
    LOG.info("%s has changed: %s", data_root, "; ".join(news))
    resource = {"prefect.resource.id": f"trajpilot.data-root.{data_root}", "prefect.resource.name": data_root}
    emit_event(event=DATA_CHANGED, resource=resource, payload={"stale": list(news)})
