"""The paper's number tables as data: one CSV per table, one printed number per line.

Source: arXiv 2605.20388. Values are kept as printed, so that the last digit says how far each was rounded. `table` and
`section` are the labels of the paper's own source; numbers that stand in running text have no table.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib import resources
from typing import NamedTuple

from trajpilot_core.errors import InputError

HORIZONS = (3, 4, 5, 6, 7, 8)
ATOMIC, ANTICIPATION = "atomic_results_full", "atomic_anticipation_full"
COARSE, COARSE_OVERALL = "coarse_planning_full", "coarse_planning_overall"
GOAL_SEEN, GOAL_MASKED = "goal_dropout_fullgoal", "goal_dropout_anticipation_full"
POOLS, TEXT = "retrieval_headroom", "text"
ATOMIC_CORPUS, CLOSED_CORPUS = "egoexo4d_atomic", "egoexo4d_atomic_closed"
OPEN_METRICS = ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq")
FUTURE_METRICS = ("Future R@1", "Future R@5", "Future Seq")
CLOSED_METRICS = ("SR", "mAcc", "mIoU", "ED")
BENCHMARKS = ("keystep", "goalstep", "egoper")
PRIOR_PLANNERS = ("schema", "pdpp", "viterbiplannet")
LANGUAGE_MODELS = ("qwen_zs", "qwen_sft_llm")
NAMES = {
    "no_traj": "No-Traj",
    "scorer": "Scorer",
    "oracle": "Oracle",
    "qwen_zs": "Qwen-ZS",
    "qwen_sft_llm": "Qwen-SFT+LLM",
    "schema": "SCHEMA",
    "pdpp": "PDPP",
    "viterbiplannet": "ViterbiPlanNet",
    "keystep": "Keystep",
    "goalstep": "GoalStep",
    "egoper": "EgoPER",
}
"""What the rows and benchmarks are called in print."""


class NumberKey(NamedTuple):
    """Which number."""

    file: str
    row: str
    metric: str
    horizon: int | None = None
    dataset: str = ""


@dataclass(frozen=True)
class PublishedNumber:
    """One printed number."""

    key: NumberKey
    table: str
    """Label of the table in the paper's source; empty where the number stands in the text."""
    section: str
    value: Decimal
    """As printed: the exponent is that of the last printed digit."""
    is_bold: bool


@dataclass(frozen=True)
class TableInfo:
    """One data file."""

    file: str
    title: str
    unit: str


@dataclass(frozen=True)
class Paper:
    """All published numbers."""

    cells: Mapping[NumberKey, PublishedNumber]

    def printed(self, file: str, row: str, metric: str, horizon: int | None = None, dataset: str = "") -> Decimal:
        """Return one number as printed.

        Raises:
            InputError: there is no such number.
        """
        key = NumberKey(file, row, metric, horizon, dataset)
        if key not in self.cells:
            raise InputError(f"no published number {key}; the data files are trajpilot_core/paper/tables/*.csv")
        return self.cells[key].value

    def rows(self, file: str) -> set[str]:
        """Return the rows of one table."""
        return {key.row for key in self.cells if key.file == file}

    def value(self, file: str, row: str, metric: str, horizon: int | None = None, dataset: str = "") -> float:
        """Return one number."""
        return float(self.printed(file, row, metric, horizon, dataset))

    def by_horizon(self, file: str, row: str, metric: str, dataset: str = "") -> dict[int, float]:
        """Return H -> number for all six horizons."""
        return {h: self.value(file, row, metric, h, dataset) for h in HORIZONS}

    def text(self, row: str, metric: str, horizon: int | None = None, dataset: str = "") -> float:
        """Return a number of the running text."""
        return self.value(TEXT, row, metric, horizon, dataset)

    def of_file(self, file: str) -> list[PublishedNumber]:
        """Return the numbers of one file in its order."""
        return [cell for key, cell in self.cells.items() if key.file == file]

    def with_value(self, key: NumberKey, value: str) -> "Paper":
        """Return a copy in which one number reads otherwise: what would the finding be then?"""
        self.printed(*key)
        return Paper({**self.cells, key: replace(self.cells[key], value=Decimal(value))})


def published() -> Paper:
    """Read all data files.

    Raises:
        InputError: one number stands twice.
    """
    cells: dict[NumberKey, PublishedNumber] = {}
    for info in table_infos():
        for row in _rows(info.file):
            cell = _cell(info.file, row)
            if cell.key in cells:
                raise InputError(f"{info.file}.csv holds {cell.key} twice; keep one line")
            cells[cell.key] = cell
    return Paper(cells)


def table_infos() -> list[TableInfo]:
    """Return the data files in the order of the index."""
    return [TableInfo(**row) for row in _rows("index")]


def half_digit(value: Decimal) -> float:
    """Return half a unit of the last printed digit: how far rounding may have moved the number."""
    return 0.5 * 10.0 ** int(value.as_tuple().exponent)


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("trajpilot_core.paper").joinpath("tables", f"{file}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _cell(file: str, row: Mapping[str, str]) -> PublishedNumber:
    horizon = int(row["horizon"]) if row["horizon"] else None
    key = NumberKey(file, row["row"], row["metric"], horizon, row["dataset"])
    return PublishedNumber(key, row["table"], row["section"], Decimal(row["value"]), row["bold"] == "bold")
