"""The lists of all figures: the report and the pages take charts from here, the Prefect UI pictures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.figures import corpus, curves, rows
from trajpilot_core.report.figures.base import Figure, Material

ReportSection = Literal["summary", "horizon", "controls", "retrieval", "gate", "pool", "training"]
"""Parts of the report that show charts."""
CHARTS: Mapping[ReportSection, Callable[[Material], Sequence[Chart]]] = {
    "summary": lambda material: [rows.gain_chart(material.results)],
    "horizon": lambda material: rows.horizon_charts(material.results, material.ceilings),
    "controls": rows.control_charts,
    "retrieval": rows.ablation_charts,
    "gate": rows.gate_charts,
    "pool": rows.headroom_charts,
    "training": lambda material: curves.training_charts(material.curves),
}
PICTURES: tuple[Figure, ...] = (*curves.PICTURES, *corpus.PICTURES, rows.ACCURACY)


def report_charts(material: Material) -> dict[ReportSection, Sequence[Chart]]:
    """Return section of the report -> its charts."""
    return {section: draw(material) for section, draw in CHARTS.items()}


def figures_of(stage: str) -> tuple[Figure, ...]:
    """Return the pictures that a stage has in the UI."""
    return tuple(figure for figure in PICTURES if stage in figure.stages)
