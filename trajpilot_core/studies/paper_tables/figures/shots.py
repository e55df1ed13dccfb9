"""Made and missed shots: how often each row is right, from the cells of the table of shots.

Our own drawing under the label of the paper's teaser, whose images are not available.
Source: docs/decisions/outcome.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trajpilot_core.studies.paper_tables.base import PaperCell
from trajpilot_core.studies.paper_tables.figures.base import FigureSource, PaperFigure, absences
from trajpilot_core.studies.paper_tables.figures.curves import PANEL_IN, style_of
from trajpilot_core.studies.paper_tables.labels import LABELS
from trajpilot_core.studies.paper_tables.labels.rows import printed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LABEL, TABLE = "basketball_teaser", "basketball_shot_outcome"
ACCURACY, MADE, MISSED = "accuracy", "made_recall", "miss_recall"
CHANCE = 50.0
"""Percent that the same answer for every shot reaches on the paper's balanced shots."""
CAPTION = (
    "Predicting whether a shot goes in. Left: share of shots that a row predicts correctly. Right: the same for made "
    "(filled) and for missed shots (open); a row with a bias to one answer is good at that one. Whiskers: 95 % "
    "intervals over takes, where there are enough. Dotted: the same answer for every shot."
)


def draw(source: FigureSource) -> "tuple[Drawing, str] | None":
    """Draw accuracy, and the recall of either outcome; None without a run on shots."""
    from matplotlib.figure import Figure as Drawing

    cells = {(cell.row, cell.metric): cell for cell in source.cells if cell.table == TABLE}
    if not cells:
        return None
    rows = list(dict.fromkeys(line.row for line in LABELS[TABLE].lines))
    scored = [row for row in rows if (row, ACCURACY) in cells]
    width, height = PANEL_IN
    drawing = Drawing(figsize=(width * 2.6, 0.9 + 0.36 * len(scored) + height * 0.2), layout="constrained")
    drawing.suptitle(source.warning, fontsize=7, color="#9a2f1f")
    left, right = drawing.subplots(1, 2, sharey=True)
    for at, row in enumerate(scored):
        cell = cells[row, ACCURACY]
        left.barh(at, cell.value, 0.55, color=style_of(row).light)
        if cell.low is not None and cell.high is not None:
            left.hlines(at, cell.low, cell.high, color="#333333", linewidth=0.9)
        left.text(1, at, f"{cell.value:.1f}", va="center", fontsize=7, color="white")
    _outcomes(right, [(cells[row, MADE], cells[row, MISSED]) for row in scored])
    for axis, title in ((left, "All shots"), (right, "Made ● and missed ○")):
        axis.set_title(title, fontsize=8)
        axis.set_xlim(-2, 102)
        axis.set_xlabel("right, %")
        axis.axvline(CHANCE, color="#8a929c", linewidth=0.8, linestyle=":")
        axis.set_yticks(range(len(scored)), [printed(row) for row in scored])
        axis.set_ylim(len(scored) - 0.4, -0.6)
    absent = [(LABELS[TABLE].lacks((row, None, "", ACCURACY)), printed(row)) for row in rows if row not in scored]
    return drawing, CAPTION + absences(absent)


def _outcomes(axis: "Axes", pairs: Sequence[tuple[PaperCell, PaperCell]]) -> None:
    """Draw the two recalls of each row, joined by a line whose length is the bias of the row."""
    for at, (made, missed) in enumerate(pairs):
        colour = style_of(made.row).light
        axis.hlines(at, min(made.value, missed.value), max(made.value, missed.value), color=colour, linewidth=1.4)
        for cell, face, off in ((made, colour, -0.16), (missed, "white", 0.16)):
            axis.plot(cell.value, at, "o", color=colour, markerfacecolor=face, markersize=5.5)
            if cell.low is not None and cell.high is not None:
                axis.hlines(at + off, cell.low, cell.high, color=colour, linewidth=0.6)


FIGURE = PaperFigure(LABEL, draw, (TABLE,))
