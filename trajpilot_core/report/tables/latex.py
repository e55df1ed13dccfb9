r"""The tables as LaTeX floats, ready for \input; needs booktabs and graphicx. The numbers are those of the HTML page.

Every text is escaped: a label can neither run a command nor end a group. A table longer than a page continues in a
further float; one wider than a line is scaled down to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trajpilot_core.metrics import METRICS
from trajpilot_core.report.tables.ceilings import CeilingCell
from trajpilot_core.report.tables.groups import GroupCell, GroupedTable
from trajpilot_core.report.tables.latex_text import fitted, latex_text
from trajpilot_core.report.tables.results import ResultCell
from trajpilot_core.report.tables.table import Cell, Table, Value

LINES = 52
"""Rows of one float: what a page of 8.5 x 11 inches has room for in footnotesize, below a caption of six lines."""
HEAD = "% Needs \\usepackage{booktabs,graphicx}. Written by the report stage; do not edit.\n"


def document(tables: Sequence[GroupedTable[ResultCell]], note: str) -> str:
    """Return all tables, one after the other; `note`: what the numbers are measured on, part of every caption."""

    def value(cell: ResultCell) -> Value:
        m = cell.metric
        return Value(m.value, m.low, m.high, is_signed=m.reference is not None, is_best=cell.is_best)

    parts = []
    for table in tables:
        heads = [f"{m} {'↑' if METRICS[m].higher_is_better else '↓'}" for m in table.metrics]
        rows = [[tuple(map(value, row.cells)) for row in group.rows] for group in table.groups]
        parts.append(floating(table.id, _flat(table, heads, rows, note)))
    return HEAD + "\n".join(parts)


def ceiling_tables(tables: Sequence[GroupedTable[CeilingCell | None]], note: str) -> str:
    """Return the tables of the ceilings: value, ceiling, difference with its standard error; `!` marks one above it."""

    def texts(cell: CeilingCell | None) -> tuple[str, str, str]:
        return ("", "", "") if cell is None else (cell.value, cell.ceiling, cell.difference + "!" * cell.row.above)

    means = (
        "In brackets the standard error of the difference, clustered by take; ! marks a row above its ceiling by more "
        "than 3 of them"
    )
    parts = []
    for table in tables:
        heads = [head for m in table.metrics for head in (m, "ceiling", "difference")]
        rows = [[tuple(text for cell in row.cells for text in texts(cell)) for row in g.rows] for g in table.groups]
        parts.append("\n" + floating(table.id, _flat(table, heads, rows, f"{means}. {note}")))
    return "".join(parts)


def _flat(
    table: GroupedTable[GroupCell], heads: Sequence[str], cells: Sequence[Sequence[tuple[Cell, ...]]], note: str
) -> Table:
    """Return a grouped table as a plain one: the title of a group is printed in its first row, a rule above it."""
    rows: list[tuple[Cell, ...]] = []
    rules = []
    for group, lines in zip(table.groups, cells, strict=True):
        rules += [len(rows)] if rows else []
        for at, (row, values) in enumerate(zip(group.rows, lines, strict=True)):
            rows.append(("" if at else group.title, row.label, *values, *[""] * (len(heads) - len(values))))
    return Table(table.title, ("", "Method", *heads), tuple(rows), note, rules=tuple(rules))


def floating(label: str, table: Table) -> str:
    r"""Return a table as floats with caption and label; one longer than LINES is cut, above a rule where it has any."""
    caption = latex_text(f"{table.title}. {table.note}".strip())
    lines = []
    for at, part in enumerate(_parts(table)):
        lines += [r"\begin{table*}[!htp]", r"\centering\footnotesize\setlength{\tabcolsep}{4pt}"]
        lines += [
            rf"\caption{{{caption}{' (continued)' if at else ''}}}",
            rf"\label{{tab:{label}{f'-{at}' if at else ''}}}",
        ]
        lines += [*fitted(part.latex()), r"\end{table*}", ""]
    return "\n".join(lines)


def _parts(table: Table) -> Iterator[Table]:
    """Cut a table into parts of at most LINES rows; blocks between rules are cut only where one is longer."""
    begin = 0
    for end in (*table.rules, len(table.rows)):
        while end - begin > LINES:
            inside = [rule for rule in table.rules if begin < rule <= begin + LINES]
            cut = inside[-1] if inside else begin + LINES
            yield _between(table, begin, cut)
            begin = cut
    yield _between(table, begin, len(table.rows))


def _between(table: Table, begin: int, end: int) -> Table:
    rules = tuple(rule - begin for rule in table.rules if begin < rule < end)
    return replace(table, rows=table.rows[begin:end], rules=rules)
