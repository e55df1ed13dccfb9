"""The record of a table of the paper: its lines, its columns, and which finished runs fill its cells.

Every label is one record (`labels/`); LaTeX, CSV, page and paper.tex follow from it. A cell that no run filled
is printed as "not run".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import isfinite
from typing import NamedTuple

import pyarrow as pa

from schemas.base import Record
from trajpilot_core.engine.settings import LastRun
from trajpilot_core.evaluation.trained_rows import FLOORS
from trajpilot_core.methods import method
from trajpilot_core.metrics import METRICS
from trajpilot_core.paper.published import HORIZONS
from trajpilot_core.report.tables.results import Results, is_single_best
from trajpilot_core.report.tables.table import DAGGER, DASH, LEGEND, NOTHING, Cell, Table, Value, metric_head, row_name
from trajpilot_core.store.reading import Inputs

DIGITS = 2
JOINED = " / "
"""Between the numbers of one printed cell."""
SIMULATED_RUNS = "SIMULATED WORLDS in the layouts of these corpora: not comparable with published numbers."
PRINTED: Mapping[str, str] = {
    "qwen_zs": "Qwen zero-shot",
    "qwen_sft_llm": "Qwen tuned + LLM",
    "visual_only_probe": "Visual-only attentive probe",
    "attentive_probe": "Attentive probe",
    "anticipation_qwen_zs": "Qwen zero-shot",
    "anticipation_qwen_sft_llm": "Qwen tuned + LLM",
    "anticipation_no_traj": "No-Traj",
    "anticipation_scorer": "Scorer",
    "anticipation_oracle": "Oracle",
}
"""Row -> its name in the paper's tables, where ours is longer or there is none."""


class PaperCell(Record):
    """One number of one of the paper's tables, filled by a run."""

    table: str
    """The paper's label, without its kind."""
    row: str
    """Id of a row, or of a setting."""
    dataset: str = ""
    horizon: int | None = None
    """None: over all horizons, as in the table."""
    metric: str
    value: float
    low: float | None = None
    """Lower end of the interval over takes; None where there is none."""
    high: float | None = None
    n_takes: int | None = None
    n_windows: int | None = None
    is_undertrained: bool = False
    is_simulated: bool

    @property
    def address(self) -> "CellAddress":
        """Return its place in the table."""
        return self.row, self.horizon, self.dataset, self.metric


OF_FIGURE = ("horizon", "low", "high", "n_takes", "n_windows")
"""Fields of a cell that scores of the stages have under the same names."""
CellAddress = tuple[str, int | None, str, str]
"""(row, horizon, dataset, metric)."""
PlacedCells = Mapping[CellAddress, PaperCell]


@dataclass(frozen=True)
class PaperRun:
    """A finished run: its evaluation and its other outputs."""

    name: str
    dataset: str
    """Name of its benchmark in the paper's tables; another corpus keeps its own name."""
    results: Results
    settings: Mapping[str, float]
    """Hyperparameters of class heads, as the paper's table names them; none for an open vocabulary."""
    is_simulated: bool
    read: Callable[[str, str], pa.Table | None] = lambda stage, entry: None
    """(stage, entry) -> table of the run, None where the run has none."""
    inputs: Inputs | None = None
    """All committed outputs."""
    last: LastRun | None = None
    """The last command on its root; None where that was not recorded."""


def of_a_sample(run: PaperRun) -> bool:
    """Return whether a run scored its rows on some of the test windows alone (`vlm.windows_per_horizon`)."""
    return run.last is not None and run.last.config.vlm.windows_per_horizon is not None


class Line(NamedTuple):
    """One line of a table: the texts of its first columns, and its part of the address of its cells."""

    heads: tuple[str, ...]
    row: str = ""
    horizon: int | None = None
    dataset: str = ""


class Column(NamedTuple):
    """One column of a table: its heading, and its part of the address of its cells."""

    head: str
    metrics: tuple[str, ...]
    """Several are printed in one cell."""
    over: str = ""
    """Title over it and its neighbours with the same title."""
    dataset: str = ""
    row: str = ""
    horizon: int | None = None
    digits: int | None = DIGITS
    """None: as many as the number has."""


