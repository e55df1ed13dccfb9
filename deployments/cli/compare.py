"""Command `compare`: two runs against each other."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli.tables import say, table_of
from schemas.annotation import SIMULATED
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES

if TYPE_CHECKING:
    from trajpilot_core.evaluation.comparison import InputDifference
    from trajpilot_core.evaluation.paired import PairedMetric, Pairing

Run = Annotated[str, typer.Argument(help="Root of a run, or ROOT@KEY for an earlier evaluation.")]
Metrics = Annotated[
    list[str], typer.Option("--metric", help="Metric to compare (repeatable): M@1, M@5, MSeq, F@1, F@5, FSeq.")
]
SHOWN = 5


def compare(first: Run, second: Run, metric: Metrics = ["M@1", "MSeq"]) -> None:  # noqa: B006
    """Compare settings, inputs and metrics of two runs; differences are second - first, paired over takes."""
    from trajpilot_core.evaluation import comparison as comparing
    from trajpilot_core.metrics import with_ceiling

    wrong = [name for name in metric if name not in with_ceiling()]
    if wrong:
        raise InputError(f"--metric {wrong[0]}: no such metric; choose from {', '.join(with_ceiling())} (no plugins)")
    sides = [comparing.open_side(name, STAGES) for name in (first, second)]
    console = Console()
    if any(SIMULATED in comparing.corpora_of(side) for side in sides):
        console.print("These runs use a SIMULATED world; their numbers say nothing about real data.")
    settings = comparing.settings(sides[0], sides[1], STAGES)
    table = table_of(console, ("setting", "first", "second"), "settings that differ")
    for name, values in settings.items():
        table.add_row(escape(name), *map(escape, values))
    console.print(table if settings else "settings: the same")
    for line in input_lines(comparing.inputs(*sides)):
        say(console, line)
    show_metrics(console, comparing.metrics(*sides), metric)


def input_lines(differences: "InputDifference") -> list[str]:
    """Return lines that list the takes whose data differ."""
    parts = {
        "takes of the first run only": differences.only_first,
        "takes of the second run only": differences.only_second,
    }
    parts |= {"takes in another split": differences.moved}
    parts |= {f"takes whose {entry} differ": takes for entry, takes in differences.changed.items()}
    lines = [f"inputs: {len(takes):,} {what}: {listed(takes)}" for what, takes in parts.items() if takes]
    lines += [f"inputs: {entry} of one run no longer exist and cannot be compared" for entry in differences.unknown]
    return lines or ["inputs: the same"]


def listed(names: Sequence[str]) -> str:
    """Return the first few names."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def show_metrics(console: Console, pairing: "Pairing", wanted: Sequence[str]) -> None:
    """Print the paired metrics, and what could not be paired."""
    if pairing.unpaired:
        takes = f"{len(pairing.unpaired):,} takes were scored by one run only, or on other windows or labels"
        say(console, f"metrics: {takes}: {listed(pairing.unpaired)}")
    if pairing.horizons_left:
        say(console, f"metrics: horizons of one run only, left out: {', '.join(map(str, pairing.horizons_left))}")
    for which, rows in (("first", pairing.only_first), ("second", pairing.only_second)):
        if rows:
            say(console, f"metrics: only the {which} run has the rows {', '.join(rows)}")
    if not pairing.metrics:
        console.print("metrics: no take was scored by both runs on the same windows; nothing to compare")
        return
    title = f"metrics on {pairing.n_takes:,} takes, mean over horizons, percent; 95 % intervals over takes"
    table = table_of(console, ("row", "metric", "first", "second", "second - first", "interval", ""), title)
    for row in pairing.metrics:
        if row.metric in wanted:
            table.add_row(row.variant, row.metric, f"{row.first:.2f}", f"{row.second:.2f}", *difference(row))
    console.print(table)
    console.print("Each interval covers one difference: of many, about one in twenty excludes zero by chance.")


def difference(row: "PairedMetric") -> tuple[str, str, str]:
    """Format a difference, its interval, and the verdict."""
    if math.isinf(row.low):
        return f"{row.difference:+.2f}", f"none: {row.n_takes} takes are too few", ""
    verdict = "higher" if row.low > 0 else "lower" if row.high < 0 else "equal" if row.low == row.high else "undecided"
    return f"{row.difference:+.2f}", f"{row.low:+.2f} to {row.high:+.2f}", verdict
