"""One table for every page: built once from values and texts, rendered as Markdown, HTML, LaTeX and JSON.

A cell is a text, or a value with its interval; its digits are set where the table is built.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from markupsafe import Markup
from pydantic import JsonValue

from trajpilot_core.report.tables.latex_text import latex_text

NOTHING, NOT_BUILT = "not run", "not built"
"""Texts of an empty cell: it was not run, or nothing here computes it."""
DASH = "–"
"""Text of a cell that has no number by its definition."""
TOO_FEW = "(too few takes)"
PRINTED = re.compile(r"[+−-]?\d[\d.,]*†?( [%\[(].*)?")
"""A number and its interval or unit."""
MARKED = ("holds", "fails")
"""Verdicts that are highlighted."""
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "~", "undertrained": "!", "not run": "–"}
"""Verdict -> the sign next to it."""
VERDICTS = {verdict: Markup(f' class="v-{verdict}"') for verdict in MARKED}


class Value(NamedTuple):
    """A number with its interval; without one, `low` and `high` are None."""

    value: float
    low: float | None = None
    high: float | None = None
    digits: int = 1
    is_signed: bool = False
    unit: str = ""
    is_best: bool = False
    """It is printed bold."""
    mark: str = ""
    """A sign after the number that the note explains."""

    def __str__(self) -> str:
        """Print value, mark, unit and interval."""
        text = number(self.value, self.digits, self.is_signed) + self.mark + (f" {self.unit}" if self.unit else "")
        if self.low is None or self.high is None:
            return text
        return f"{text} {interval(self.low, self.high, self.digits, self.is_signed)}"


Cell = str | Value


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header, with a note."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    over: tuple[tuple[str, int], ...] = ()
    """Titles over the header, each with the number of columns under it; none, or for all columns."""
    rules: tuple[int, ...] = ()
    """Rows above which LaTeX draws a line."""

    def said_once(self) -> "Table":
        """Return the table without intervals if no cell has one, because of too few takes: the note states it once."""
        values = [cell for row in self.rows for cell in row if isinstance(cell, Value)]
        bounds = [(cell.low, cell.high) for cell in values if cell.low is not None and cell.high is not None]
        if not bounds or any(math.isfinite(low) and math.isfinite(high) for low, high in bounds):
            return self
        bare = [[c._replace(low=None, high=None) if isinstance(c, Value) else c for c in row] for row in self.rows]
        rows: tuple[tuple[Cell, ...], ...] = tuple(tuple(row) for row in bare)
        return replace(self, rows=rows, note=f"{self.note} No intervals: {TOO_FEW.strip('()')}.".strip())

    def markdown(self) -> str:
        """Return a heading, the note and the table, or a sentence without rows; a bar inside a cell is escaped."""
        head = f"### {self.title}\n\n" if self.title else ""
        head += f"{self.note.strip()}\n\n" if self.note else ""
        if not self.rows:
            return f"{head}*Nothing was run for this table.*\n"
        titles = [title for title, span in self.over for _ in range(span)] or [""] * len(self.header)
        header = [f"{title} {name}".strip() for title, name in zip(titles, self.header, strict=True)]
        lines = [header, ["---"] * len(header), *([marked(cell) for cell in row] for row in self.rows)]
        return head + "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)

    def html(self) -> Markup:
        """Return the table with its title as caption; every text is escaped, columns of numbers are right-aligned."""
        right = [all(is_number(row[at]) for row in self.rows) for at in range(len(self.header))]
        attributes = [Markup(' class="num"') if is_right else Markup("") for is_right in right]
        over = Markup("").join(
            Markup('<th colspan="{}" class="over">{}</th>').format(span, title) for title, span in self.over
        )
        head = Markup("</tr>\n<tr>").join([*([over] if self.over else []), _cells("th", self.header, attributes)])
        body = Markup("").join(Markup("<tr>{}</tr>\n").format(_cells("td", row, attributes)) for row in self.rows)
        return Markup(
            '<table class="results"><caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>\n'
        ).format(self.title, head, body)

    def latex(self) -> str:
        """Return the table for booktabs; every text is escaped, columns of numbers are right-aligned."""
        columns = "".join(
            "r" if all(is_number(row[at]) for row in self.rows) else "l" for at in range(len(self.header))
        )
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        if self.over:
            lines.append(
                " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{latex_text(title)}}}" for title, n in self.over) + r" \\"
            )
            ends = zip(self.over, accumulate(span for _, span in self.over), strict=True)
            lines.append(" ".join(rf"\cmidrule(lr){{{end - n + 1}-{end}}}" for (title, n), end in ends if title))
        lines += [_latex_line(self.header), r"\midrule"]
        for at, row in enumerate(self.rows):
            lines += [r"\midrule"] * (at in self.rules) + [_latex_line(row)]
        return "\n".join([f"% {latex_text(self.title)}", *lines, r"\bottomrule", r"\end{tabular}", ""])

    def json(self) -> JsonValue:
        """Return title, header, note and cells; a value is an object with its numbers in full precision."""

        def content(cell: Cell) -> JsonValue:
            if isinstance(cell, str):
                return cell
            numbers = {"value": cell.value, "low": cell.low, "high": cell.high}
            finite = {name: n if n is None or math.isfinite(n) else None for name, n in numbers.items()}
            return {"text": str(cell), "unit": cell.unit, **finite}

        rows: list[JsonValue] = [[content(cell) for cell in row] for row in self.rows]
        return {"title": self.title, "header": list(self.header), "note": self.note, "rows": rows}


def number(value: float, digits: int = 1, is_signed: bool = False) -> str:
    """Print a number with a true minus; one that rounds to zero has no sign, a number that is not finite is a dash."""
    if not math.isfinite(value):
        return DASH
    text = f"{value:{'+' if is_signed else ''}.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else f"{0:.{digits}f}"


def interval(low: float, high: float, digits: int = 1, is_signed: bool = False) -> str:
    """Print an interval in brackets, or the reason why there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return TOO_FEW
    return f"[{number(low, digits, is_signed)}, {number(high, digits, is_signed)}]"


def marked(cell: Cell) -> str:
    """Print a cell; a verdict that holds or fails is bold, and so is the best of a column."""
    text = str(cell)
    return f"**{text}**" if text in MARKED or is_best(cell) else text


def is_best(cell: Cell) -> bool:
    """Return whether a cell is printed as the best of its column."""
    return isinstance(cell, Value) and cell.is_best


def is_number(cell: Cell) -> bool:
    """Return whether a cell fits in a column of numbers; empty cells do."""
    text = str(cell)
    return isinstance(cell, Value) or text in ("", DASH, NOTHING, NOT_BUILT) or PRINTED.fullmatch(text) is not None


def _cells(tag: str, cells: Sequence[Cell], attributes: Sequence[Markup]) -> Markup:
    """Return the cells of one row."""
    return Markup("").join(
        Markup("<{0}{1}>{2}</{0}>").format(
            tag,
            VERDICTS.get(str(cell), extra) if tag == "td" else extra,
            Markup("<b>{}</b>").format(str(cell)) if is_best(cell) else str(cell),
        )
        for cell, extra in zip(cells, attributes, strict=True)
    )


def _latex_line(cells: Sequence[Cell]) -> str:
    texts = [(latex_text(str(cell)), is_best(cell)) for cell in cells]
    return " & ".join(rf"\textbf{{{text}}}" if best else text for text, best in texts) + r" \\"
