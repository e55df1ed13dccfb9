"""Printed names of the rows and metrics of the tables. The rows are those of `trajpilot_core.methods`."""

from collections.abc import Collection

from trajpilot_core.methods import METHODS
from trajpilot_core.metrics import METRICS, of_table


def open_metrics() -> tuple[str, ...]:
    """Return the columns of the paper's open-vocabulary table, and those that plugins add."""
    return of_table("open")


def descriptions() -> dict[str, str]:
    """Return the description of each metric."""
    return {spec.id: spec.description for spec in METRICS.values()}


DAGGER = "†"
LEGEND = (
    f"{DAGGER}: does not count as trained and is no evidence for or against. By its interval over takes (of the paired "
    "difference, where there is one) it is not above every floor of its table (Majority, Previous and, for rows that "
    "are given the head motion of both ends, kNN-labels), or on dev a model behind it is not above its floors (a "
    "scorer: its gate and ranking are not above chance), was still improving, or fell from its best."
)
"""Meaning of the mark: printed once wherever it is used."""


def marked(name: str, row: str, undertrained: Collection[str]) -> str:
    """Return the printed name of a row, marked where it does not count as trained."""
    return name + (DAGGER if row in undertrained else "")


def row_name(variant: str) -> str:
    """Return the printed name of a row; an unknown id is returned as it is."""
    return next((method.name for method in METHODS if method.id == variant), variant)
