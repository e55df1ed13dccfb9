"""Planning and anticipation: closed vocabularies, then atomic actions with an open vocabulary, and goal dropout.

Source: arXiv 2605.20388, its tables of closed-vocabulary planning (overall, per horizon), its figure of planning on
atomic actions (right panel), its table of hyperparameters, its full per-horizon results, and its appendix on goal
dropout. The future steps of its tables are the middle steps: with the goal seen, Future R@1 of Oracle at H=3 is its M@1
of planning.
"""

from collections.abc import Collection, Mapping
from functools import partial
from itertools import product

from schemas.training import GOAL_DROPOUT
from trajpilot_core.paper import published
from trajpilot_core.report.tables.results import FULL, OVERALL, PANEL
from trajpilot_core.report.tables.table import metric_head
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
    of_methods,
    plain_cell,
    rules_of,
)

CLOSED_PANEL = "atomic_planning_closed"
"""Right panel of the paper's figure of planning on atomic actions."""
TITLES: Mapping[str, str] = {"keystep": "Keystep", "goalstep": "GoalStep", "egoper": "EgoPER"}
"""Benchmark -> as the tables print it."""
PRINTED: Mapping[str, str] = {"Mid mAcc": "mAcc", "M@1": "Mid R@1", "M@5": "Mid R@5", "MSeq": "Mid Seq"}
"""Metric -> its name in these tables of the paper, where that differs."""
NOTE = "Percent, ED in steps; mAcc is that of the middle steps. Bold: the best row that does not see the truth."
SETTINGS: Mapping[str, str] = {
    "labels": "|V|",
    "lambda_bridge": "λ bridge",
    "transition_weight": "Trans. w",
    "smoothing": "Smoothing",
    "temperature": "Temp.",
}
"""Hyperparameter -> as it is printed."""
BENCHMARK_RECIPES = ("keystep", "goalstep", "egoper")


def of_datasets(
    run: PaperRun,
    table: str,
    metrics: tuple[str, ...],
    pooling: str,
    datasets: Collection[str] = published.BENCHMARKS.values(),
) -> list[PaperCell]:
    """Return the cells that a run on one of some datasets fills, by default of the three benchmarks."""
    return measured(run, table, metrics, (pooling,), published.CLOSED_ROWS) if run.dataset in datasets else []


def _of_settings(run: PaperRun) -> list[PaperCell]:
    if run.dataset not in published.BENCHMARKS.values():
        return []
    return [
        plain_cell(run, published.CLOSED_SETTINGS, run.dataset, name, value) for name, value in run.settings.items()
    ]


