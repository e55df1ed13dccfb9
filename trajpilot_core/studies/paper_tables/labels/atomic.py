"""Planning and anticipation on atomic actions, open vocabulary, and goal dropout.

Source: arXiv 2605.20388, its full per-horizon results and its appendix on goal dropout. The future steps of
its tables are the middle steps: with the goal seen, Future R@1 of Oracle at H=3 is its M@1 of planning.
"""

from collections.abc import Mapping
from functools import partial

from schemas.training import GOAL_DROPOUT
from trajpilot_core.paper.published import (
    ANTICIPATING,
    ANTICIPATION,
    ATOMIC,
    ATOMIC_CORPUS,
    FULL,
    FUTURE,
    GOAL_MASKED,
    GOAL_SEEN,
    HORIZONS,
    OPEN_METRICS,
)
from trajpilot_core.studies.paper_tables.base import (
    Column,
    Line,
    PaperCell,
    PaperRun,
    PaperTable,
    headed,
    measured,
    of_a_sample,
    of_each_horizon,
    printed,
    rules_of,
)

ATOMIC_ROWS = ("qwen_zs", "qwen_sft_llm", "no_traj", "scorer", "oracle")
"""Rows of the paper's tables of atomic actions, in their order."""
UNTUNED = "qwen_llm_untuned"
"""Printed below them where a run has it; it is not in the paper."""
GOAL_FREE_ROWS = tuple(f"anticipation_{row}" for row in ATOMIC_ROWS)
"""Rows without a goal, in the order of the paper's table."""
DROPOUT = ("No-dropout Traj", "Goal-dropout Traj", "No-dropout No-Traj", "Goal-dropout No-Traj")
"""Columns of both tables of goal dropout."""
GOAL_SEEN_ROWS, GOAL_MASKED_ROWS = (tuple(ANTICIPATING[label].values()) for label in (GOAL_SEEN, GOAL_MASKED))
"""Rows of ours in these columns."""
PERCENT = "Percent. Bold: the best row that does not see the truth."


def of_atomic(
    run: PaperRun, table: str, metrics: tuple[str, ...], rows: tuple[str, ...], pooling: tuple[str, ...] = ("none",)
) -> list[PaperCell]:
    """Return the cells that an open-vocabulary run on atomic descriptions fills; none for a sample of windows."""
    is_whole = run.dataset == ATOMIC_CORPUS and not of_a_sample(run)
    cells = measured(run, table, metrics, pooling, rows) if is_whole else []
    return [cell.replace(dataset="") for cell in cells]


def per_horizon(label: str, title: str, rows: tuple[str, ...], heads: Mapping[str, str], *recipes: str) -> PaperTable:
    """Return a table of the five rows of atomic actions for each horizon; `heads` prints its metrics."""
    untuned = f"{'anticipation_' if rows == GOAL_FREE_ROWS else ''}{UNTUNED}"
    return PaperTable(
        label=label,
        title=title,
        heads=("H", "Method"),
        lines=of_each_horizon(rows),
        columns=headed(heads),
        cells=partial(of_atomic, table=label, metrics=tuple(heads), rows=(*rows, untuned)),
        further=tuple(Line((str(h), printed(untuned)), untuned, h) for h in HORIZONS),
        rules=rules_of(rows),
        note=PERCENT,
        recipes=recipes,
    )


def dropout(label: str, title: str, rows: tuple[str, ...], recipe: str, *changes: str) -> PaperTable:
    """Return a table of the four rows of goal dropout: a line for each horizon and one for the mean over windows."""
    metrics = tuple(FUTURE)
    return PaperTable(
        label=label,
        title=title,
        heads=("H",),
        lines=(*(Line((str(h),), horizon=h) for h in HORIZONS), Line(("Overall",))),
        columns=tuple(Column(head, metrics, row=row, digits=1) for row, head in zip(rows, DROPOUT, strict=True)),
        cells=partial(of_atomic, table=label, metrics=metrics, rows=rows, pooling=("none", "sample")),
        rules=(len(HORIZONS),),
        note=f"Percent, {' / '.join(FUTURE.values())}; overall: every window has the same weight.",
        recipes=(recipe,),
        changes=changes,
    )


TABLES = (
    per_horizon(
        ATOMIC,
        "Open-vocabulary planning on atomic actions, each horizon",
        ATOMIC_ROWS,
        {metric: metric for metric in OPEN_METRICS},
        "atomic",
        "vlm_sft",
        "vlm_zero_shot",
    ),
    per_horizon(
        ANTICIPATION,
        "Open-vocabulary anticipation on atomic actions, each horizon",
        GOAL_FREE_ROWS,
        FUTURE | FULL,
        "atomic_anticipation",
        "vlm_sft",
        "vlm_zero_shot",
    ),
    dropout(
        GOAL_SEEN,
        "Goal dropout in training, planning with the goal",
        GOAL_SEEN_ROWS,
        "atomic",
        f"predictor.twin_goal_dropout={GOAL_DROPOUT:g}",
    ),
    dropout(
        GOAL_MASKED, "Goal dropout in training, anticipation without the goal", GOAL_MASKED_ROWS, "atomic_anticipation"
    ),
)
