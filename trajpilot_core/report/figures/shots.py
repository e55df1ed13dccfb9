"""Right outcomes of test shots, row by row."""

from schemas.arrow import rows_of
from schemas.outcome import OutcomeMetric, ShotScore
from trajpilot_core.evaluation.shot_rows import SHOT_NAMES
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.bars import Bar, bar_chart
from trajpilot_core.report.drawing.charts import Key, legend_mark
from trajpilot_core.report.drawing.picture import Drawn, NothingToDraw
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.figures.base import Figure

KINDS: tuple[tuple[OutcomeMetric, str], ...] = (("made", "train"), ("missed", "dev"))
"""Kind of shots -> style of its part of a bar."""


def shots(committed: Committed) -> Drawn:
    """Draw how many shots each row has right, made and missed ones, a panel for each seed."""
    scores = rows_of(ShotScore, committed.table("outcome", "shot_scores"))
    counted = {(one.seed, one.row, one.metric): one for one in scores if one.n_right is not None}
    if not counted:
        raise NothingToDraw("no shot was answered")
    panels = []
    for seed in sorted({one.seed for one in counted.values() if one.seed is not None}):
        bars = [
            Bar(name, tuple((style_, counted[seed, row, kind].n_right or 0) for kind, style_ in KINDS))
            for row, name in SHOT_NAMES.items()
            if (seed, row, "made") in counted
        ]
        panels.append(Panel(f"Right outcomes, seed {seed}", bar_chart(f"Right outcomes, seed {seed}", "shots", bars)))
    keys = [Key(f"{kind} shots", legend_mark(style_, "square")) for kind, style_ in KINDS]
    whole = next(one for one in counted.values() if one.metric == "accuracy")
    said = f"Of {whole.n_shots} test shots of {whole.n_takes} takes; a row that knows nothing has half of them right."
    return Drawn(sheet(panels, keys, committed.warning()), said)


FIGURE = Figure("shots", "Outcome of shots", stages=("outcome",), draw=shots)
