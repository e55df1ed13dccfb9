"""Planning and anticipation on atomic actions, open vocabulary, and goal dropout.

Source: arXiv 2605.20388, its full per-horizon results and its appendix on goal dropout. With the goal seen, the future
steps of its tables of goal dropout are the middle steps: its Future R@1 of both Oracles at H=3 is their M@1.
"""

from functools import partial

from schemas.config import RecipeName
from schemas.training import GOAL_DROPOUT
from trajpilot_core.paper.published import ATOMIC, ATOMIC_CORPUS, HORIZONS, OPEN_METRICS
from trajpilot_core.studies.paper_tables.base import (
    Column,
    Line,
    PaperCell,
    PaperRun,
    PaperTable,
    measured,
    metric_head,
)
from trajpilot_core.studies.paper_tables.labels.rows import ATOMIC_ROWS, of_each_horizon, rules_of

ANTICIPATION, GOAL_SEEN, GOAL_MASKED = (
    "atomic_anticipation_full",
    "goal_dropout_fullgoal",
    "goal_dropout_anticipation_full",
)
FUTURE = ("Future R@1", "Future R@5", "Future Seq")
FULL = ("Full R@1", "Full R@5", "Full Seq")
MIDDLE = ("M@1", "M@5", "MSeq")
"""What FUTURE is of a plan whose goal is seen."""
TWINS = {
    "oracle": "No-dropout Traj",
    "oracle_goal_dropout": "Goal-dropout Traj",
    "no_traj": "No-dropout No-Traj",
    "no_traj_goal_dropout": "Goal-dropout No-Traj",
}
"""Row of ours -> its column in both tables of goal dropout."""
PERCENT = "Percent. Bold: the best that is not told the truth."


def of_atomic(
    run: PaperRun, table: str, metrics: tuple[str, ...], rows: tuple[str, ...], pooling: tuple[str, ...] = ("none",)
) -> list[PaperCell]:
    """Return the cells that a run on atomic descriptions with an open vocabulary fills."""
    found = measured(run, table, metrics, pooling, rows) if run.dataset == ATOMIC_CORPUS else []
    return [cell.replace(dataset="") for cell in found]


def per_horizon(label: str, title: str, metrics: tuple[str, ...], recipe: RecipeName) -> PaperTable:
    """Return a table of the five rows of atomic actions for each horizon."""
    return PaperTable(
        label=label,
        title=title,
        heads=("H", "Method"),
        lines=of_each_horizon(ATOMIC_ROWS),
        columns=tuple(Column(metric_head(metric), (metric,)) for metric in metrics),
        cells=partial(of_atomic, table=label, metrics=metrics, rows=ATOMIC_ROWS),
        rules=rules_of(ATOMIC_ROWS),
        note=PERCENT,
        recipes=(recipe,),
    )


def dropout(
    label: str, title: str, metrics: tuple[str, ...], printed: str, recipe: RecipeName, *changes: str
) -> PaperTable:
    """Return a table of the four rows of goal dropout: a line for each horizon and one for the mean over windows."""
    rows = tuple(TWINS)
    return PaperTable(
        label=label,
        title=title,
        heads=("H",),
        lines=(*(Line((str(h),), horizon=h) for h in HORIZONS), Line(("Overall",))),
        columns=tuple(Column(title, metrics, row=row, digits=1) for row, title in TWINS.items()),
        cells=partial(of_atomic, table=label, metrics=metrics, rows=rows, pooling=("none", "sample")),
        rules=(len(HORIZONS),),
        note=f"Percent, {printed}; overall: every window weighs alike.",
        recipes=(recipe,),
        changes=changes,
    )


TABLES = (
    per_horizon(
        ATOMIC,
        "Open-vocabulary planning on atomic actions, each horizon",
        OPEN_METRICS,
        "atomic",
    ),
    per_horizon(
        ANTICIPATION,
        "Open-vocabulary anticipation on atomic actions, each horizon",
        (*FUTURE, *FULL),
        "atomic_anticipation",
    ),
    dropout(
        GOAL_SEEN,
        "Goal dropout in training, planning with the goal",
        MIDDLE,
        "Future R@1 / Future R@5 / Future Seq (of the middle steps)",
        "atomic",
        f"predictor.twin_goal_dropout={GOAL_DROPOUT:g}",
    ),
    dropout(
        GOAL_MASKED,
        "Goal dropout in training, anticipation without the goal",
        FUTURE,
        "Future R@1 / Future R@5 / Future Seq",
        "atomic_anticipation",
    ),
)
