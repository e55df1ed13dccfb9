"""Accuracy over the horizon and in bars, drawn from the cells of the tables, so that both agree.

Source: arXiv 2605.20388, its figures of planning and anticipation on atomic actions, and of planning in the space of
latents. Rows that were not run have no line; the caption names them. The last two show metrics that no table of
the paper has for atomic actions: their cells come from the runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from trajpilot_core.paper.published import ANTICIPATION, ATOMIC, CLOSED_ATOMIC, CLOSED_ROWS, FUTURE
from trajpilot_core.report.drawing.charts import Chart, Point, Series
from trajpilot_core.report.drawing.sheets import sheet
from trajpilot_core.report.figures.rows import X_LABEL
from trajpilot_core.studies.paper_tables.base import PaperCell, printed
from trajpilot_core.studies.paper_tables.figures.base import FigureSource, PaperFigure, absences
from trajpilot_core.studies.paper_tables.labels.planning import ATOMIC_ROWS, CLOSED_PANEL, GOAL_FREE_ROWS, of_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

PANEL_IN, LEAST_IN = (2.35, 2.3), 4.7
"""Width and height of a panel, and the least width of a figure, inches."""
TEASER, SHOTS = "basketball_teaser", "basketball_shot_outcome"
"""Label of our figure of shots, the paper's teaser (its images are not available), and the table that it shows."""


@dataclass(frozen=True)
class CurvePanel:
    """One panel: a metric of a label over the horizon, or, in bars, metrics of all horizons together."""

    title: str
    label: str
    metrics: tuple[str, ...]
    rows: tuple[str, ...]
    dataset: str = ""
    is_bars: bool = False

    def chart(self, cells: Sequence[PaperCell]) -> Chart:
        """Return the panel with those of these cells that it shows."""
        mine = [cell for cell in cells if (cell.table, cell.dataset) == (self.label, self.dataset)]
        mine = [cell for cell in mine if cell.metric in self.metrics and (cell.horizon is None) == self.is_bars]
        series = []
        for row in self.rows:
            placed = [(cell.horizon or self.metrics.index(cell.metric), cell) for cell in mine if cell.row == row]
            points = tuple(Point(x, cell.value, cell.low, cell.high) for x, cell in sorted(placed, key=itemgetter(0)))
            series += [Series(printed(row), row, points, "bar" if self.is_bars else "band")] if points else []
        if self.is_bars:
            return Chart(self.title, "", "%", series, x_names=self.metrics)
        return Chart(self.title, X_LABEL, f"{self.metrics[0]}, %", series)


def draw(
    source: FigureSource, panels: Sequence[CurvePanel], caption: str, untabled: tuple[str, ...] = ()
) -> "tuple[Drawing, str] | None":
    """Draw panels side by side; None where no run fills any. `untabled` names metrics that no table prints."""
    further = [cell for run in source.runs for cell in of_atomic(run, ATOMIC, untabled, PLANNED)]
    charts = [panel.chart((*source.cells, *further)) for panel in panels]
    if not any(chart.series for chart in charts):
        return None
    width, height = PANEL_IN
    drawing = sheet(charts, source.warning, len(charts), (max(width, LEAST_IN / len(charts)), height))
    anywhere = {line.style for chart in charts for line in chart.series}
    absent: list[str] = []
    for panel, chart in zip(panels, charts, strict=True):
        rows = [row for row in panel.rows if row not in {line.style for line in chart.series}]
        absent += [f"{printed(row)} ({panel.title})" if row in anywhere else printed(row) for row in rows]
    bands = "Bands and whiskers: 95 % intervals over takes, where there are enough."
    return drawing, f"{caption} {bands}{absences(absent)}"


def figure(label: str, caption: str, panels: Sequence[CurvePanel]) -> PaperFigure:
    """Return a figure of panels."""
    drawing = partial(draw, panels=panels, caption=caption)
    return PaperFigure(label, drawing, tuple(dict.fromkeys(panel.label for panel in panels)))


def in_latents(label: str, metric: str, said: str) -> PaperFigure:
    """Return a figure of planning in the space of latents; its first three rows are the paper's."""
    caption = f"{said} over the horizon, planning in the space of latents on atomic actions."
    panels = (CurvePanel("Open vocabulary", ATOMIC, (metric,), PLANNED),)
    drawing = partial(draw, panels=panels, caption=caption, untabled=(metric,))
    return PaperFigure(label, drawing, recipes=("atomic_latent",))


PLANNED = ("latent_no_traj", "cem", "latent_oracle", "cem_goal", "cem_bank", "random_bank")
FIGURES = (
    figure(
        TEASER,
        "Predicting whether a shot goes in: a row with a bias to one answer is good at that one. The same answer for "
        "every shot reaches 50 % accuracy on the paper's balanced shots.",
        (
            CurvePanel(
                "Shots",
                SHOTS,
                ("accuracy", "made_recall", "miss_recall"),
                ("no_traj", "attentive_probe", "scorer", "oracle"),
                is_bars=True,
            ),
        ),
    ),
    figure(
        "atomic_planning",
        "Planning on atomic actions: open vocabulary over the horizon, and classes over all windows.",
        (
            CurvePanel("Open vocabulary, M@1", ATOMIC, ("M@1",), ATOMIC_ROWS),
            CurvePanel("Open vocabulary, MSeq", ATOMIC, ("MSeq",), ATOMIC_ROWS),
            CurvePanel("Classes", CLOSED_PANEL, ("M@1", "MSeq"), CLOSED_ROWS, CLOSED_ATOMIC, is_bars=True),
        ),
    ),
    figure(
        "atomic_anticipation",
        "Anticipation on atomic actions, no goal given.",
        tuple(CurvePanel(FUTURE[metric], ANTICIPATION, (metric,), GOAL_FREE_ROWS) for metric in ("M@1", "MSeq")),
    ),
    in_latents("cem_vs_none", "SR", "Success rate"),
    in_latents("cem_full_mean", "Full mAcc", "Accuracy of all steps, Start and Goal included,"),
)
