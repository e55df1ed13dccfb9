"""Commands that compute: `run`, `demo`. They start their own server."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import (
    Device,
    Force,
    From,
    Only,
    Recipe,
    Root,
    Set,
    Workers,
    change,
    check_corpus,
    local_root,
    located,
    run_options,
)
from deployments.recipes import recipe as named
from schemas.config import IngestConfig, PipelineConfig, RunOptions
from schemas.world import WorldConfig
from trajpilot_core.corpora.registry import corpus_of_layout
from trajpilot_core.data.other_runs import starting_from
from trajpilot_core.engine.settings import remember_run
from trajpilot_core.simworld.sample import PRESETS
from trajpilot_core.stages import selected

DEFAULTS = RunOptions()
DELIBERATE = 0.6
"""Allowed share of rejects: simulated worlds contain many deliberately broken takes."""
OWN_RECIPES = {
    "soak": "soak",
    "tiny_keystep": "demo_keystep",
    "tiny_goalstep": "demo_goalstep",
    "tiny_egoper": "demo_egoper",
    "tiny_epic_kitchens": "demo_epic_kitchens",
    "tiny_epic_released": "demo_epic_kitchens",
    "tiny_basketball": "demo_basketball",
    "court": "demo_basketball",
}
WORLDS = {name: OWN_RECIPES.get(name, "demo") for name in PRESETS}
"""Simulated world -> its recipe."""


def run(
    data: Annotated[str, typer.Option("--data", help="Folder of the downloaded corpus.")],
    root: Root = "runs",
    recipe: Recipe = "atomic",
    set_: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    from_: From = None,
    force: Force = [],  # noqa: B006
    workers: Workers = 2,
    device: Device = "auto",
    max_rejects: Annotated[
        float, typer.Option("--max-rejects", help="Largest share of damaged rows in a stage.")
    ] = DEFAULTS.max_reject_ratio,
    checkpoint_s: Annotated[
        float,
        typer.Option("--checkpoint-s", min=0, help="Seconds between checkpoints of a training; 0: after each epoch."),
    ] = DEFAULTS.checkpoint_s,
    pretrained: Annotated[
        str | None,
        typer.Option(
            "--pretrained", help="Root of a finished run: its dev captures, folds, E_tau and predictors are the start."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all that is needed, show the plan, and stop.")
    ] = False,
) -> None:
    """Run the pipeline on your own download; fresh outputs are reused."""
    config = change(named(recipe), set_)
    if pretrained is not None:
        config = starting_from(config, located(pretrained))
    options = run_options(
        root=str(local_root(root)),
        data_root=check_corpus(data),
        recipe=recipe,
        only=only,
        from_stage=from_,
        force=force,
        workers=workers,
        device=device,
        checkpoint_s=checkpoint_s,
        max_reject_ratio=max_rejects,
    )
    if not dry_run:
        start(config, options, data, None)
        return
    from deployments.cli.doctor import show
    from deployments.cli.inspect import show_plan
    from trajpilot_core.doctor.checks import check_corpus as corpus_findings
    from trajpilot_core.doctor.checks import check_device
    from trajpilot_core.doctor.weights import preflight

    findings = [check_device(options.device)]
    if findings[0].verdict != "bad":
        findings += corpus_findings(options.data_root, config.ingest)
        findings += preflight(config, options, selected(options, config))
        show_plan(config, options)
    sys.exit(show(findings))


def demo(
    root: Root = "runs/demo",
    world: str = typer.Option("demo", help=f"World to simulate: {', '.join(WORLDS)}."),
    set_: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    from_: From = None,
    force: Force = [],  # noqa: B006
    workers: Workers = 2,
) -> None:
    """Simulate a world and run the whole pipeline on it, offline."""
    if world not in WORLDS:
        raise typer.BadParameter(f"{world!r} is not one of {', '.join(WORLDS)}", param_hint="--world")
    simulated, recipe = PRESETS[world](), WORLDS[world]
    config = change(named(recipe), [*read_as(simulated), *set_])
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
    from trajpilot_core.simworld.write import refuse_other_world

    refuse_other_world(simulated, Path(options.data_root))
    start(config, options, "a SIMULATED world", simulated)


def read_as(world: WorldConfig) -> list[str]:
    """Return the --set changes with which a recipe reads the layout and released features of a simulated world."""
    spec = corpus_of_layout(world.layout)
    read = [] if world.released is None else ["features.source=released", f"features.released={world.released}"]
    read += [] if world.videos else ["ingest.video=none"]
    if spec.name == IngestConfig().corpus:
        return read
    changes = [f"ingest.corpus={spec.name}", "ingest.paraphrase_table=null", *read]
    if spec.download.pose_file:
        return changes
    return [*changes, "trajectories.source=odometry" if world.videos else "action_token.is_asked=false"]


def start(config: PipelineConfig, options: RunOptions, what: str, world: WorldConfig | None) -> None:
    """Prepare the environment, then start the run (Prefect is imported only here: its settings come first).

    Raises InputError: a requested stage is not part of the run; nothing has been written then.
    """
    selected(options, config)
    from deployments.settings import hand_over_api_key, one_thread_per_process, prepare_prefect

    one_thread_per_process()
    hand_over_api_key()
    home, server = prepare_prefect(Path(options.root))
    remember_run(config, options)
    from deployments.session import session
    from flows import pipeline

    with session(config, options, what, home, server):
        if world is None:
            pipeline.full_pipeline(config, options)
        else:
            pipeline.demo(world, config, options)
