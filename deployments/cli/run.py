"""Commands that compute: `run` and `demo`. No server has to be started by hand."""

from pathlib import Path

import typer

from deployments.cli.options import (
    Data,
    Device,
    Force,
    From,
    MaxRejects,
    Only,
    Recipe,
    Root,
    Set,
    Workers,
    check_corpus,
    configure,
    local_root,
    run_options,
)  # fmt: skip
from deployments.recipes import check_built
from schemas.config import PipelineConfig, RunOptions
from schemas.world import PRESETS, LayoutName, WorldConfig
from trajpilot_core.pipeline import selected
from trajpilot_core.stages.last import remember_run

DELIBERATE = 0.6
"""The simulated world holds many deliberately broken takes."""
CORPORA: dict[LayoutName, str] = {
    "keystep": "egoexo4d_keystep", "basketball": "egoexo4d_basketball", "goalstep": "goalstep", "egoper": "egoper",
    "epic_kitchens": "epic_kitchens",
}  # fmt: skip
"""Layout of a simulated world -> reader of its files."""
WITH_POSES = ("keystep", "basketball")
"""Layouts that release poses; of the others they come from the video."""
WORLDS = {"demo": "demo", "tiny": "demo", "soak": "soak", **{f"tiny_{layout}": "demo" for layout in CORPORA}}
"""Simulated worlds, each with its recipe."""


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(run)
    app.command()(demo)


def run(
    data: Data, root: Root = "runs", recipe: Recipe = "atomic", set_: Set = [], only: Only = [],  # noqa: B006
    from_: From = None, force: Force = [], workers: Workers = 2, device: Device = "auto",  # noqa: B006
    max_rejects: MaxRejects = 0.1,
) -> None:  # fmt: skip
    """Run the pipeline on your own download; what is fresh is reused."""
    config = configure(recipe, set_)
    options = run_options(
        root=str(local_root(root)),
        data_root=check_corpus(data),
        recipe=recipe,
        only=only,
        from_stage=from_,
        force=force,
        workers=workers,
        device=device,
        max_reject_ratio=max_rejects,
    )
    start(config, options, data, None)


def demo(
    root: Root = "runs/demo", world: str = typer.Option("demo", help=f"World to simulate: {', '.join(WORLDS)}."),
    set_: Set = [], only: Only = [], from_: From = None, force: Force = [], workers: Workers = 2,  # noqa: B006
) -> None:  # fmt: skip
    """Simulate a world and run the whole pipeline on it, offline."""
    if world not in WORLDS:
        raise typer.BadParameter(f"{world!r} is not one of {', '.join(WORLDS)}", param_hint="--world")
    simulated, recipe = PRESETS[world](), WORLDS[world]
    config = configure(recipe, [*read_as(simulated), *set_])
    options = run_options(
        root=str(local_root(root)),
        data_root=str(local_root(root) / "world"),
        recipe=recipe,
        only=only,
        from_stage=from_,
        force=force,
        workers=workers,
        max_reject_ratio=DELIBERATE,
    )
    if simulated.layout == "basketball":  # pairs of segments: nothing that the recipe `demo` could plan
        check_built("basketball", selected(options))
    start(config, options, "a SIMULATED world", simulated)


def read_as(world: WorldConfig) -> list[str]:
    """Return the changes of a recipe that read the layout of a simulated world."""
    if world.layout not in CORPORA:
        return []
    changes = [f"ingest.corpus={CORPORA[world.layout]}", "ingest.paraphrase_table=null"]
    return changes if world.layout in WITH_POSES else [*changes, "trajectories.source=odometry"]


def start(config: PipelineConfig, options: RunOptions, what: str, world: WorldConfig | None) -> None:
    """Prepare the place, then hand over to Prefect (imported only here: its settings come first)."""
    check_built(options.recipe, selected(options))
    from deployments.settings import one_thread_per_process, prepare_prefect

    one_thread_per_process()
    place = prepare_prefect(Path(options.root))
    remember_run(config, options)
    from deployments.session import run_session

    run_session(config, options, what, world, place)
