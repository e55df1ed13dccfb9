r"""The tables as LaTeX (booktabs, multirow), ready for \input; the numbers are those of the HTML page.

Every text is escaped: a label can neither run a command nor end a group. A table that is longer than a page goes on in
a further one, one that is wider than a line is scaled down to it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from trajpilot_core.metrics import METRICS
from trajpilot_core.report.tables.ceilings import CeilingCell
from trajpilot_core.report.tables.groups import GroupCell, GroupedTable, TableRow
from trajpilot_core.report.tables.latex_text import fitted, latex_text
from trajpilot_core.report.tables.results import ResultCell

WITHOUT_MULTIROW = "\\providecommand{\\multirow}[3]{#3}\n"
"""Where that package is not loaded, which not every distribution has, titles of rows stand in their first line."""
LINES = 52
"""Of one part of a table: what a page of 8.5 x 11 inches has room for in footnotesize, below a caption of six lines."""


def document(tables: Sequence[GroupedTable[ResultCell]], note: str, *, with_intervals: bool) -> str:
    """Return all tables, one after the other; `note`: what the numbers are measured on; stands in every caption."""

    def lines(row: TableRow[ResultCell], n_metrics: int) -> list[list[str]]:
        filler = [""] * (n_metrics - len(row.cells))
        values = [latex_text(row.label), *map(_value, row.cells), *filler]
        return [values, ["", *map(_interval, row.cells), *filler]] if with_intervals else [values]

    arrows = {True: r"$\uparrow$", False: r"$\downarrow$"}
    head = "% Needs \\usepackage{booktabs,graphicx}. Written by the report stage; do not edit.\n" + WITHOUT_MULTIROW
    return head + "\n".join(
        _grouped(
            table,
            f"{latex_text(table.title)}. {latex_text(note)}",
            [f"{latex_text(m)} {arrows[METRICS[m].higher_is_better]}" for m in table.metrics],
            partial(lines, n_metrics=len(table.metrics)),
        )
        for table in tables
    )


def ceiling_tables(tables: Sequence[GroupedTable[CeilingCell | None]], note: str) -> str:
    """Return the tables of the ceilings: value, ceiling, difference with its standard error; `!` marks one above it."""
    means = (
        "in brackets the standard error of the difference, clustered by take; ! marks a row above its ceiling by more "
        "than 3 of them"
    )
    return "".join(
        "\n"
        + _grouped(
            table,
            f"{latex_text(table.title)}; {means}. {latex_text(note)}",
            [head for m in table.metrics for head in (latex_text(m), "ceiling", "difference")],
            lambda row: [[latex_text(row.label), *map(_bounded, row.cells)]],
        )
        for table in tables
    )


def _grouped(
    table: GroupedTable[GroupCell],
    caption: str,
    heads: Sequence[str],
    lines: Callable[[TableRow[GroupCell]], list[list[str]]],
) -> str:
    """Return one table, in as many parts as it needs; `lines` gives the lines of a row without their first column."""
    body = [
        TitledLines(latex_text(group.title), [line for row in group.rows for line in lines(row)])
        for group in table.groups
    ]
    return "".join(
        _float(part, f"{caption} (continued)" if at else caption, f"{table.id}-{at}" if at else table.id, heads)
        for at, part in enumerate(_parts(body))
    )


class TitledLines(NamedTuple):
    """Lines of cells under one title in the first column."""

    title: str
    lines: list[list[str]]


def _parts(blocks: Sequence[TitledLines]) -> Iterator[list[TitledLines]]:
    """Cut blocks into parts of at most LINES lines; a block is cut only where it is longer than a part."""
    part: list[TitledLines] = []
    for block in blocks:
        if part and sum(len(one.lines) for one in part) + len(block.lines) > LINES:
            yield part
            part = []
        pieces = [block.lines[at : at + LINES] for at in range(0, len(block.lines), LINES)]
        for piece in pieces[:-1]:
            yield [TitledLines(block.title, piece)]
        part.append(TitledLines(block.title, pieces[-1]))
    if part:
        yield part


def _float(blocks: Sequence[TitledLines], caption: str, label: str, heads: Sequence[str]) -> str:
    """Return one part as a float with caption and label."""
    tabular = [rf"\begin{{tabular}}{{cl{'r' * len(heads)}}}", r"\toprule", " & ".join(["", "Method", *heads]) + r" \\"]
    for title, lines in blocks:
        firsts = [rf"\multirow{{{len(lines)}}}{{*}}{{{title}}}", *[""] * (len(lines) - 1)]
        tabular += [
            r"\midrule",
            *(" & ".join([first, *line]) + r" \\" for first, line in zip(firsts, lines, strict=True)),
        ]
    tabular += [r"\bottomrule", r"\end{tabular}"]
    head = [r"\begin{table*}[p]", r"\centering", r"\footnotesize", rf"\caption{{{caption}}}", rf"\label{{tab:{label}}}"]
    return "\n".join([*head, *fitted("\n".join(tabular)), r"\end{table*}", ""])


def _value(cell: ResultCell) -> str:
    """Print a value, bold where it is the best."""
    text = cell.text.replace("−", "-").replace("–", "\\mbox{--}")
    return rf"$\mathbf{{{text}}}$" if cell.is_best else f"${text}$"


def _interval(cell: ResultCell) -> str:
    """Print an interval in small type."""
    return rf"\scriptsize${cell.bracketed.replace('−', '-')}$" if cell.interval else rf"\scriptsize {cell.bracketed}"


def _bounded(cell: CeilingCell | None) -> str:
    """Print value, ceiling and difference."""
    if cell is None:
        return " & & "
    mark = r"\textsuperscript{!}" if cell.row.above else ""
    texts = (cell.value, cell.ceiling, cell.difference.replace("–", "--"))
    return " & ".join(f"${text.replace('−', '-')}$" for text in texts) + mark