def columns_of(metrics: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns of metrics for each benchmark."""
    return tuple(
        Column(metric_head(metric, PRINTED.get(metric, "")), (metric,), title, dataset)
        for (dataset, title), metric in product(TITLES.items(), metrics)
    )


CLOSED = (
    PaperTable(
        label=published.CLOSED_OVERALL,
        title="Closed-vocabulary planning, mean of the horizons",
        heads=("Method",),
        lines=of_methods(published.CLOSED_ROWS),
        columns=columns_of(OVERALL),
        cells=partial(of_datasets, table=published.CLOSED_OVERALL, metrics=OVERALL, pooling="plain"),
        rules=(len(published.CLOSED_ROWS) - 1,),
        note=NOTE,
        recipes=BENCHMARK_RECIPES,
    ),
    PaperTable(
        label=published.CLOSED_FULL,
        title="Closed-vocabulary planning, each horizon",
        heads=("H", "Method"),
        lines=of_each_horizon(published.CLOSED_ROWS),
        columns=columns_of(FULL),
        cells=partial(of_datasets, table=published.CLOSED_FULL, metrics=FULL, pooling="none"),
        rules=rules_of(published.CLOSED_ROWS),
        note=NOTE,
        recipes=BENCHMARK_RECIPES,
    ),
    PaperTable(
        label=CLOSED_PANEL,
        title="Planning on classes of atomic descriptions, means over all windows",
        heads=("Method",),
        lines=of_methods(published.CLOSED_ROWS),
        columns=tuple(
            Column(metric_head(metric, PRINTED[metric]), (metric,), dataset=published.CLOSED_ATOMIC) for metric in PANEL
        ),
        cells=partial(
            of_datasets, table=CLOSED_PANEL, metrics=PANEL, pooling="sample", datasets=(published.CLOSED_ATOMIC,)
        ),
        rules=(len(published.CLOSED_ROWS) - 1,),
        note=NOTE,
        recipes=("atomic_closed",),
    ),
    PaperTable(
        label=published.CLOSED_SETTINGS,
        title="Hyperparameters of the closed benchmarks",
        heads=("Benchmark",),
        lines=tuple(Line((title,), dataset) for dataset, title in TITLES.items()),
        columns=tuple(Column(head, (name,), digits=None) for name, head in SETTINGS.items()),
        cells=_of_settings,
        of_methods=False,
        recipes=BENCHMARK_RECIPES,
    ),
)

ATOMIC_ROWS = ("qwen_zs", "qwen_sft_llm", "no_traj", "scorer", "oracle")
"""Rows of the paper's tables of atomic actions, in their order."""
GOAL_FREE_ROWS = tuple(f"anticipation_{row}" for row in ATOMIC_ROWS)
"""Rows without a goal, in the order of the paper's table."""
DROPOUT = ("No-dropout Traj", "Goal-dropout Traj", "No-dropout No-Traj", "Goal-dropout No-Traj")
"""Columns of both tables of goal dropout."""
GOAL_SEEN_ROWS, GOAL_MASKED_ROWS = (
    tuple(published.ANTICIPATING[label].values()) for label in (published.GOAL_SEEN, published.GOAL_MASKED)
)
"""Rows of ours in these columns."""
PERCENT = "Percent. Bold: the best row that does not see the truth."


def of_atomic(
    run: PaperRun, table: str, metrics: tuple[str, ...], rows: tuple[str, ...], pooling: tuple[str, ...] = ("none",)
) -> list[PaperCell]:
    """Return the cells that an open-vocabulary run on atomic descriptions fills; none for a sample of windows."""
    is_whole = run.dataset == published.ATOMIC_CORPUS and not of_a_sample(run)
    cells = measured(run, table, metrics, pooling, rows) if is_whole else []
    return [cell.replace(dataset="") for cell in cells]


def per_horizon(label: str, title: str, rows: tuple[str, ...], heads: Mapping[str, str], *recipes: str) -> PaperTable:
    """Return a table of the five rows of atomic actions for each horizon; `heads` prints its metrics."""
    return PaperTable(
        label=label,
        title=title,
        heads=("H", "Method"),
        lines=of_each_horizon(rows),
        columns=headed(heads),
        cells=partial(of_atomic, table=label, metrics=tuple(heads), rows=rows),
        rules=rules_of(rows),
        note=PERCENT,
        recipes=recipes,
    )


def dropout(label: str, title: str, rows: tuple[str, ...], recipe: str, *changes: str) -> PaperTable:
    """Return a table of the four rows of goal dropout: a line for each horizon and one for the mean over windows."""
    metrics = tuple(published.FUTURE)
    return PaperTable(
        label=label,
        title=title,
        heads=("H",),
        lines=(*(Line((str(h),), horizon=h) for h in published.HORIZONS), Line(("Overall",))),
        columns=tuple(Column(head, metrics, row=row, digits=1) for row, head in zip(rows, DROPOUT, strict=True)),
        cells=partial(of_atomic, table=label, metrics=metrics, rows=rows, pooling=("none", "sample")),
        rules=(len(published.HORIZONS),),
        note=f"Percent, {' / '.join(published.FUTURE.values())}; overall: every window has the same weight.",
        recipes=(recipe,),
        changes=changes,
    )


TABLES = (
    *CLOSED,
    per_horizon(
        published.ATOMIC,
        "Open-vocabulary planning on atomic actions, each horizon",
        ATOMIC_ROWS,
        {metric: metric for metric in published.OPEN_METRICS},
        "atomic",
        "vlm_sft",
        "vlm_zero_shot",
    ),
    per_horizon(
        published.ANTICIPATION,
        "Open-vocabulary anticipation on atomic actions, each horizon",
        GOAL_FREE_ROWS,
        published.FUTURE | published.FULL,
        "atomic_anticipation",
        "vlm_sft",
        "vlm_zero_shot",
    ),
    dropout(
        published.GOAL_SEEN,
        "Goal dropout in training, planning with the goal",
        GOAL_SEEN_ROWS,
        "atomic",
        f"predictor.twin_goal_dropout={GOAL_DROPOUT:g}",
    ),
    dropout(
        published.GOAL_MASKED,
        "Goal dropout in training, anticipation without the goal",
        GOAL_MASKED_ROWS,
        "atomic_anticipation",
    ),
)
