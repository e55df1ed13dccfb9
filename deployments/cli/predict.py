"""Command `predict`: a plan for a user's own video. Needs no server."""

from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deployments.cli.options import Device, Root, Workers, existing_root, explain, located, run_options
from deployments.cli.tables import say, table_of
from schemas.predict import Plan, PlanQuery
from trajpilot_core.errors import InputError


def predict(
    video: Annotated[str, typer.Argument(help="Video of a head camera.")],
    start: Annotated[str, typer.Option("--start", help="Interval of the first action, seconds: 12.0-15.5.")],
    goal: Annotated[str, typer.Option("--goal", help="Interval of the last action, seconds: 60-63.")],
    horizon: Annotated[int, typer.Option("--horizon", help="Steps of the plan, including Start and Goal.")] = 5,
    root: Root = "runs/demo",
    trajectory: Annotated[
        str | None, typer.Option("--trajectory", help="Poses of Project Aria: closed_loop_trajectory.csv.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", help="online_calibration.jsonl of --trajectory; default: next to it.")
    ] = None,
    trajectory_offset_s: Annotated[
        float | None, typer.Option("--trajectory-offset", help="Video time of the first pose of --trajectory, seconds.")
    ] = None,
    poses: Annotated[str, typer.Option("--poses", help="auto, aria, odometry, pi3, or none (No-Traj only).")] = "auto",
    weights: Annotated[str | None, typer.Option("--weights", help="Folder of Pi3's weights, with --poses pi3.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the trained models; default: the first.")] = None,
    frames: Annotated[bool, typer.Option("--frames/--no-frames", help="Show frames of the videos on the page.")] = True,
    out: Annotated[
        str | None, typer.Option("--out", help="Folder for plan.json and plan.html; default: below the root.")
    ] = None,
    device: Device = "auto",
    workers: Workers = 2,
) -> None:
    """Predict the actions between two clips of a video, with the models that a run trained under --root."""
    given = locals() | {"out": out and located(out)}
    try:
        query = PlanQuery.model_validate({name: given[name] for name in PlanQuery.model_fields})
    except ValidationError as error:
        raise InputError(explain(error)) from None
    address = existing_root(root)
    from deployments.settings import one_thread_per_process

    one_thread_per_process()
    from trajpilot_core.predict.page import sentences
    from trajpilot_core.predict.run import predict as predicted

    result, console = predicted(query, run_options(root=address, device=device, workers=workers)), Console()
    if result.plan.simulated:
        console.print("[bold]SIMULATED:[/] models of a simulated world; the plan says nothing about real recordings.")
    console.print(steps_table(console, result.plan))
    for line in (*sentences(result.plan), f"page: {result.folder}/plan.html   JSON: {result.folder}/plan.json"):
        say(console, line)


def steps_table(console: Console, plan: Plan) -> Table:
    """Return the table of the deciding row: five labels for every step; the predicted sequence is marked."""
    from trajpilot_core.predict.page import role

    best = plan.decided
    table = table_of(console, ("step", "", best.scores, "label"), f"{best.name}: five best labels for every step")
    for step in best.steps:
        lines = [(f"{top.score:.3f}", top.label, top.label_id == step.label_id) for top in step.top]
        if not any(is_chosen for *_, is_chosen in lines):
            lines.append(("below", step.label, True))
        for rank, (score, label, is_chosen) in enumerate(lines):
            name = role(step.position, plan.horizon) if rank == 0 else ""
            ends = rank == len(lines) - 1
            table.add_row(name, ">" if is_chosen else "", score, escape(label), end_section=ends)
    return table
