"""Planning on closed vocabularies: means over the horizons, each horizon, hyperparameters, and the panel of classes.

Source: arXiv 2605.20388, its tables of closed-vocabulary planning (overall, per horizon), its figure of planning on
atomic actions (right panel), and its table of hyperparameters.
"""

from collections.abc import Collection, Mapping
from functools import partial
from itertools import product

from trajpilot_core.paper.published import (
    BENCHMARKS,
    CLOSED_ATOMIC,
    CLOSED_FULL,
    CLOSED_OVERALL,
    CLOSED_ROWS,
    CLOSED_SETTINGS,
)
from trajpilot_core.report.tables.results import FULL, OVERALL, PANEL
from trajpilot_core.report.tables.table import metric_head
from trajpilot_core.studies.paper_tables.base import (
    Column,
    Line,
    PaperCell,
    PaperRun,
    PaperTable,
    measured,
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
    run: PaperRun, table: str, metrics: tuple[str, ...], pooling: str, datasets: Collection[str] = BENCHMARKS.values()
) -> list[PaperCell]:
    """Return the cells that a run on one of some datasets fills, by default of the three benchmarks."""
    return measured(run, table, metrics, (pooling,), CLOSED_ROWS) if run.dataset in datasets else []


def of_settings(run: PaperRun) -> list[PaperCell]:
    """Return the hyperparameters of a run on one of the three benchmarks."""
    if run.dataset not in BENCHMARKS.values():
        return []
    return [plain_cell(run, CLOSED_SETTINGS, run.dataset, name, value) for name, value in run.settings.items()]


def columns_of(metrics: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns of metrics for each benchmark."""
    return tuple(
        Column(metric_head(metric, PRINTED.get(metric, "")), (metric,), title, dataset)
        for (dataset, title), metric in product(TITLES.items(), metrics)
    )


TABLES = (
    PaperTable(
        label=CLOSED_OVERALL,
        title="Closed-vocabulary planning, mean of the horizons",
        heads=("Method",),
        lines=of_methods(CLOSED_ROWS),
        columns=columns_of(OVERALL),
        cells=partial(of_datasets, table=CLOSED_OVERALL, metrics=OVERALL, pooling="plain"),
        rules=(len(CLOSED_ROWS) - 1,),
        note=NOTE,
        recipes=BENCHMARK_RECIPES,
    ),
    PaperTable(
        label=CLOSED_FULL,
        title="Closed-vocabulary planning, each horizon",
        heads=("H", "Method"),
        lines=of_each_horizon(CLOSED_ROWS),
        columns=columns_of(FULL),
        cells=partial(of_datasets, table=CLOSED_FULL, metrics=FULL, pooling="none"),
        rules=rules_of(CLOSED_ROWS),
        note=NOTE,
        recipes=BENCHMARK_RECIPES,
    ),
    PaperTable(
        label=CLOSED_PANEL,
        title="Planning on classes of atomic descriptions, means over all windows",
        heads=("Method",),
        lines=of_methods(CLOSED_ROWS),
        columns=tuple(
            Column(metric_head(metric, PRINTED[metric]), (metric,), dataset=CLOSED_ATOMIC) for metric in PANEL
        ),
        cells=partial(of_datasets, table=CLOSED_PANEL, metrics=PANEL, pooling="sample", datasets=(CLOSED_ATOMIC,)),
        rules=(len(CLOSED_ROWS) - 1,),
        note=NOTE,
        recipes=("atomic_closed",),
    ),
    PaperTable(
        label=CLOSED_SETTINGS,
        title="Hyperparameters of the closed benchmarks",
        heads=("Benchmark",),
        lines=tuple(Line((title,), dataset) for dataset, title in TITLES.items()),
        columns=tuple(Column(head, (name,), digits=None) for name, head in SETTINGS.items()),
        cells=of_settings,
        of_methods=False,
        recipes=BENCHMARK_RECIPES,
    ),
)
