"""The list of the pictures of the Prefect UI; the charts of the pages are drawn by the same files."""

from trajpilot_core.report.figures import corpus, curves, rows
from trajpilot_core.report.figures.base import Figure

PICTURES: tuple[Figure, ...] = (*curves.PICTURES, *corpus.PICTURES, rows.ACCURACY)


def figures_of(stage: str) -> tuple[Figure, ...]:
    """Return the pictures that a stage has in the UI."""
    return tuple(figure for figure in PICTURES if stage in figure.stages)
