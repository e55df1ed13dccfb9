"""The qualitative figure: Start | the truth and the answers of every row | Goal, and the head's path from above.

A hit has a colour and a sign, so that neither is needed alone. Frames are licensed pixels and personal data:
`report.frames` of the run switches them off here as in the report. Source: arXiv 2605.20388, its qualitative results.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from schemas.config import ReportConfig
from trajpilot_core.paper.published import ATOMIC_CORPUS
from trajpilot_core.report.drawing.charts import shortened
from trajpilot_core.report.gallery import windows
from trajpilot_core.report.gallery.pictures import SIDES, Thumbnail, Views, frames_of
from trajpilot_core.store.reading import Inputs
from trajpilot_core.studies.paper_tables.base import PaperRun
from trajpilot_core.studies.paper_tables.figures.base import FigureSource, PaperFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LABEL = "qualitative_open_vocab"
PLACES = (0.2, 0.5, 0.8)
"""Positions of the frames of a strip, in shares of the clip."""
SIDE_PX = 160
COLOURS = {"hit": "#d7efdc", "top5": "#fbeecb", "miss": "#f6d5d0", "truth": "#eceff3"}
SIGNS = "Green with a tick: right; amber with a 5: the truth is among the best five; red with a cross: wrong"
Strips = Mapping[tuple[str, float], Thumbnail]
SHOWN = 3
"""Windows of the figure."""


@dataclass(frozen=True)
class ShownWindows:
    """The content of the figure: examples, the times of their frames, and the frames or why there are none."""

    examples: Sequence[windows.Example]
    times_s: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]
    """Window -> times of the frames of Start and of Goal."""
    frames: Strips
    no_frames: str


def draw(source: FigureSource) -> "tuple[Drawing, str] | None":
    """Draw windows of the run on atomic descriptions; None without a run that kept its answers."""
    of_corpus = (run for run in source.runs if run.dataset == ATOMIC_CORPUS)
    needed = (("evaluation", "outcomes"), ("trajectories", "motions"))
    run = next((run for run in of_corpus if all(run.read(*entry) is not None for entry in needed)), None)
    if run is None or run.inputs is None:
        return None
    cfg = ReportConfig() if run.last is None else run.last.config.report
    gallery = windows.draw(run.inputs.table("outcomes"), cfg.replace(examples=SHOWN))
    if not gallery.window_ids():
        return None
    shown = _shown(run, run.inputs, gallery, cfg)
    sizes = ", ".join(f"{name} {size:,}" for name, size in gallery.sizes.items())
    caption = f"One window of each class, sampled at random (windows in all: {sizes}). {SIGNS}. "
    caption += "Path of the head over the middle steps, from above."
    return _laid_out(shown, source.warning), f"{caption} {shown.no_frames}".strip()


def _shown(run: PaperRun, inputs: Inputs, gallery: windows.GalleryWindows, cfg: ReportConfig) -> ShownWindows:
    """Read the data of the selected windows, and decode their frames where that is allowed and possible."""
    facts = windows.load_facts(gallery, inputs)
    shown = windows.examples(gallery, facts)
    times_s = {example.window_id: _times(example.window_id, facts) for example in shown}
    if not cfg.frames:
        return ShownWindows(shown, times_s, {}, "No frame is shown: report.frames is off.")
    if run.last is None or "://" in run.last.data_root:
        return ShownWindows(shown, times_s, {}, "No frame is shown: the corpus is not on this machine.")
    wanted: dict[str, set[float]] = {}
    for example in shown:
        wanted.setdefault(example.take_id, set()).update(*times_s[example.window_id])
    frames, _ = frames_of(wanted, windows.video_files(gallery, inputs), run.last.data_root, SIDE_PX, 1)
    reason = next((frame.reason for frame in frames.values() if frame.uri is None), "")
    return ShownWindows(shown, times_s, frames, f"Missing frames: {reason}." if reason else "")


def _times(window_id: str, facts: windows.Facts) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the times of the frames of Start and of Goal, seconds."""
    ids = facts.windows[window_id]["segment_ids"]
    start, goal = (
        tuple(segment["start_s"] + share * (segment["end_s"] - segment["start_s"]) for share in PLACES)
        for segment in (facts.segments[ids[0]], facts.segments[ids[-1]])
    )
    return start, goal


