"""Pictures of tables of other stages: distances of segments, outcomes of shots, steps by the source of head motion."""

from collections.abc import Sequence

from schemas.arrow import rows_of
from schemas.events import OutcomeMetric, ShotScore
from schemas.poses import PoseMetric, PoseScore
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.evaluation.pose_rows import pose_rows
from trajpilot_core.evaluation.shot_rows import SHOT_NAMES
from trajpilot_core.paper.published import ATOMIC_CORPUS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.bars import Bar, bar_chart
from trajpilot_core.report.drawing.charts import (
    Axes,
    Key,
    Point,
    Series,
    keys_of,
    legend_mark,
    line_chart,
    measured,
    whisker_chart,
)
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.tables.diagnostics import PAIRS, QUANTITIES, published_geometry, published_progress
from trajpilot_core.report.tables.names import pose_metric_names

STYLES = {"test": "scorer", "train": "no_traj", "chance": "previous"}
"""Rows whose colours and dashes the lines use: any that differ clearly would do."""
SHOT_KINDS: tuple[tuple[OutcomeMetric, str], ...] = (("made", "train"), ("missed", "dev"))
"""Kind of shots -> style of its part of a bar."""
POSE_KINDS: tuple[PoseMetric, ...] = ("mid", "full")
SOURCE_STYLES = ("oracle", "scorer", "endpoint_traj", "top1", "pool_mean", "knn_labels", "no_traj")
"""Rows whose colours and marks the rows of pose sources use, in the order of their table."""
APART = 1.7
"""Distance of the two metrics, which leaves room for a whisker of every row."""


def diagnostics(committed: Committed) -> Drawn:
    """Draw what the stage measured; a simulated corpus is named in the picture."""
    pairs = rows_of(PairDistance, committed.table("diagnostics", "pair_distances"))
    shares = rows_of(ProgressShare, committed.table("diagnostics", "progress_shares"))
    if not pairs and not shares:
        raise NothingToDraw("no pair of segments and no window of three steps or more")
    drawn = [(title, _distances(pairs, name)) for name, title in QUANTITIES.items()]
    kinds = [kind for kind in PAIRS if any(row.pairs == kind for row in pairs)]
    ticks, names = tuple(map(float, range(len(kinds)))), tuple(PAIRS[kind].partition(",")[0] for kind in kinds)
    axes = [Axes(title, "pairs of segments", title, ticks, x_names=names) for title in QUANTITIES.values()]
    panels = [Panel(axis.title, line_chart(axis, lines)) for axis, (_, lines) in zip(axes, drawn, strict=True)]
    progress = _progress([row for row in shares if row.space == "raw"])
    title = "true plans that approach the goal, %"
    ticks = tuple(sorted({float(row.horizon) for row in shares}))
    panels.append(
        Panel("Approach to the goal, raw l1", line_chart(Axes(title, "horizon H (steps)", title, ticks), progress))
    )
    warning = committed.warning()
    content = sheet(panels, keys_of(progress or drawn[0][1]), warning)
    is_theirs = not warning and committed.config.ingest.corpus == ATOMIC_CORPUS
    return Drawn(content, _caption(pairs, shares) + (published_geometry() + published_progress() if is_theirs else ""))


def _distances(rows: Sequence[PairDistance], quantity: str) -> list[Series]:
    """One line per split over the four kinds, in the paper's order."""
    kinds = [kind for kind in PAIRS if any(row.pairs == kind for row in rows)]
    return [
        Series(
            f"{split} takes",
            STYLES[split],
            tuple(
                measured(float(kinds.index(r.pairs)), r.value, r.low, r.high, PAIRS[r.pairs])
                for r in rows
                if r.split == split and r.quantity == quantity
            ),
            "circle",
        )
        for split in ("test", "train")
    ]


def _progress(rows: Sequence[ProgressShare]) -> list[Series]:
    """One line per split over the horizon, and that of random orders."""
    lines = [
        Series(
            f"{split} takes",
            STYLES[split],
            tuple(measured(float(r.horizon), r.share, r.low, r.high) for r in rows if r.split == split),
            "circle",
        )
        for split in ("test", "train")
    ]
    chance = tuple(Point(float(h), *[c] * 3) for h, c in sorted({row.horizon: row.chance for row in rows}.items()))
    return [*lines, Series("random order", STYLES["chance"], chance, "none")] if rows else []


def _caption(pairs: Sequence[PairDistance], shares: Sequence[ProgressShare]) -> str:
    """Return how many pairs and windows are shown."""
    counts = {
        split: (
            max((row.n_pairs for row in pairs if row.split == split), default=0),
            max((row.n_windows for row in shares if row.split == split), default=0),
        )
        for split in ("test", "train")
    }
    text = "; ".join(
        f"{split}: up to {n:,} pairs of a kind, {w:,} windows of a horizon" for split, (n, w) in counts.items()
    )
    return f"{text}. Bands: 95 % intervals over takes (none where there are too few)."


FIGURE = Figure("diagnostics", "Distances between features", stages=("diagnostics",), draw=diagnostics)


def shots(committed: Committed) -> Drawn:
    """Draw how many shots each row has right, made and missed ones, a panel for each seed."""
    scores = rows_of(ShotScore, committed.table("outcome", "shot_scores"))
    counted = {(score.seed, score.row, score.metric): score for score in scores if score.n_right is not None}
    if not counted:
        raise NothingToDraw("no shot was answered")
    panels = []
    for seed in sorted({score.seed for score in counted.values() if score.seed is not None}):
        bars = [
            Bar(name, tuple((style_, counted[seed, row, kind].n_right or 0) for kind, style_ in SHOT_KINDS))
            for row, name in SHOT_NAMES.items()
            if (seed, row, "made") in counted
        ]
        panels.append(Panel(f"Right outcomes, seed {seed}", bar_chart(f"Right outcomes, seed {seed}", "shots", bars)))
    keys = [Key(f"{kind} shots", legend_mark(style_, "square")) for kind, style_ in SHOT_KINDS]
    whole = next(score for score in counted.values() if score.metric == "accuracy")
    caption = f"{whole.n_shots} test shots of {whole.n_takes} takes; a row that knows nothing has half of them right."
    return Drawn(sheet(panels, keys, committed.warning()), caption)


def pose_sources(committed: Committed) -> Drawn:
    """Draw both metrics of every row, mean over the seeds, a whisker each; a simulated corpus is named in the picture.

    Raises:
        NothingToDraw: no window was scored.
    """
    scores = rows_of(PoseScore, committed.table("pose_sources", "pose_scores"))
    means = {(score.row, score.metric): score for score in scores if score.against is None and score.seed is None}
    if not means:
        raise NothingToDraw("no test window was scored")
    names = pose_metric_names(is_closed=committed.config.predictor.head == "classes")
    series = [
        Series(
            row.name,
            like,
            tuple(
                measured(APART * at, (score := means[row.name, kind]).value, score.low, score.high, name)
                for at, (kind, name) in enumerate(zip(POSE_KINDS, names, strict=True))
                if (row.name, kind) in means
            ),
            mark_of(like),
        )
        for row, like in zip(pose_rows(scores[0].sources), SOURCE_STYLES, strict=True)
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
