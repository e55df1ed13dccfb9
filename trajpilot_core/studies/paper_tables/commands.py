"""The figures and tables of the paper with what fills each here, for docs/reproduction.md: derived, not typed."""

from collections.abc import Sequence

from trajpilot_core.report.tables.table import NOT_BUILT, Table
from trajpilot_core.studies.paper_tables.base import PaperTable
from trajpilot_core.studies.paper_tables.figures import FIGURES
from trajpilot_core.studies.paper_tables.figures.base import PaperFigure
from trajpilot_core.studies.paper_tables.labels import LABELS
from trajpilot_core.studies.paper_tables.labels.rows import printed

HEADER = ("label", "kind", "what is not built of it", "runs that fill it")


def commands_table() -> Table:
    """Return a line for each label and figure."""
    rows = [(f"`{label}`", "table", _lacking(table), _runs(table)) for label, table in LABELS.items()]
    rows += [(f"`{one.label}`", "figure", _undrawn(one), _runs_of_figure(one)) for one in FIGURES]
    return Table("", HEADER, tuple(rows))


def _lacking(table: PaperTable) -> str:
    """Name the rows of which no number can be computed; all of it, or nothing."""
    rows: dict[str, set[str]] = {}
    for at in table.addresses():
        rows.setdefault(at[0], set()).add(table.lacks(at))
    lacking = [row for row, states in rows.items() if states == {NOT_BUILT}]
    if len(lacking) == len(rows):
        return "all of it"
    return ", ".join(printed(row) for row in lacking)


def _undrawn(figure: PaperFigure) -> str:
    """Return the same of a figure: of its own rows and of the labels that it shows."""
    said = {label: _lacking(LABELS[label]) for label in figure.tables}
    if said and set(said.values()) == {"all of it"}:
        return "all of it"
    own = [", ".join(map(printed, figure.unbuilt))] if figure.unbuilt else []
    return "; ".join([*own, *(f"{what} (`{label}`)" for label, what in said.items() if what)])


def _runs(table: PaperTable) -> str:
    """Return the commands of the runs, nothing where no number can be computed."""
    return "" if _lacking(table) == "all of it" else _typed(table.recipes, table.changes)


def _runs_of_figure(figure: PaperFigure) -> str:
    if _undrawn(figure) == "all of it":
        return ""
    recipes = [recipe for label in figure.tables for recipe in LABELS[label].recipes]
    return _typed(tuple(dict.fromkeys([*recipes, *figure.recipes])), ())


def _typed(recipes: Sequence[str], changes: Sequence[str]) -> str:
    changed = "".join(f" --set {change}" for change in changes)
    return "; ".join(f"`--recipe {recipe}{changed}`" for recipe in recipes)
