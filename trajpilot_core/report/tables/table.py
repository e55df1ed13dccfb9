"""One table for every page: built once from names, values and texts, rendered as Markdown, HTML, LaTeX and JSON.

A cell is a text, the name of a row of `trajpilot_core.methods`, or a value with its interval; its digits are set where
the table is built. Tables of the report have a column per metric and their rows in groups, by horizon or mean.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, TypeVar

from markupsafe import Markup
from pydantic import JsonValue

from schemas.base import Record
from schemas.results import Ceiling, Metric
from trajpilot_core.methods import METHODS
from trajpilot_core.metrics import METRICS
from trajpilot_core.report.tables.latex import latex_text

NOTHING = "not run"
"""Text of an empty cell."""
DASH = "–"
"""Text of a cell that has no number by its definition."""
TOO_FEW = "too few takes"
PRINTED = re.compile(r"[+−-]?\d[\d.,]*†?( [%\[(].*)?")
"""A number and its interval or unit."""
MARKED = {"holds": "v-holds", "fails": "v-fails"}
"""Verdicts that are highlighted, and the class of each."""
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "~", "undertrained": "!", "not run": "–"}
"""Verdict -> the sign next to it."""
ARROWS = {"better": "▲", "worse": "▼"}
DAGGER = "†"
LEGEND = (
    f"{DAGGER}: does not count as trained and is no evidence for or against. By its interval over takes (of the paired "
    "difference, where there is one) it is not above every floor of its table (Majority, Previous and, for rows that "
    "are given the head motion of both ends, kNN-labels), or on dev a model behind it is not above its floors (a "
    "scorer: its gate and ranking are not above chance), was still improving, or fell from its best."
)
"""Meaning of the mark: printed once wherever it is used."""
Measured = TypeVar("Measured", Metric, Ceiling)
POOLED = {"plain": "mean of the horizons", "sample": "mean over all windows"}


class Value(NamedTuple):
    """A number with its interval; without one, `low` and `high` are None."""

    value: float
    low: float | None = None
    high: float | None = None
    digits: int = 1
    is_signed: bool = False
    is_best: bool = False
    """It is printed bold."""
    mark: str = ""
    """A sign after the number that the note explains."""
    metric: Metric | None = None
    """The row of the metrics table that it is."""

    def __str__(self) -> str:
        """Print value, mark and interval."""
        return f"{self.text} {self.bracket}".strip()

    @property
    def text(self) -> str:
        """Value and mark."""
        return number(self.value, self.digits, self.is_signed) + self.mark

    @property
    def bracket(self) -> str:
        """Interval in brackets, or the reason why there is none; empty for a value without one."""
        if self.low is None or self.high is None:
            return ""
        return interval(self.low, self.high, self.digits, self.is_signed)

    @property
    def sign(self) -> str:
        """`better` or `worse` where a difference's interval excludes zero and the value prints as more than 0.0."""
        m = self.metric
        if m is None or m.reference is None or m.low <= 0 <= m.high or self.text == number(0.0):
            return ""
        return "better" if (m.value > 0) == METRICS[m.metric].higher_is_better else "worse"


class Label(NamedTuple):
    """A text that the page shows as the name of a row, or in a colour."""

    text: str
    row: str = ""
    """Id of the row of the report that it names."""
    note: str = ""
    """Explanation of the row, where its name needs one."""
    style: str = ""
    """Class of the page's style sheet."""

    def __str__(self) -> str:
        """Print the text."""
        return self.text


Cell = str | Value | Label


