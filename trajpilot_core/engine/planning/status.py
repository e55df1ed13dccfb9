"""What is there: state of each stage and where each output came from. Imports neither torch nor Prefect."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import manifest_path, read_run_record, unless_damaged


@dataclass(frozen=True)
class StatusRow:
    """One stage as it stands."""

    plan: PlanRow
    rows: int | None
    """Rows out of the output that counts; None where there is none."""
    rejected: int | None
    started: str | None
    """When it was computed, ISO 8601 in UTC."""
    seconds: float | None
    uri: str | None


def status(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[StatusRow]:
    """Return the state of every stage, in order; files are looked at, not read."""
    folder = open_folder(run.root, run.protocols)
    return [_status_row(folder, row) for row in plan(stages, config, run)]


def _status_row(folder: Folder, row: PlanRow) -> StatusRow:
    manifest = row.current
    ran = None if manifest is None else unless_damaged(read_run_record, folder, manifest.stage, manifest.key)
    return StatusRow(
        plan=row,
        rows=None if manifest is None else manifest.n_out,
        rejected=None if manifest is None else units_lost(manifest.rejected),
        started=None if ran is None else ran.started,
        seconds=None if ran is None else ran.seconds,
        uri=None if manifest is None else f"{folder.url}/{manifest_path(manifest.stage, manifest.key)}",
    )
