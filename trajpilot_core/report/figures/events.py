"""Pictures of the tables of events: right outcomes of shots, and right steps by the source of head motion."""

from schemas.arrow import rows_of
from schemas.outcome import OutcomeMetric, ShotScore
from schemas.poses import PoseMetric, PoseScore
from trajpilot_core.evaluation.pose_rows import pose_rows
from trajpilot_core.evaluation.shot_rows import SHOT_NAMES
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.bars import Bar, bar_chart
from trajpilot_core.report.drawing.charts import Axes, Key, Series, keys_of, legend_mark, measured, whisker_chart
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.tables.names import pose_metric_names

SHOT_KINDS: tuple[tuple[OutcomeMetric, str], ...] = (("made", "train"), ("missed", "dev"))
"""Kind of shots -> style of its part of a bar."""
POSE_KINDS: tuple[PoseMetric, ...] = ("mid", "full")
STYLES = ("oracle", "scorer", "endpoint_traj", "top1", "pool_mean", "knn_labels", "no_traj")
"""Rows whose colours and marks the rows of pose sources use, in the order of their table."""
APART = 1.7
"""Distance of the two metrics, which leaves room for a whisker of every row."""


def shots(committed: Committed) -> Drawn:
    """Draw how many shots each row has right, made and missed ones, a panel for each seed."""
    scores = rows_of(ShotScore, committed.table("outcome", "shot_scores"))
    counted = {(one.seed, one.row, one.metric): one for one in scores if one.n_right is not None}
    if not counted:
        raise NothingToDraw("no shot was answered")
    panels = []
    for seed in sorted({one.seed for one in counted.values() if one.seed is not None}):
        bars = [
            Bar(name, tuple((style_, counted[seed, row, kind].n_right or 0) for kind, style_ in SHOT_KINDS))
            for row, name in SHOT_NAMES.items()
            if (seed, row, "made") in counted
        ]
        panels.append(Panel(f"Right outcomes, seed {seed}", bar_chart(f"Right outcomes, seed {seed}", "shots", bars)))
    keys = [Key(f"{kind} shots", legend_mark(style_, "square")) for kind, style_ in SHOT_KINDS]
    whole = next(one for one in counted.values() if one.metric == "accuracy")
    caption = f"{whole.n_shots} test shots of {whole.n_takes} takes; a row that knows nothing has half of them right."
    return Drawn(sheet(panels, keys, committed.warning()), caption)


def pose_sources(committed: Committed) -> Drawn:
    """Draw both metrics of every row, mean over the seeds, a whisker each; a simulated corpus is named in the picture.

    Raises:
        NothingToDraw: no window was scored.
    """
    scores = rows_of(PoseScore, committed.table("pose_sources", "pose_scores"))
    means = {(one.row, one.metric): one for one in scores if one.against is None and one.seed is None}
    if not means:
        raise NothingToDraw("no test window was scored")
    names = pose_metric_names(is_closed=committed.config.predictor.head == "classes")
    series = [
        Series(
            row.name,
            like,
            tuple(
                measured(APART * at, (one := means[row.name, kind]).value, one.low, one.high, name)
                for at, (kind, name) in enumerate(zip(POSE_KINDS, names, strict=True))
                if (row.name, kind) in means
            ),
            mark_of(like),
        )
        for row, like in zip(pose_rows(scores[0].sources), STYLES, strict=True)
    ]
    title = "Trained on one source, tested with another"
    axes = Axes(title, "trained -> tested", "right steps, %", (0.0, APART), x_names=names)
    whole = next(iter(means.values()))
    caption = (
        f"{whole.n_windows:,} test windows of {whole.n_takes} takes that both sources cover, mean of the seeds; "
        "whiskers: intervals over takes (none where there are too few)."
    )
    content = sheet([Panel(title, whisker_chart(axes, series))], keys_of(series), committed.warning())
    return Drawn(content, caption)


SHOTS = Figure("shots", "Outcome of shots", stages=("outcome",), draw=shots)
POSE_SOURCES = Figure("pose_sources", "Pose sources", stages=("pose_sources",), draw=pose_sources)
