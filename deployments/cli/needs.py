"""What the stages of a run say that they need, as `plan` and `doctor` show it. Imports neither torch nor Prefect."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from deployments.cli.tables import say, show
from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.admission import machine_free
from trajpilot_core.engine.needs import size_text
from trajpilot_core.engine.planning.stated import StatedNeeds, manifests_of, needs_cells, stated_needs
from trajpilot_core.stages import EVERY_STAGE, stages_of
from trajpilot_core.store.files import open_folder

COLUMNS = ("stage", "memory", "GPU memory", "disk", "how to lower it")


def needs_of_run(config: PipelineConfig, run: RunOptions) -> StatedNeeds:
    """Return what every stage needs at the sizes of what lies below the root.

    Raises:
        InputError: the device is not there.
        StoreError: the root cannot be opened.
    """
    folder = open_folder(run.root, run.protocols)
    return stated_needs(stages_of(config), config, run, outputs(run), folder)


def outputs(run: RunOptions) -> dict[str, Manifest | None]:
    """Return stage -> its output that counts below the root, None where there is none."""
    return manifests_of(open_folder(run.root, run.protocols), EVERY_STAGE)


def show_planned(
    console: Console,
    names: Sequence[str],
    config: PipelineConfig,
    run: RunOptions,
    found: Mapping[str, Manifest | None],
) -> StatedNeeds:
    """Show a table of what stages that would compute need at most, and what is free; nothing where none would.

    Args:
        console: where to.
        names: the stages.
        config: of the run.
        run: of the run.
        found: stage -> its output that counts.

    Returns:
        What was shown.
    """
    folder = open_folder(run.root, run.protocols)
    stated = stated_needs(stages_of(config), config, run, found, folder).of(names)
    if not names:
        return stated
    show_needs(console, stated)
    free = machine_free(folder, run)
    there = [f"{size_text(n)} of {what}" for what, n in (("memory", free.host), ("disk", free.disk)) if n is not None]
    say(console, f"free here: {', '.join(there) or 'unknown'}")
    return stated


def show_needs(console: Console, stated: StatedNeeds) -> None:
    """Show a table of what stages need at most."""
    cells = []
    for name, needs in stated.by_stage.items():
        *figures, lower = needs_cells(needs)
        cells.append((name, *figures, f"less with {lower}" if lower else "nothing lowers it"))
    show(console, COLUMNS, cells, "what each stage needs at most")
    say(console, f"needs at {stated.basis()}")
