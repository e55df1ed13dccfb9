"""Command `workers`: what this machine can do for a Prefect server."""

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from trajpilot_core.store.locations import resolved

ENDING = (signal.SIGINT, signal.SIGTERM)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(workers)


def workers(
    gpu_workers: Annotated[
        int | None,
        typer.Option("--gpu-workers", min=0, help="Workers of the GPU pool; else one per GPU, or one on the CPU."),
    ] = None,
    cpu_workers: Annotated[int, typer.Option("--cpu-workers", min=0, help="Workers of the CPU pool.")] = 1,
    cpu_limit: Annotated[int, typer.Option("--cpu-limit", min=1, help="Runs that each of those does at a time.")] = 2,
    logs: Annotated[Path, typer.Option("--logs", help="Folder for a log of each worker.")] = Path("runs/workers"),
) -> None:
    """Start what this machine has for the server that PREFECT_API_URL names, until Ctrl-C.

    One process worker per visible GPU, each with one run at a time, and workers for the CPU pool. A worker that ends is
    started again. Ctrl-C ends all of them with the runs that they do; what those finished is kept.
    """
    from deployments.settings import GPU_POOL, named_gpus, server_login, server_of_deployments
    from deployments.workers import Keeper, planned, refuse_unready
    from trajpilot_core.engine.resolve import gpu_count

    plans = planned(named_gpus(gpu_count()), gpu_workers, cpu_workers, cpu_limit)
    server = server_of_deployments()
    refuse_unready(server, server_login()[0], sorted({plan.pool for plan in plans}))
    typer.echo(f"workers for {server}; Ctrl-C ends them and their runs")
    if any(plan.pool == GPU_POOL and plan.gpu is None for plan in plans):
        typer.echo("no GPU that torch can use is visible: what wants a GPU runs on the CPU of this machine")
    for number in ENDING:
        signal.signal(number, stop)
    try:
        Keeper(plans, resolved(logs), typer.echo).keep()
    except KeyboardInterrupt:
        return


def stop(_: int, frame: FrameType | None) -> None:
    """End once; asking again does not hurry it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
