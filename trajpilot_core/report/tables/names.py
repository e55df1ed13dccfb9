"""What the rows and metrics of the tables are called. The rows are those of `trajpilot_core.methods`."""

from collections.abc import Collection

from trajpilot_core.methods import METHODS
from trajpilot_core.metrics import METRICS, of_table


def open_metrics() -> tuple[str, ...]:
    """Return the columns of the paper's open-vocabulary table, and those that plugins add."""
    return of_table("open")


def descriptions() -> dict[str, str]:
    """Return what each metric is, in words."""
    return {spec.id: spec.description for spec in METRICS.values()}


def pose_metric_names(*, is_closed: bool) -> tuple[str, str]:
    """Return what the middle and all steps of the table of pose sources are called, by whether class heads decode."""
    return ("Mid mAcc", "Full mAcc") if is_closed else ("Mid M@1", "Full M@1")


DAGGER = "†"
LEGEND = (
    f"{DAGGER}: does not count as trained, says nothing for or against. The lower end of its interval over takes is "
    "not above every floor of its table (Majority, Previous, kNN-labels), or on dev a model behind it is not above its "
    "floors (a scorer: its gate and ranking not above chance), was still rising, or has fallen from its best."
)
"""What the mark means: said once wherever it stands."""


def marked(name: str, row: str, undertrained: Collection[str]) -> str:
    """Return the printed name of a row, marked where it does not count as trained."""
    return name + (DAGGER if row in undertrained else "")


def row_name(variant: str) -> str:
    """Return the printed name of a row; an unknown one keeps its own."""
    return next((one.name for one in METHODS if one.id == variant), variant)