class Group(NamedTuple):
    """Rows of one horizon or mean."""

    title: str
    size: str
    """Numbers of windows and takes."""
    n_rows: int


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
    id: str = ""
    """Of a table of the report."""
    groups: tuple[Group, ...] = ()
    """Groups of all rows, in their order; none in a plain table."""

    def blocks(self) -> list[tuple[Group, tuple[tuple[Cell, ...], ...]]]:
        """Return the groups, each with its rows."""
        ends = accumulate(group.n_rows for group in self.groups)
        return [(group, self.rows[end - group.n_rows : end]) for group, end in zip(self.groups, ends, strict=True)]

    def flat(self) -> "Table":
        """Return a plain table: the title of a group is printed in its first row, a rule above it, metrics as heads."""
        if not self.groups:
            return self
        rows = tuple(("" if at else group.title, *row) for group, rows in self.blocks() for at, row in enumerate(rows))
        rules = tuple(accumulate(group.n_rows for group in self.groups))[:-1]
        heads = tuple(metric_head(name) if name in METRICS else name for name in self.header)
        return replace(self, header=("", *heads), rows=rows, rules=rules, groups=())

    def markdown(self) -> str:
        """Return a heading, the note and the table, or a sentence without rows; a bar inside a cell is escaped.

        A verdict that holds or fails is bold, and so is the best of a column.
        """
        head = f"### {self.title}\n\n" if self.title else ""
        head += f"{self.note.strip()}\n\n" if self.note else ""
        if not self.rows:
            return f"{head}*Nothing was run for this table.*\n"
        bold = [[f"**{cell}**" if str(cell) in MARKED or is_best(cell) else str(cell) for cell in r] for r in self.rows]
        lines = [self.header, ["---"] * len(self.header), *bold]
        return head + "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)

    def html(self) -> Markup:
        """Return the table with its title as caption; every text is escaped, columns of numbers are right-aligned."""
        kinds = ["num" if is_right else "" for is_right in self._right()]
        over = [Markup('<th colspan="{}" class="over">{}</th>').format(span, title) for title, span in self.over]
        cells = [_head(name, kind, self.groups) for name, kind in zip(self.header, kinds, strict=True)]
        head = Markup("</tr>\n<tr>").join(Markup("").join(line) for line in (over, cells) if line)
        title = Markup('<tr class="group"><th scope="rowgroup" colspan="{}">{} <span class="n">{}</span></th></tr>\n')
        bodies = [(title.format(len(kinds), group.title, group.size), rows) for group, rows in self.blocks()]
        lines = [
            above + Markup("").join(_html_row(row, kinds) for row in rows)
            for above, rows in bodies or [(Markup(""), self.rows)]
        ]
        body = Markup("</tbody>\n<tbody>\n").join(lines)
        return Markup(
            '<table class="results"{}><caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table>\n'
        ).format(Markup(' id="t-{}"').format(self.id) if self.id else "", self.title, head, body)

    def latex(self) -> str:
        """Return the table for booktabs; every text is escaped, columns of numbers are right-aligned."""
        if self.groups:
            return self.flat().latex()
        columns = "".join("r" if is_right else "l" for is_right in self._right())
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
        """Return title, header, note and cells; numbers are in full precision, infinite ones are null."""
        numbers = ("value", "low", "high")
        rows: list[JsonValue] = [
            [
                {"text": str(cell), **{name: getattr(cell, name) for name in numbers}}
                if isinstance(cell, Value)
                else str(cell)
                for cell in row
            ]
            for row in self.rows
        ]
        return {"title": self.title, "header": list(self.header), "note": self.note, "rows": finite(rows)}

    def _right(self) -> list[bool]:
        """Return which columns contain only numbers; empty cells fit in them."""
        texts = [["" if isinstance(cell, Value) else str(cell) for cell in row] for row in self.rows]
        fits = [[text in ("", DASH, NOTHING) or PRINTED.fullmatch(text) is not None for text in row] for row in texts]
        return [all(row[at] for row in fits) for at in range(len(self.header))]


def number(value: float, digits: int = 1, is_signed: bool = False) -> str:
    """Print a number with a true minus; one that rounds to zero has no sign, a number that is not finite is a dash."""
    if not math.isfinite(value):
        return DASH
    text = f"{value:{'+' if is_signed else ''}.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else f"{0:.{digits}f}"


def interval(low: float, high: float, digits: int = 1, is_signed: bool = False) -> str:
    """Print an interval in brackets, or the reason why there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"({TOO_FEW})"
    return f"[{number(low, digits, is_signed)}, {number(high, digits, is_signed)}]"


def metric_head(metric: str, printed: str = "") -> str:
    """Print a metric with the direction in which it is better; one of another list is taken to rise."""
    rises = metric not in METRICS or METRICS[metric].higher_is_better
    return f"{printed or metric} {'↑' if rises else '↓'}"


def is_best(cell: Cell) -> bool:
    """Return whether a cell is printed as the best of its column."""
    return isinstance(cell, Value) and cell.is_best


def finite(value: JsonValue) -> JsonValue:
    """Replace infinite numbers in nested values by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list) else value


def _head(name: str, kind: str, groups: Sequence[Group]) -> Markup:
    text: str = name
    if groups and name in METRICS:
        text = Markup('<abbr title="{}">{}</abbr>').format(METRICS[name].description, name)
    return Markup('<th scope="col"{}>{}</th>').format(Markup(' class="num"') if kind else "", text)


def _html_row(row: Sequence[Cell], kinds: Sequence[str]) -> Markup:
    cells = (_html_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True))
    return Markup("<tr>{}</tr>\n").format(Markup("").join(cells))


