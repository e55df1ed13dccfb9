"""Right steps by the source of head motion that a predictor was trained on and the one that it is asked with."""

from schemas.arrow import rows_of
from schemas.poses import PoseMetric, PoseScore
from trajpilot_core.evaluation.pose_rows import pose_rows
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Axes, Series, keys_of, measured, whisker_chart
from trajpilot_core.report.drawing.picture import Drawn, NothingToDraw
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.tables.names import pose_metric_names

KINDS: tuple[PoseMetric, ...] = ("mid", "full")
STYLES = ("oracle", "scorer", "endpoint_traj", "top1", "pool_mean", "knn_labels", "no_traj")
"""Rows whose colours and marks those of the table borrow, in its order."""
APART = 1.7
"""Between the two metrics, so that as many whiskers stand side by side as there are rows."""


def pose_sources(committed: Committed) -> Drawn:
    """Draw both metrics of every row, mean over the seeds, a whisker each; a simulated corpus is named in the picture.

    Raises:
        NothingToDraw: no window was scored.
    """
    scores = rows_of(PoseScore, committed.table("pose_sources", "pose_scores"))
    means = {(one.row, one.metric): one for one in scores if one.against is None and one.seed is None}
    if not means:
        raise NothingToDraw("no test window was scored")
    warning = committed.warning()
    names = pose_metric_names(is_closed=committed.config.predictor.head == "classes")
    series = [
        Series(
            row.name,
            like,
            tuple(
                measured(APART * at, (one := means[row.name, kind]).value, one.low, one.high, name)
                for at, (kind, name) in enumerate(zip(KINDS, names, strict=True))
                if (row.name, kind) in means
            ),
            mark_of(like),
        )
        for row, like in zip(pose_rows(scores[0].sources), STYLES, strict=True)
    ]
    title = "Trained on one source, asked with another"
    axes = Axes(title, "trained -> asked", "right steps, %", (0.0, APART), x_names=names)
    whole = next(iter(means.values()))
    said = (
        f"{whole.n_windows:,} test windows of {whole.n_takes} takes that both sources cover, mean of the seeds; "
        "whiskers: intervals over takes (none where there are too few)."
    )
    content = sheet([Panel(title, whisker_chart(axes, series))], keys_of(series), warning)
    return Drawn(content, said)


FIGURE = Figure("pose_sources", "Pose sources", stages=("pose_sources",), draw=pose_sources)
