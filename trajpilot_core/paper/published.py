"""The paper's open-vocabulary results as data: one CSV per printed table, one number per line, as printed.

Source: arXiv 2605.20388. `trajpilot_core/paper/tables` holds all of its number tables; of them the report needs one.
"""

import csv
from importlib import resources

HORIZONS = (3, 4, 5, 6, 7, 8)
ATOMIC = "atomic_results_full"
ATOMIC_CORPUS = "egoexo4d_atomic"
OPEN_METRICS = ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq")


def table_rows(file: str) -> list[dict[str, str]]:
    """Return the lines of one data file, its columns as printed."""
    text = resources.files("trajpilot_core.paper").joinpath("tables", f"{file}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def atomic_values() -> dict[tuple[int, str, str], float]:
    """Return (horizon, row, metric) -> percentage of open-vocabulary atomic planning, all rows of the paper."""
    return {(int(row["horizon"]), row["row"], row["metric"]): float(row["value"]) for row in table_rows(ATOMIC)}
