"""The columns and rows of the paper's tables of closed vocabularies; a cell that no run fills says "not run".

Source: arXiv 2605.20388, its tables of closed-vocabulary planning (overall, per horizon), its figure of planning on
atomic actions (right panel), and its table of hyperparameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from trajpilot_core.methods import method
from trajpilot_core.metrics import METRICS
from trajpilot_core.paper.published import (
    CLOSED_ATOMIC,
    CLOSED_FULL,
    CLOSED_OVERALL,
    CLOSED_ROWS,
    CLOSED_SETTINGS,
    HORIZONS,
)
from trajpilot_core.report.tables.closed import FULL, OVERALL, PANEL
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import TIE
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value
from trajpilot_core.studies.paper_tables.cells import CLOSED_PANEL, PaperCell

TITLES: Mapping[str, str] = {"keystep": "Keystep", "goalstep": "GoalStep", "egoper": "EgoPER"}
"""Benchmark -> as the tables print it."""
PRINTED: Mapping[str, str] = {"Mid mAcc": "mAcc", "M@1": "Mid R@1", "M@5": "Mid R@5", "MSeq": "Mid Seq"}
"""Metric -> as these tables of the paper print it, where that differs."""
DIGITS = 2
UNDERTRAINED = "†"
PlacedCells = Mapping[tuple[str, int | None, str, str], PaperCell]
"""(row, horizon, dataset, metric) -> cell."""


def closed_tables(cells: Sequence[PaperCell]) -> dict[str, Table]:
    """Return the paper's label -> its table, all of them, whatever was run."""
    made = {
        CLOSED_OVERALL: overall_table(_found(cells, CLOSED_OVERALL)),
        CLOSED_FULL: full_table(_found(cells, CLOSED_FULL)),
        CLOSED_PANEL: panel_table(_found(cells, CLOSED_PANEL)),
        CLOSED_SETTINGS: settings_table(_found(cells, CLOSED_SETTINGS)),
    }
    return {label: _with_note(table, [cell for cell in cells if cell.table == label]) for label, table in made.items()}


def overall_table(found: PlacedCells) -> Table:
    """Lay out the means over the horizons: three columns for each benchmark; Oracle stands below a line."""
    columns = tuple(product(TITLES, OVERALL))
    rows = [(row_name(row), *_cells(found, row, None, columns)) for row in CLOSED_ROWS]
    return Table(
        "Closed-vocabulary planning, mean of the horizons",
        ("Method", *map(_head, columns)),
        tuple(rows),
        over=_over(1, len(OVERALL)),
        rules=(len(rows) - 1,),
    )


def full_table(found: PlacedCells) -> Table:
    """Lay out every horizon: four columns for each benchmark, six rows for each horizon, 432 cells."""
    columns = tuple(product(TITLES, FULL))
    rows = [
        (str(horizon) if row == CLOSED_ROWS[0] else "", row_name(row), *_cells(found, row, horizon, columns))
        for horizon, row in product(HORIZONS, CLOSED_ROWS)
    ]
    return Table(
        "Closed-vocabulary planning, each horizon",
        ("H", "Method", *map(_head, columns)),
        tuple(rows),
        over=_over(2, len(FULL)),
        rules=tuple(range(len(CLOSED_ROWS), len(rows), len(CLOSED_ROWS))),
    )


def panel_table(found: PlacedCells) -> Table:
    """Lay out the right panel of the figure: classes of atomic descriptions, means over all windows."""
    columns = tuple((CLOSED_ATOMIC, metric) for metric in PANEL)
    rows = [(row_name(row), *_cells(found, row, None, columns)) for row in CLOSED_ROWS]
    title = "Planning on classes of atomic descriptions, means over all windows"
    return Table(title, ("Method", *map(_head, columns)), tuple(rows), rules=(len(rows) - 1,))


def settings_table(found: PlacedCells) -> Table:
    """Lay out the hyperparameters of each benchmark."""

    def value(dataset: str, name: str) -> str:
        cell = found.get((dataset, None, "", name))
        return NOTHING if cell is None else f"{cell.value:g}"

    names = ("labels", "lambda_bridge", "transition_weight", "smoothing", "temperature")
    header = ("Benchmark", "|V|", "λ bridge", "Trans. w", "Smoothing", "Temp.")
    rows = tuple((title, *(value(dataset, name) for name in names)) for dataset, title in TITLES.items())
    return Table("Hyperparameters of the closed benchmarks", header, rows)


def _found(cells: Sequence[PaperCell], table: str) -> PlacedCells:
    return {(cell.row, cell.horizon, cell.dataset, cell.metric): cell for cell in cells if cell.table == table}


def _head(column: tuple[str, str]) -> str:
    """Print a metric with the direction in which it is better."""
    return f"{PRINTED.get(column[1], column[1])} {'↑' if METRICS[column[1]].higher_is_better else '↓'}"


def _over(n_first: int, width: int) -> tuple[tuple[str, int], ...]:
    return (("", n_first), *((title, width) for title in TITLES.values()))


def _cells(found: PlacedCells, row: str, horizon: int | None, columns: Sequence[tuple[str, str]]) -> list[Cell]:
    """Return the cells of one line; the best of those that see no truth is bold, set by code."""
    return [_cell(found, row, horizon, dataset, metric) for dataset, metric in columns]


def _cell(found: PlacedCells, row: str, horizon: int | None, dataset: str, metric: str) -> Cell:
    cell = found.get((row, horizon, dataset, metric))
    if cell is None:
        return NOTHING
    rivals = [
        other.value
        for one in CLOSED_ROWS
        if not method(one).uses_the_truth and (other := found.get((one, horizon, dataset, metric))) is not None
    ]
    best = (max if METRICS[metric].higher_is_better else min)(rivals, default=cell.value)
    is_best = len(rivals) > 1 and abs(cell.value - best) <= TIE and not method(row).uses_the_truth
    mark = UNDERTRAINED if cell.is_undertrained else ""
    return Value(cell.value, digits=DIGITS, is_best=is_best, mark=mark)


def _with_note(table: Table, cells: Sequence[PaperCell]) -> Table:
    """Add what the reader must know of the cells."""
    said = []
    if any(cell.is_simulated for cell in cells):
        said.append("SIMULATED WORLDS in the layouts of these corpora: not comparable with published numbers.")
    if any(cell.n_windows is not None for cell in cells):
        said.append(
            "Percent, ED in steps; mAcc is that of the middle steps. Bold: the best that is not told the truth."
        )
    if any(cell.is_undertrained for cell in cells):
        said.append(f"{UNDERTRAINED}: undertrained, says nothing for or against.")
    return replace(table, note=" ".join(said))
