"""The list of all figures: the report, the Prefect UI and the pages take figures from here."""

from collections.abc import Sequence
from typing import get_args

from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.figures import corpus, curves, rows
from trajpilot_core.report.figures.base import Figure, Material, ReportSection

FIGURES: tuple[Figure, ...] = (
    *rows.REPORT_FIGURES,
    *rows.FIGURES,
    *curves.FIGURES,
    corpus.CORPUS,
    corpus.HEAD_PATHS,
    corpus.SAMPLE_CLIPS,
    rows.ACCURACY,
)
"""In the order in which they are shown."""


def report_charts(material: Material) -> dict[str, Sequence[Chart]]:
    """Return section of the report -> the charts of its figures."""
    return {
        section: [
            chart
            for figure in FIGURES
            if figure.section == section and figure.charts is not None
            for chart in figure.charts(material)
        ]
        for section in get_args(ReportSection)
    }


def figures_of(stage: str) -> tuple[Figure, ...]:
    """Return the pictures that a stage has in the UI."""
    return tuple(figure for figure in FIGURES if stage in figure.stages and figure.draw is not None)
