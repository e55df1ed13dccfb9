r"""The tables as LaTeX (booktabs, multirow), ready for \input; the numbers are those of the HTML page.

Every text is escaped: a label can neither run a command nor end a group.
"""

from collections.abc import Sequence

from trajpilot_core.metrics import METRICS
from trajpilot_core.report.tables.ceilings import CeilingCell, CeilingGroup, CeilingTable
from trajpilot_core.report.tables.results import Group, ResultCell, ResultTable

ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "✓": "ok",
}


def escape(text: str) -> str:
    """Return text in which no character has a meaning to LaTeX; control characters become spaces."""
    return "".join(ESCAPES.get(c, c if c.isprintable() else " ") for c in text)


def document(tables: Sequence[ResultTable], note: str, *, with_intervals: bool) -> str:
    r"""Return all tables, one after the other.

    Args:
        tables: the printed tables.
        note: what the numbers are measured on; stands in every caption.
        with_intervals: a second line per row holds the intervals.
    """
    head = "% Needs \\usepackage{booktabs,multirow}. Written by the report stage; do not edit.\n"
    return head + "\n".join(_table(table, note, with_intervals) for table in tables)


def _table(table: ResultTable, note: str, with_intervals: bool) -> str:
    """Return one table."""
    arrows = {True: r"$\uparrow$", False: r"$\downarrow$"}
    heads = [f"{escape(m)} {arrows[METRICS[m].higher_is_better]}" for m in table.metrics]
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        r"\small",
        rf"\caption{{{escape(table.title)}. {escape(note)}}}",
        rf"\label{{tab:{table.id}}}",
        rf"\begin{{tabular}}{{cl{'r' * len(table.metrics)}}}",
        r"\toprule",
        " & ".join(["", "Method", *heads]) + r" \\",
    ]
    for group in table.groups:
        lines += [r"\midrule", *_group(group, len(table.metrics), with_intervals)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _group(group: Group, n_metrics: int, with_intervals: bool) -> list[str]:
    """Return the lines of one horizon."""
    lines = []
    height = len(group.rows) * (2 if with_intervals else 1)
    for index, row in enumerate(group.rows):
        first = rf"\multirow{{{height}}}{{*}}{{{escape(group.title)}}}" if index == 0 else ""
        mark = r" \textsc{undertrained}" if row.is_undertrained else ""
        filler = [""] * (n_metrics - len(row.cells))
        lines.append(" & ".join([first, escape(row.name) + mark, *map(_value, row.cells), *filler]) + r" \\")
        if with_intervals:
            lines.append(" & ".join(["", "", *map(_interval, row.cells), *filler]) + r" \\")
    return lines


def _value(cell: ResultCell) -> str:
    """Print a value, bold where it is the best."""
    text = cell.text.replace("−", "-")
    return rf"$\mathbf{{{text}}}$" if cell.is_best else f"${text}$"


def _interval(cell: ResultCell) -> str:
    """Print an interval in small type."""
    return rf"\scriptsize${cell.bracketed.replace('−', '-')}$" if cell.interval else rf"\scriptsize {cell.bracketed}"


def ceiling_tables(tables: Sequence[CeilingTable], note: str) -> str:
    """Return the tables of the ceilings: value, ceiling, difference with its standard error; `!` marks one above it."""
    return "".join("\n" + _ceiling_table(table, note) for table in tables)


def _ceiling_table(table: CeilingTable, note: str) -> str:
    """Return one table of ceilings."""
    heads = [f"{escape(m)} & ceiling & difference" for m in table.metrics]
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        r"\small",
        rf"\caption{{{escape(table.title)}; in brackets the standard error of the difference, clustered by take; "
        rf"! marks a row above its ceiling by more than 3 of them. {escape(note)}}}",
        rf"\label{{tab:{table.id}}}",
        rf"\begin{{tabular}}{{cl{'rrr' * len(table.metrics)}}}",
        r"\toprule",
        " & ".join(["", "Method", *heads]) + r" \\",
    ]
    for group in table.groups:
        lines += [r"\midrule", *_ceiling_group(group)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _ceiling_group(group: CeilingGroup) -> list[str]:
    """Return the lines of one horizon."""
    lines = []
    for index, row in enumerate(group.rows):
        first = rf"\multirow{{{len(group.rows)}}}{{*}}{{{escape(group.title)}}}" if index == 0 else ""
        lines.append(" & ".join([first, escape(row.name), *map(_bounded, row.cells)]) + r" \\")
    return lines


def _bounded(cell: CeilingCell | None) -> str:
    """Print value, ceiling and difference."""
    if cell is None:
        return " & & "
    mark = r"\textsuperscript{!}" if cell.row.above else ""
    texts = (cell.value, cell.ceiling, cell.difference.replace("–", "--"))
    return " & ".join(f"${text.replace('−', '-')}$" for text in texts) + mark