@dataclass(frozen=True)
class PaperTable:
    """One label of the paper in the paper's column layout."""

    label: str
    title: str
    heads: tuple[str, ...]
    """Headings of the first columns, which contain texts."""
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    cells: Callable[[PaperRun], list[PaperCell]]
    """Returns the cells that a run fills, none for a run of another benchmark."""
    of_methods: bool = True
    """Its rows are those of `trajpilot_core.methods`, its metrics those of `trajpilot_core.metrics`."""
    rules: tuple[int, ...] = ()
    """Lines above which a rule is drawn."""
    note: str = ""
    """Note that is printed where a run filled any cell."""
    always: str = ""
    """Note that is always printed."""
    recipes: tuple[str, ...] = ()
    """Experiments whose finished runs fill it."""
    changes: tuple[str, ...] = ()
    """Settings that differ from the recipe, as `--set` reads them."""
    void: tuple[tuple[str, str], ...] = ()
    """(row, metric) of the places that have no number in the paper either."""

    def table(self, cells: Sequence[PaperCell]) -> Table:
        """Lay the cells out; cells of other labels only tell whether the runs are simulated."""
        mine = [cell for cell in cells if cell.table == self.label]
        placed = {cell.address: cell for cell in mine}
        rows = tuple(
            (*line.heads, *(self._cell(placed, line, column) for column in self.columns)) for line in self.lines
        )
        titles = [*("" for _ in self.heads), *(column.over for column in self.columns)]
        over = tuple((title, len([*same])) for title, same in groupby(titles))
        parts = [SIMULATED_RUNS] if any(cell.is_simulated for cell in cells) else []
        parts += [self.note] if self.note and mine else []
        parts += [LEGEND] if any(cell.is_undertrained for cell in mine) else []
        return Table(
            self.title,
            (*self.heads, *(column.head for column in self.columns)),
            rows,
            note=" ".join([*parts, self.always]).strip(),
            over=over if any(titles) else (),
            rules=self.rules,
        )

    def _cell(self, placed: PlacedCells, line: Line, column: Column) -> Cell:
        places = addresses(line, column)
        if not all(at in placed for at in places):
            return DASH if (places[0][0], places[0][3]) in self.void else NOTHING
        if column.digits is None:
            return JOINED.join(f"{placed[at].value:g}" for at in places)
        values = [
            Value(
                placed[at].value,
                digits=column.digits,
                is_best=len(places) == 1 and self._is_best(placed, at, column.digits),
                mark=DAGGER if placed[at].is_undertrained else "",
            )
            for at in places
        ]
        return values[0] if len(values) == 1 else JOINED.join(map(str, values))

    def _is_best(self, placed: PlacedCells, at: CellAddress, digits: int) -> bool:
        """Return whether a value is the single best of the rows that count as trained and see no truth, set by code."""
        _, horizon, dataset, metric = at
        if not self.of_methods or placed[at].is_undertrained or method(at[0]).uses_the_truth or at[0] in FLOORS:
            return False
        rows = dict.fromkeys(line.row for line in self.lines if line.row)
        places = [(row, horizon, dataset, metric) for row in rows]
        column = [place for place in places if place in placed and place != at and not method(place[0]).uses_the_truth]
        others = [placed[place].value for place in column if not placed[place].is_undertrained]
        return bool(column) and is_single_best(placed[at].value, others, METRICS[metric].higher_is_better, digits)


def headed(heads: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a column for each metric; `heads`: metric -> as it is printed."""
    return tuple(Column(metric_head(metric, head), (metric,)) for metric, head in heads.items())


def measured(
    run: PaperRun, table: str, metrics: Sequence[str], pooling: Sequence[str], rows: Sequence[str]
) -> list[PaperCell]:
    """Return the cells of a table that are metrics of the evaluation; those of means over horizons have none."""
    weak = run.results.undertrained
    return [
        plain_cell(run, table, m.variant, m.metric, m.value, m, dataset=run.dataset, is_undertrained=m.variant in weak)
        for m in run.results.find(set(rows), None)
        if m.pooling in pooling and m.metric in metrics
    ]


def plain_cell(
    run: PaperRun, table: str, row: str, metric: str, value: float, figure: Record | None = None, **fields: object
) -> PaperCell:
    """Return a cell of a run; infinite ends of an interval become None.

    `figure` has the horizon, the interval and the counts of the cell, as far as it has fields of these names.
    """
    known = {name: getattr(figure, name) for name in OF_FIGURE if hasattr(figure, name)} | fields
    known = {name: known[name] for name in known if not isinstance(known[name], float) or isfinite(known[name])}
    named = {"table": table, "row": row, "metric": metric, "value": value, "is_simulated": run.is_simulated}
    return PaperCell.model_validate(named | known)


def addresses(line: Line, column: Column) -> list[CellAddress]:
    """Return the addresses of the numbers of one printed cell."""
    row, dataset = line.row or column.row, line.dataset or column.dataset
    horizon = line.horizon if line.horizon is not None else column.horizon
    return [(row, horizon, dataset, metric) for metric in column.metrics]


def printed(row: str) -> str:
    """Return the printed name of a row."""
    return PRINTED.get(row, row_name(row))


def of_methods(rows: Sequence[str]) -> tuple[Line, ...]:
    """Return a line for each row."""
    return tuple(Line((printed(row),), row) for row in rows)


def of_each_horizon(rows: Sequence[str]) -> tuple[Line, ...]:
    """Return a line for each row of each horizon; the horizon is printed once."""
    return tuple(Line((str(h) if row == rows[0] else "", printed(row)), row, h) for h, row in product(HORIZONS, rows))


def rules_of(rows: Sequence[str]) -> tuple[int, ...]:
    """Return the lines above which a new horizon begins."""
    return tuple(range(len(rows), len(rows) * len(HORIZONS), len(rows)))