def _html_cell(cell: Cell, kind: str) -> Markup:
    text: str = str(cell)
    if isinstance(cell, Label) and cell.row:
        means = Markup('<span class="means">{}</span>').format(cell.note) if cell.note else ""
        return Markup('<th scope="row"><span class="chip k-{}"></span>{}{}</th>').format(cell.row, text, means)
    kinds, attributes = [MARKED.get(text, kind), cell.style if isinstance(cell, Label) else ""], Markup("")
    if isinstance(cell, Value) and (m := cell.metric) is not None:
        kinds += ["best" if cell.is_best else "", cell.sign]
        key = "|".join((m.variant, m.reference or "", m.pooling if m.horizon is None else str(m.horizon), m.metric))
        attributes = Markup(' data-key="{}"').format(key)
        arrow = Markup('<span class="arrow" title="the interval excludes zero: {}">{}</span>')
        arrow = arrow.format(cell.sign, ARROWS[cell.sign]) if cell.sign else Markup("")
        text = Markup('<span class="v">{}</span>{} <span class="ci">{}</span>').format(cell.text, arrow, cell.bracket)
    elif is_best(cell):
        text = Markup("<b>{}</b>").format(text)
    if any(kinds):
        attributes = Markup(' class="{}"').format(" ".join(filter(None, kinds))) + attributes
    return Markup("<td{}>{}</td>").format(attributes, text)


def _latex_line(cells: Sequence[Cell]) -> str:
    texts = [(latex_text(str(cell)), is_best(cell)) for cell in cells]
    return " & ".join(rf"\textbf{{{text}}}" if best else text for text, best in texts) + r" \\"


def records_table(title: str, rows: Sequence[Record], note: str = "") -> list[Table]:
    """Return records as a table with a column per field, numbers with about three digits; none without records."""
    names = [*type(rows[0]).model_fields] if rows else []
    lines = tuple(tuple(_field(name, getattr(row, name)) for name in names) for row in rows)
    return [Table(title, tuple(name.replace("_", " ") for name in names), lines, note)] if rows else []


def _field(name: str, value: object) -> str:
    if isinstance(value, float):
        return number(value, 1 if abs(value) >= 10 else 3)
    text = "all" if value is None else str(value)  # no horizon means all of them
    row, *rest = text.split(":", 1)
    return ":".join((row_name(row), *rest)) if name == "variant" else text


def marked(name: str, row: str, undertrained: Collection[str]) -> str:
    """Return the printed name of a row, marked where it does not count as trained."""
    return name + (DAGGER if row in undertrained else "")


def row_name(variant: str) -> str:
    """Return the printed name of a row; an unknown id is returned as it is."""
    return next((method.name for method in METHODS if method.id == variant), variant)


def row_label(variant: str, undertrained: Collection[str], name: str = "", note: str = "") -> Label:
    """Return the first cell of a row, marked where it does not count as trained; `name`: another one than its own."""
    return Label(marked(name or row_name(variant), variant, undertrained), variant, note)


def grouped(
    id_: str,
    title: str,
    header: Sequence[str],
    figures: Iterable[Measured],
    rows: Callable[[Sequence[Measured]], Iterable[tuple[Cell, ...]]],
    *,
    means_first: bool = False,
) -> Table:
    """Build a table: horizons rising, then the plain mean, then the mean over windows; no empty row, no empty group.

    Args:
        header: of the columns below the names.
        rows: returns the rows of a group, the name of each in front.
        means_first: the means are above the horizons.
    """
    parts: dict[tuple[int, str], list[Measured]] = {}
    for figure in figures:
        pooling = figure.pooling if isinstance(figure, Metric) else "plain"
        of_means = (0 if means_first else 1 << 16, pooling)
        parts.setdefault(of_means if figure.horizon is None else (figure.horizon, ""), []).append(figure)
    groups: list[Group] = []
    filled: list[tuple[Cell, ...]] = []
    for (horizon, mean), inside in sorted(parts.items(), key=lambda part: part[0]):
        shown = [row for row in rows(inside) if any(row[1:])]
        windows = f"{inside[0].n_windows:,}".replace(",", "\u202f")  # thin spaces
        fewest = " at the horizon with the fewest" if mean == "plain" else ""
        size = f"{windows} windows, {inside[0].n_takes} takes{fewest}"
        groups += [Group(POOLED[mean] if mean else f"H = {horizon}", size, len(shown))] if shown else []
        filled += shown
    return Table(title, ("Method", *header), tuple(filled), id=id_, groups=tuple(groups))
