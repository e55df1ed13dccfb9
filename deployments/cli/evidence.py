"""Commands `claims` and `docs`: the evidence in the simulated world, and the pages that are rendered from it."""

from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import Device
from schemas.claims import ClaimsConfig

Docs = Annotated[Path, typer.Option("--docs", help="Folder of the pages; tables lie in its folder claims.")]


World = Annotated[list[str], typer.Option("--world", help="Only this world: base, or base-s3 (repeatable).")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(claims)
    app.command("docs")(pages)


def claims(
    root: Annotated[Path, typer.Option("--root", help="Everything that is computed lies under this folder.")] = Path(
        "runs/claims"
    ),
    docs: Docs = Path("docs"),
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Worlds side by side.")] = 2,
    world: World = [],  # noqa: B006
    device: Device = "auto",
    dry: Annotated[bool, typer.Option("--dry", help="List worlds and estimated hours; compute nothing.")] = False,
) -> None:
    """Compute the simulated worlds of the claims and their controls; goes on where it stopped."""
    from deployments.recipes.worlds import claims as fixed_recipe
    from trajpilot_core.studies.claims.worlds.plan import chosen

    worlds = chosen(ClaimsConfig(), world)
    if dry:
        from trajpilot_core.studies.claims.worlds.cost import plan_text

        for line in plan_text(worlds, fixed_recipe()):
            typer.echo(line)
        return
    from trajpilot_core.studies.claims.worlds.collect import require_fixed

    require_fixed(ClaimsConfig(), fixed_recipe())
    from deployments.settings import one_thread_per_process, prepare_prefect

    one_thread_per_process()
    place = prepare_prefect(root)
    from deployments.session import run_claims

    run_claims(root, docs, jobs, device, tuple(world), place)


def pages(
    docs: Docs = Path("docs"),
    poses: Annotated[
        str | None, typer.Option("--poses", help="Root of a run with the stage pose_sources, whose verdict is kept.")
    ] = None,
) -> None:
    """Render the pages of the evidence from the tables that lie next to them; computes nothing."""
    from trajpilot_core.studies.claims.evidence.poses import keep_poses
    from trajpilot_core.studies.claims.pages.page import FOLDER
    from trajpilot_core.studies.pages import write_pages

    if poses is not None:
        typer.echo(str(keep_poses(poses, docs / FOLDER)))
    for path in write_pages(docs):
        typer.echo(str(path))
