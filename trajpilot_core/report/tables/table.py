"""One table for every page: built once from values and texts, rendered as Markdown, HTML, LaTeX and JSON.

A cell is a text, or a value with its interval; how many digits it has is said where the table is built.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup
from pydantic import JsonValue

NOTHING = "not run"
TOO_FEW = "(too few takes)"
PRINTED = re.compile(r"[+−-]?\d[\d.,]*( [%\[(].*)?")
"""A number, with what may follow it."""
MARKED = ("holds", "fails")
"""Verdicts that stand out."""
VERDICTS = {verdict: Markup(f' class="v-{verdict}"') for verdict in MARKED}

LATEX = {
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
"""What stands for a character that has a meaning to LaTeX."""


class Value(NamedTuple):
    """A number with its interval; without one, `low` and `high` are None."""

    value: float
    low: float | None = None
    high: float | None = None
    digits: int = 1
    is_signed: bool = False
    unit: str = ""

    def __str__(self) -> str:
        """Print value, unit and interval."""
        text = number(self.value, self.digits, self.is_signed) + (f" {self.unit}" if self.unit else "")
        if self.low is None or self.high is None:
            return text
        return f"{text} {interval(self.low, self.high, self.digits, self.is_signed)}"


Cell = str | Value


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header, with what the reader must know of them."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def markdown(self, *, is_titled: bool = True, level: int = 3) -> str:
        """Return a heading, the note and the table; without rows it says so."""
        head = f"{'#' * level} {self.title}\n\n" if is_titled and self.title else ""
        return head + (f"{self.note.strip()}\n\n" if self.note else "") + self._grid()

    def _grid(self) -> str:
        """Return the rows alone; a bar inside a cell is escaped."""
        if not self.rows:
            return "*Nothing was run for this table.*\n"
        lines = [self.header, ["---"] * len(self.header), *([marked(cell) for cell in row] for row in self.rows)]
        return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)

    def html(self) -> Markup:
        """Return the table with its title as caption; every text is escaped, columns of numbers are set right."""
        right = [all(is_number(row[at]) for row in self.rows) for at in range(len(self.header))]
        attributes = [Markup(' class="num"') if is_right else Markup("") for is_right in right]
        head = _cells("th", self.header, attributes)
        body = Markup("").join(Markup("<tr>{}</tr>\n").format(_cells("td", row, attributes)) for row in self.rows)
        return Markup(
            '<table class="results"><caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>\n'
        ).format(self.title, head, body)

    def latex(self) -> str:
        """Return the table for booktabs; every text is escaped."""
        lines = [rf"\begin{{tabular}}{{{'l' * len(self.header)}}}", r"\toprule"]
        lines += [_latex_line(self.header), r"\midrule", *map(_latex_line, self.rows)]
        return "\n".join([f"% {latex_text(self.title)}", *lines, r"\bottomrule", r"\end{tabular}", ""])

    def json(self) -> JsonValue:
        """Return title, header, note and cells; a value is an object with its numbers in full precision."""
        rows: list[JsonValue] = [[_json_cell(cell) for cell in row] for row in self.rows]
        return {"title": self.title, "header": list(self.header), "note": self.note, "rows": rows}


def number(value: float, digits: int = 1, is_signed: bool = False) -> str:
    """Print a number with a true minus; what rounds to zero has no sign, and what is not finite is a dash."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:{'+' if is_signed else ''}.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else f"{0:.{digits}f}"


def interval(low: float, high: float, digits: int = 1, is_signed: bool = False) -> str:
    """Print an interval in brackets, or why there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return TOO_FEW
    return f"[{number(low, digits, is_signed)}, {number(high, digits, is_signed)}]"


def over_horizons(title: str, rows: Mapping[str, Mapping[int, Cell]]) -> Table:
    """Lay rows out over the horizons that any of them has; an absent figure is an empty cell."""
    horizons = sorted({h for row in rows.values() for h in row})
    lines = tuple((name, *(row.get(h, "") for h in horizons)) for name, row in rows.items())
    return Table(title, ("", *(f"H={h}" for h in horizons)), lines)


def marked(cell: Cell) -> str:
    """Print a cell; a verdict that holds or fails is bold."""
    text = str(cell)
    return f"**{text}**" if text in MARKED else text


def is_number(cell: Cell) -> bool:
    """Return whether a cell belongs into a column of numbers; empty cells do."""
    text = str(cell)
    return isinstance(cell, Value) or text in ("", "–", NOTHING) or PRINTED.fullmatch(text) is not None


def _cells(tag: str, cells: Sequence[Cell], attributes: Sequence[Markup]) -> Markup:
    """Return the cells of one row."""
    return Markup("").join(
        Markup("<{0}{1}>{2}</{0}>").format(tag, VERDICTS.get(str(cell), extra) if tag == "td" else extra, str(cell))
        for cell, extra in zip(cells, attributes, strict=True)
    )


def _latex_line(cells: Sequence[Cell]) -> str:
    return " & ".join(latex_text(str(cell)) for cell in cells) + r" \\"


def _json_cell(cell: Cell) -> JsonValue:
    if isinstance(cell, str):
        return cell
    finite = {name: value if value is None or math.isfinite(value) else None for name, value in _numbers(cell)}
    return {"text": str(cell), "unit": cell.unit, **finite}


def _numbers(cell: Value) -> tuple[tuple[str, float | None], ...]:
    return (("value", cell.value), ("low", cell.low), ("high", cell.high))


def latex_text(text: str) -> str:
    """Return text in which no character has a meaning to LaTeX; control characters become spaces."""
    return "".join(LATEX.get(c, c if c.isprintable() else " ") for c in text)
