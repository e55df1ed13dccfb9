"""What runs fill of the paper, and what is missing: a line for each label and each experiment that it takes."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from trajpilot_core.report.tables.table import NOTHING
from trajpilot_core.studies.paper_tables.base import PaperRun, PaperTable
from trajpilot_core.studies.paper_tables.cells import Filled, fill
from trajpilot_core.studies.paper_tables.figures import FIGURES
from trajpilot_core.studies.paper_tables.figures.base import PaperFigure
from trajpilot_core.studies.paper_tables.labels import LABELS
from trajpilot_core.studies.paper_tables.labels.rows import printed


class PlanLine(NamedTuple):
    """One experiment of one label."""

    label: str
    """Empty below the first line of a label."""
    recipe: str
    """With the settings that differ from it."""
    root: str
    """Of its run; else "not run"."""
    filled: str
    """Cells that it fills, of all of the label."""
    missing: str
    """On the first line of a label: rows without a number in any run; of a figure, tables without a cell."""


COLUMNS = PlanLine._fields


def plan_of(runs: Sequence[PaperRun]) -> list[PlanLine]:
    """Return the lines of all labels, tables first, then figures; errors as in `fill`."""
    filled = fill(runs)
    lines = [line for table in LABELS.values() for line in _of_table(table, filled, runs)]
    return lines + [_of_figure(figure, filled, runs) for figure in FIGURES]


def _of_table(table: PaperTable, filled: Sequence[Filled], runs: Sequence[PaperRun]) -> list[PlanLine]:
    """Return a line for each recipe of a table, and for each other experiment that fills cells of it."""
    mine = [one for one in filled if one.cell.table == table.label]
    places = [at for at in table.addresses() if (at[0], at[3]) not in table.void]
    titles, rows = {line.row: line.heads[-1] for line in table.lines}, {one.cell.row for one in mine}
    lacking = {titles.get(row) or printed(row): row not in rows for row, *_ in places}
    missing = "all" if all(lacking.values()) else ", ".join(name for name, is_absent in lacking.items() if is_absent)
    changes = "".join(f" --set {change}" for change in table.changes)
    in_place = [one for one in mine if (one.cell.row, one.cell.horizon, one.cell.dataset, one.cell.metric) in {*places}]
    of_experiment = Counter(one.run.experiment for one in in_place)
    lines: list[PlanLine] = []
    for recipe in dict.fromkeys((*table.recipes, *of_experiment)):
        first = not lines
        lines.append(
            PlanLine(
                table.label if first else "",
                f"{recipe or 'unknown'}{changes if recipe in table.recipes else ''}",
                _roots(runs, (recipe,)),
                f"{of_experiment[recipe]} of {len(places)}",
                missing if first else "",
            )
        )
    return lines


def _of_figure(figure: PaperFigure, filled: Sequence[Filled], runs: Sequence[PaperRun]) -> PlanLine:
    """Return the line of a figure: it is drawn from the cells of tables, or from runs of its own recipes."""
    if not figure.tables:
        return PlanLine(figure.label, ", ".join(figure.recipes), _roots(runs, figure.recipes), "", "")
    known = {one.cell.table for one in filled}
    lacking = [label for label in figure.tables if label not in known]
    return PlanLine(figure.label, f"cells of {', '.join(figure.tables)}", "", "", ", ".join(lacking))


def _roots(runs: Sequence[PaperRun], recipes: Sequence[str]) -> str:
    """Return the roots of runs of some recipes."""
    return ", ".join(run.name for run in runs if run.experiment in recipes) or NOTHING