def _laid_out(shown: ShownWindows, warning: str) -> "Drawing":
    """Lay the examples out one below the other."""
    from matplotlib.figure import Figure as Drawing

    lines = [len(example.plans) + 1 for example in shown.examples]
    drawing = Drawing(figsize=(11.0, 0.5 + sum(0.42 * n + 0.75 for n in lines)), layout="constrained")
    drawing.suptitle(warning, fontsize=7, color="#9a2f1f")
    grid = drawing.add_gridspec(
        len(lines), 4, width_ratios=(1.0, 6.2, 1.0, 1.5), height_ratios=[n + 1.5 for n in lines]
    )
    for at, example in enumerate(shown.examples):
        start_s, goal_s = shown.times_s[example.window_id]
        _strip(drawing.add_subplot(grid[at, 0]), "Start", example.truth[0], example.take_id, start_s, shown.frames)
        _answers(drawing.add_subplot(grid[at, 1]), example)
        _strip(drawing.add_subplot(grid[at, 2]), "Goal", example.truth[-1], example.take_id, goal_s, shown.frames)
        if example.paths:
            path = drawing.add_subplot(grid[at, 3])
            Views("", example.paths, example.unit, SIDES[:1]).draw(path)
            path.legend(fontsize=5, loc="upper left", bbox_to_anchor=(0.0, 0.0))
    return drawing


def _strip(axis: "Axes", title: str, label: str, take_id: str, times_s: Sequence[float], frames: Strips) -> None:
    """Draw the frames of a clip one below the other, with the label that is seen."""
    axis.set_title(f"{title}\n{_wrapped(label, 18)}", fontsize=6)
    axis.set_axis_off()
    pictures = [frames[take_id, time].pixels() for time in times_s if (take_id, time) in frames]
    decoded = [picture for picture in pictures if picture is not None]
    if decoded:
        axis.imshow(np.concatenate(decoded), interpolation="nearest")
    else:
        axis.text(0.5, 0.5, "no frame", ha="center", va="center", fontsize=7, transform=axis.transAxes)


def _answers(axis: "Axes", example: windows.Example) -> None:
    """Draw the middle steps: the truth, then a line for each row; colour and sign mark right cells."""
    from matplotlib.patches import Rectangle

    truth = tuple(windows.GalleryStep(label, "truth", "") for label in example.truth)
    lines = [("truth", truth), *((plan.name, plan.steps) for plan in example.plans)]
    n = example.horizon - 2
    axis.set_title(f"{example.title} (H={example.horizon}; {example.gate})", fontsize=7)
    axis.set_axis_off()
    axis.set_xlim(-0.25 * n, n)
    axis.set_ylim(len(lines), 0)
    for row, (name, steps) in enumerate(lines):
        axis.text(-0.02 * n, row + 0.5, name, ha="right", va="center", fontsize=6.5)
        for place, step in enumerate(steps[1:-1]):
            corner, colour = (place + 0.02, row + 0.06), COLOURS[step.state]
            axis.add_patch(Rectangle(corner, 0.96, 0.88, facecolor=colour, edgecolor="none"))
            text = f"{step.sign} {step.text}".strip()
            axis.text(place + 0.5, row + 0.5, _wrapped(text, max(12, 80 // n)), ha="center", va="center", fontsize=5.5)


def _wrapped(text: str, width: int) -> str:
    """Break a text into at most three lines of about `width` characters."""
    return "\n".join(textwrap.wrap(shortened(text, 3 * width), width)[:3])


FIGURE = PaperFigure(LABEL, draw, recipes=("atomic",))
