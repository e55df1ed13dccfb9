"""Which rows of the tables count as trained: the same answer for every page (docs/decisions/training.md).

A row does not count where a model behind it does not, or where it is a learned row and the lower end of its interval
over takes is not above every floor of its table. kNN-labels, which retrieves by the head motion of both ends, is a
floor only of rows that are given this motion. Names of checks: `trained: <chain>/<model>, seed N` and
`trained: row <row>`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from schemas.results import CurvePoint, Judgement, Metric
from trajpilot_core.methods import METHODS, anticipation, floors, method, retrieved
from trajpilot_core.methods.base import Method, covers
from trajpilot_core.training.convergence import judge_row, judge_scores

TRAINED = "trained: "
"""Prefix of the names of checks of trainings and of learned rows."""
ROW = f"{TRAINED}row "
JUDGED, JUDGED_BY_HEADS = "M@1", "Mid mAcc"
"""The deciding metric, and the one for class heads."""
Means = Mapping[tuple[str, str | None, int | None], Metric]
"""(row, reference of a paired difference, horizon) -> its figure."""
FLOORS = (floors.MAJORITY.id, floors.PREVIOUS.id, retrieved.KNN_LABELS.id, anticipation.MAJORITY.id)
"""Rows that a learned one must exceed; without a goal only the last."""


def judge_models(
    curves: Sequence[CurvePoint], models: Collection[str], quantity: str, floors: Mapping[str, float]
) -> list[Judgement]:
    """Judge models of the final chain by their dev curves of a quantity, a share of right answers (D 51)."""
    scores: dict[tuple[str, int], list[float]] = {}
    for point in sorted(curves, key=lambda point: point.epoch):
        if (point.split, point.quantity) == ("dev", quantity) and point.model in models:
            scores.setdefault((point.model, point.seed), []).append(point.value)
    return [
        judge_scores(f"{TRAINED}{model}, seed {seed}", values, floors, "right")
        for (model, seed), values in sorted(scores.items())
    ]


def is_learned(row: Method) -> bool:
    """Return whether a row is judged by its level: it has models, and is no floor.

    A control that uses the models of another row is not: its level is no evidence about their training.
    """
    if not row.models or row.id in FLOORS:
        return False
    of_others = {model for other in METHODS if other.role != "control" for model in other.models}
    return row.role != "control" or not of_others.issuperset(row.models)


def judge_rows(metrics: Sequence[Metric], metric: str) -> list[Judgement]:
    """Judge every learned row by one metric, mean over horizons and seeds, against the floors of its table.

    A row without that mean, whose models lack a horizon, is judged at each horizon that it has; the first judgement
    that does not hold is returned.
    """
    means: Means = {
        (m.variant, m.reference, m.horizon): m
        for m in metrics
        if (m.metric, m.seed, m.cluster) == (metric, None, "take") and m.pooling != "sample"
    }
    judged = []
    for row in METHODS:
        horizons = [horizon for id_, reference, horizon in means if (id_, reference) == (row.id, None)]
        if not horizons or not is_learned(row):
            continue
        known: list[int | None] = [*sorted(horizon for horizon in horizons if horizon is not None)]
        candidates = [_judged(row, at, means, metric) for at in ([None] if None in horizons else known)]
        judged.append(next((one for one in candidates if one.verdict != "holds"), candidates[0]))
    return judged


def _judged(row: Method, horizon: int | None, means: Means, metric: str) -> Judgement:
    """Judge a row at one horizon, or by its mean over them."""
    known = [method(floor) for floor in FLOORS if (floor, None, horizon) in means]
    same_task = [floor for floor in known if floor.anticipates == row.anticipates]
    given_no_more = [floor for floor in same_task if not floor.models or covers(row.sees, floor.sees)]
    values = {floor.name: means[floor.id, None, horizon].value for floor in given_no_more}
    pairs = {floor.name: means.get((row.id, floor.id, horizon)) for floor in given_no_more}
    leads = {name: pair.low for name, pair in pairs.items() if pair is not None}
    what = f"test {metric}" + (f" at H={horizon}" if horizon is not None else "")
    return judge_row(f"{ROW}{row.id}", means[row.id, None, horizon].low, values, what, leads)


def judge_events(lows: Mapping[str, float], floors: Mapping[str, float], what: str) -> list[Judgement]:
    """Judge the learned rows of a table of events.

    Args:
        lows: learned row -> the lower end of its interval, percent; of several seeds the lowest.
        floors: printed name -> value of each floor of the table, percent.
    """
    return [judge_row(f"{ROW}{row}", low, floors, what) for row, low in lows.items()]


def model_of(check: str) -> str:
    """Return the model of a check `trained: <chain>/<model>, seed <seed>`; of a fold `folds/<model>`."""
    chain, _, model = check.removeprefix(TRAINED).split(",")[0].partition("/")
    return model if chain == "final" else f"folds/{model}"


def undertrained_rows(
    judgements: Iterable[Judgement], models_of: Mapping[str, Collection[str]], seed: int | None = None
) -> frozenset[str]:
    """Return the rows that do not count as trained.

    Args:
        models_of: row -> the models behind it, as `model_of` names them.
        seed: only trainings of this seed count; None: all.
    """
    weak = [judged.check for judged in judgements if judged.check.startswith(TRAINED) and judged.verdict != "holds"]
    rows = {check.removeprefix(ROW) for check in weak if check.startswith(ROW)}
    models = {model_of(check) for check in weak if seed is None or check.endswith(f", seed {seed}")}
    return frozenset(row for row, behind in models_of.items() if row in rows or models & set(behind))
