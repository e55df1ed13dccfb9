"""Accuracy over the horizon and in bars, drawn from the cells of the tables, so that both agree.

Source: arXiv 2605.20388, its figures of planning and anticipation on atomic actions, and of planning in the space of
latents. Rows that were not run have no line; the caption names them. The last two show metrics that no table of
the paper has for atomic actions: their cells come from the runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trajpilot_core.paper.published import ANTICIPATION, ATOMIC, CLOSED_ATOMIC, CLOSED_ROWS, FUTURE
from trajpilot_core.report.drawing.row_styles import style_of
from trajpilot_core.studies.paper_tables.base import PaperCell, printed
from trajpilot_core.studies.paper_tables.figures.base import FigureSource, PaperFigure, absences
from trajpilot_core.studies.paper_tables.labels.planning import ATOMIC_ROWS, CLOSED_PANEL, GOAL_FREE_ROWS, of_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MARKS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "plus": "P", "cross": "X", "none": ""}
PANEL_IN = (2.35, 2.3)
"""Width and height of a panel, inches."""
NAME_IN = 1.5
"""Width of a name in the legend, inches."""
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

    def shows(self, cell: PaperCell) -> bool:
        """Return whether a cell is drawn in this panel."""
        is_place = cell.table == self.label and cell.dataset == self.dataset and cell.row in self.rows
        return is_place and cell.metric in self.metrics and (cell.horizon is None) == self.is_bars


def draw(
    source: FigureSource, panels: Sequence[CurvePanel], caption: str, untabled: tuple[str, ...] = ()
) -> "tuple[Drawing, str] | None":
    """Draw panels side by side; None where no run fills any. `untabled` names metrics that no table prints."""
    from matplotlib.figure import Figure as Drawing

    further = [cell for run in source.runs for cell in of_atomic(run, ATOMIC, untabled, PLANNED)]
    panel_cells = [[cell for cell in (*source.cells, *further) if panel.shows(cell)] for panel in panels]
    if not any(panel_cells):
        return None
    width, height = PANEL_IN[0] * max(2, len(panels)), PANEL_IN[1]
    drawing = Drawing(figsize=(width, height + 0.6), layout="constrained")
    drawing.suptitle(source.warning, fontsize=7, color="#9a2f1f")
    axes = drawing.subplots(1, len(panels), squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axis, panel, cells in zip(axes, panels, panel_cells, strict=True):
        axis.set_title(panel.title, fontsize=8)
        if not cells:
            axis.text(0.5, 0.5, "not run", ha="center", va="center", transform=axis.transAxes)
        made = _bars(axis, panel, cells) if panel.is_bars else _lines(axis, panel, cells)
        handles = made | handles if panel.is_bars else handles | made
    shown, names = list(handles.values()), list(handles)
    drawing.legend(handles=shown, labels=names, loc="outside lower center", ncols=int(width / NAME_IN), fontsize=7)
    absent: list[str] = []
    for panel, cells in zip(panels, panel_cells, strict=True):
        for row in panel.rows:
            if not any(cell.row == row for cell in cells):
                is_elsewhere = any(cell.row == row for others in panel_cells for cell in others)
                absent.append(f"{printed(row)} ({panel.title})" if is_elsewhere else printed(row))
    bands = "Bands and whiskers: 95 % intervals over takes, where there are enough."
    return drawing, f"{caption} {bands}{absences(absent)}"


def _lines(axis: "Axes", panel: CurvePanel, cells: Sequence[PaperCell]) -> dict[str, Any]:
    """Draw a line for each row, with a band where all of its points have an interval."""
    handles: dict[str, Any] = {}
    for row in panel.rows:
        mine = sorted((cell for cell in cells if cell.row == row), key=lambda cell: cell.horizon or 0)
        if not mine:
            continue
        style, at = style_of(row), [cell.horizon or 0 for cell in mine]
        dashes = tuple(float(part) for part in style.dash.split()) if style.dash else (1.0, 0.0)
        (line,) = axis.plot(
            at,
            [cell.value for cell in mine],
            color=style.light,
            marker=MARKS[style.mark],
            markersize=3.5,
            linewidth=style.width * 0.75,
            dashes=dashes,
        )
        low, high = ([end for cell in mine if (end := getattr(cell, name)) is not None] for name in ("low", "high"))
        if len(low) == len(high) == len(mine):
            axis.fill_between(at, low, high, color=style.light, alpha=0.12, linewidth=0)
        handles[printed(row)] = line
    axis.set_xticks(sorted({cell.horizon for cell in cells if cell.horizon is not None}))
    axis.set_xlabel("horizon H (steps)")
    axis.set_ylabel(f"{panel.metrics[0]}, %")
    axis.set_ylim(bottom=0)
    return handles


def _bars(axis: "Axes", panel: CurvePanel, cells: Sequence[PaperCell]) -> dict[str, Any]:
    """Draw a group of bars for each metric, with whiskers where there is an interval."""
    handles: dict[str, Any] = {}
    rows = [row for row in panel.rows if any(cell.row == row for cell in cells)]
    for at, row in enumerate(rows):
        mine = {cell.metric: cell for cell in cells if cell.row == row}
        for place, metric in enumerate(panel.metrics):
            if metric in mine:
                cell, x = mine[metric], place + 0.8 * (at + 0.5) / len(rows) - 0.4
                bar = axis.bar(x, cell.value, 0.8 / len(rows), color=style_of(row).light)
                handles[printed(row)] = bar
                if cell.low is not None and cell.high is not None:
                    axis.vlines(x, cell.low, cell.high, color="#333333", linewidth=0.7)
    axis.set_xticks(range(len(panel.metrics)), panel.metrics)
    axis.set_ylabel("%")
    return handles


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
