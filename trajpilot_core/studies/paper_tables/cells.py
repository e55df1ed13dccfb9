"""The numbers of the paper's tables as finished runs have them: one record a cell, read from the roots of the runs.

A table of several benchmarks takes one run for each; benchmarks without a run have no cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.base import Record
from schemas.config import EvaluationConfig, IngestConfig
from schemas.results import Judgement, Metric
from schemas.training import PredictorConfig, ScorerConfig
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.comparison import EVALUATION, INGEST, Side, corpora_of, open_side
from trajpilot_core.paper.published import (
    ATOMIC_CORPUS,
    BENCHMARKS,
    CLOSED_ATOMIC,
    CLOSED_FULL,
    CLOSED_OVERALL,
    CLOSED_ROWS,
    CLOSED_SETTINGS,
)
from trajpilot_core.report.tables.closed import FULL, OVERALL, PANEL
from trajpilot_core.report.tables.results import Results, results_of
from trajpilot_core.stages import STAGES

CLOSED_PANEL = "atomic_planning_closed"
"""Right panel of the paper's figure of planning on atomic actions."""
RECIPE_HINT = "trajpilot run --recipe keystep, goalstep, egoper or atomic_closed"


class PaperCell(Record):
    """One number of one of the paper's tables, as a run has it."""

    table: str
    """The paper's label, without its kind."""
    row: str
    """Id of a row, or of a setting."""
    dataset: str
    horizon: int | None
    """None: over all horizons, as the table says."""
    metric: str
    value: float
    low: float | None
    """Of the interval over takes; None where there is none."""
    high: float | None
    n_takes: int | None
    n_windows: int | None
    is_undertrained: bool
    is_simulated: bool


@dataclass(frozen=True)
class ClosedRun:
    """A finished run on a closed vocabulary."""

    name: str
    dataset: str
    results: Results
    settings: dict[str, float]
    """Hyperparameters of class heads, as the paper's table names them; none for classes of atomic descriptions."""
    is_simulated: bool


def read_run(root: str) -> ClosedRun:
    """Read the evaluation that counts under a root, or `ROOT@KEY`.

    Raises:
        InputError: there is none, it is of no closed vocabulary of the paper, or what it was made from is gone.
    """
    side = open_side(root, STAGES)
    lacking = [stage for stage in (INGEST, "predictor", "scorer", EVALUATION) if stage not in side.outputs]
    if lacking:
        raise InputError(f"{root}: the output of {', '.join(lacking)} is gone; run it again")
    dataset = _dataset(root, side)
    metrics, judgements = side.table(EVALUATION, "metrics"), side.table(EVALUATION, "judgements")
    assert metrics is not None
    assert judgements is not None
    results = results_of(rows_of(Metric, metrics), rows_of(Judgement, judgements))
    settings = _settings(side) if dataset != CLOSED_ATOMIC else {}
    return ClosedRun(root, dataset, results, settings, SIMULATED in corpora_of(side))


def _dataset(root: str, side: Side) -> str:
    """Return what the paper's tables call the benchmark of a run."""
    corpus = IngestConfig.model_validate(side.outputs[INGEST].config).corpus
    answers = EvaluationConfig.model_validate(side.outputs[EVALUATION].config).vocabulary
    head = PredictorConfig.model_validate(side.outputs["predictor"].config).head
    if corpus in BENCHMARKS and head == "classes":
        return BENCHMARKS[corpus]
    if corpus == ATOMIC_CORPUS and answers == "classes":
        return CLOSED_ATOMIC
    raise InputError(
        f"{root} is a run on {corpus} whose answers are {answers} and whose labels are ranked by the head {head!r}: no "
        f"closed vocabulary of the paper; give roots of {RECIPE_HINT}"
    )


def _settings(side: Side) -> dict[str, float]:
    """Return the hyperparameters of a run with class heads."""
    labels = side.table(INGEST, "labels", ("label_id",))
    assert labels is not None
    predictor = PredictorConfig.model_validate(side.outputs["predictor"].config)
    decoding = ScorerConfig.model_validate(side.outputs["scorer"].config).decoding
    return {
        "labels": float(labels.num_rows),
        "lambda_bridge": predictor.bridge_weight,
        "transition_weight": decoding.weight,
        "smoothing": decoding.smoothing,
        "temperature": decoding.temperature,
    }


def cells_of(runs: Sequence[ClosedRun]) -> list[PaperCell]:
    """Return every cell of the closed tables that the runs fill.

    Raises:
        InputError: two runs of one benchmark, or simulated ones next to recorded ones.
    """
    for at, run in enumerate(runs):
        twin = next((other.name for other in runs[:at] if other.dataset == run.dataset), None)
        if twin is not None:
            raise InputError(
                f"{twin} and {run.name} are both of {run.dataset}; a table has room for one, leave one out"
            )
    if len({run.is_simulated for run in runs}) > 1:
        kinds = ", ".join(f"{run.name} {'simulated' if run.is_simulated else 'recorded'}" for run in runs)
        raise InputError(
            f"simulated and recorded runs share no table ({kinds}); write each kind to a folder of its own"
        )
    return [cell for run in runs for cell in _cells(run)]


def _cells(run: ClosedRun) -> list[PaperCell]:
    """Return the cells of one run."""
    if run.dataset == CLOSED_ATOMIC:
        return _measured(run, CLOSED_PANEL, PANEL, "sample")
    settings = [
        PaperCell(
            table=CLOSED_SETTINGS,
            row=run.dataset,
            dataset="",
            horizon=None,
            metric=name,
            value=value,
            low=None,
            high=None,
            n_takes=None,
            n_windows=None,
            is_undertrained=False,
            is_simulated=run.is_simulated,
        )
        for name, value in run.settings.items()
    ]
    return [*_measured(run, CLOSED_OVERALL, OVERALL, "plain"), *_measured(run, CLOSED_FULL, FULL, "none"), *settings]


def _measured(run: ClosedRun, table: str, metrics: Sequence[str], pooling: str) -> list[PaperCell]:
    """Return the cells of one table that hold metrics."""
    return [
        PaperCell(
            table=table,
            row=m.variant,
            dataset=run.dataset,
            horizon=m.horizon,
            metric=m.metric,
            value=m.value,
            low=m.low if m.low > float("-inf") else None,
            high=m.high if m.high < float("inf") else None,
            n_takes=m.n_takes,
            n_windows=m.n_windows,
            is_undertrained=m.variant in run.results.undertrained,
            is_simulated=run.is_simulated,
        )
        for m in run.results.find(set(CLOSED_ROWS), None)
        if m.pooling == pooling and m.metric in metrics
    ]
