"""Which rows of the tables count as trained: the same answer for every page (docs/decisions/training.md).

A row does not count where a model behind it does not, or where it is a learned row and the lower end of its interval
over takes is not above every floor of its table. kNN-labels, which retrieves by the head motion of both ends, is a
floor only of rows that are given this motion. A gate-then-rank scorer has learned to decide if its gate and its ranking
are above chance on dev, over takes: its score is not enough, since where the gate is closed it is that of the fallback.
A training is judged by its dev curve. Names of checks: `trained: <chain>/<model>, seed N` and `trained: row <row>`.
Shapes: T takes, B draws.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from schemas.config import EvaluationConfig
from schemas.results import CurvePoint, Judgement, Metric, ScorerChoice
from trajpilot_core.evaluation.bootstrap import draw_weights, ends_of, ends_of_means
from trajpilot_core.methods import METHODS, anticipation, method, retrieved
from trajpilot_core.methods.base import Method, covers

TRAINED = "trained: "
"""Prefix of the names of checks of trainings and of learned rows."""
ROW = f"{TRAINED}row "
JUDGED, JUDGED_BY_HEADS = "M@1", "Mid mAcc"
"""The deciding metric, and the one for class heads."""
Means = Mapping[tuple[str, str | None, int | None], Metric]
"""(row, reference of a paired difference, horizon) -> its figure."""
FLOORS = (retrieved.MAJORITY.id, retrieved.PREVIOUS.id, retrieved.KNN_LABELS.id, anticipation.MAJORITY.id)
"""Rows that a learned one must exceed; without a goal only the last."""
FALLBACK = "fallback M@1"
CURVE_FLOORS = (retrieved.MAJORITY.id, retrieved.PREVIOUS.id)
"""Rows of the curves, epoch 0, that need no model, as `training.dev_scores.floor_scores` writes them."""
RISE = 0.01
"""One point of a dev score that is a share, or this part of one that is a distance; less is noise between epochs."""
FALL = 0.25
"""Part of the best epoch's lead over the floors that the last epoch may have lost."""
FEWEST_EPOCHS = 4


def judge_trained(curve: Sequence[CurvePoint], model: str, seed: int) -> Judgement:
    """Judge one training by dev M@1, of predictor_curves, against the floors of its chain."""
    scores = [row.value for row in dev_rows(curve, model, seed) if row.epoch > 0]
    chain = model.split("/")[0]
    floors = {name: row.value for name in CURVE_FLOORS for row in dev_rows(curve, f"{chain}/{name}", seed)}
    return judge_scores(f"{model} seed {seed} is trained", scores, complete(floors))


def judge_planner(curve: Sequence[CurvePoint], method: str, seed: int) -> Judgement:
    """Judge the models of one planner and seed, one per horizon, each against the floors of its horizon.

    `curve` has the rows of planners_curves and predictor_curves. Returns the judgement of the first model that is not
    trained; `holds` if all are.
    """
    check, begins = f"{method} seed {seed} is trained", f"final/{method}_h"
    names = {row.model for row in curve if row.seed == seed and row.model.startswith(begins) and "," not in row.model}
    judged = []
    for horizon, name in sorted((int(name.removeprefix(begins)), name) for name in names):
        scores = [row.value for row in dev_rows(curve, name, seed, "Mid mAcc")]
        rows = [(floor, dev_rows(curve, f"final/{floor}", seed, f"M@1 H={horizon}")) for floor in CURVE_FLOORS]
        judgement = judge_scores(check, scores, complete({floor: row.value for floor, at in rows for row in at[:1]}))
        judged.append(judgement.replace(detail=f"H={horizon}: {judgement.detail}"))
    failed = [judgement for judgement in judged if judgement.verdict != "holds"]
    return (failed or judged or [Judgement(check=check, verdict="undertrained", detail="no model")])[0]


def complete(floors: Mapping[str, float]) -> Mapping[str, float]:
    """Return the floors of planning if all are known, else none: a row must beat each of them."""
    return floors if set(floors) == set(CURVE_FLOORS) else {}


def judge_scores(
    check: str, scores: Sequence[float], floors: Mapping[str, float], quantity: str = "M@1", *, is_share: bool = True
) -> Judgement:
    """Judge one training: on dev it beats every floor, no longer rises at the end, and has not fallen from its best.

    The rise is the best score of the last quarter of the epochs minus the best score before it. The fall is the best
    score minus that of the last epoch: the weights of the best epoch are used, and if later epochs lose its lead, that
    epoch was good on dev by chance.

    Args:
        scores: dev scores of the epochs, in order; higher is better.
        floors: dev scores of rows without a model; empty: unknown.
        is_share: the scores are between 0 and 1; else they are negated distances.
    """
    if len(scores) < FEWEST_EPOCHS or not floors:
        why = f"{len(scores)} epochs are too few to judge" if floors else "no floor to compare with"
        return Judgement(check=check, verdict="undertrained", detail=why)
    cut = len(scores) - len(scores) // 4
    best, floor = max(scores), max(floors.values())
    rise, fall = max(scores[cut:]) - max(scores[:cut]), best - scores[-1]
    noise = RISE if is_share else RISE * abs(best)
    wrong = [
        *(["not above every floor"] if best <= floor else []),
        *(["still rising"] if rise > noise else []),
        *(["fallen from its best"] if fall > max(noise, FALL * (best - floor)) else []),
    ]
    scale, digits, unit = (100, 1, " points") if is_share else (1, 4, "")
    of_floors = ", ".join(f"{name} {scale * value:.{digits}f}" for name, value in floors.items())
    moved = f"{scale * rise:+.{digits}f}{unit} in the last quarter of {len(scores)} epochs"
    detail = f"dev {quantity} {scale * best:.{digits}f}{' %' if is_share else ''} ({of_floors}); {moved}"
    detail += f", the last {scale * fall:.{digits}f}{unit} below the best"
    detail += f": {', '.join(wrong)}" if wrong else ""
    return Judgement(check=check, verdict="undertrained" if wrong else "holds", detail=detail)


def judge_row(
    check: str, low: float, floors: Mapping[str, float], what: str, leads: Mapping[str, float] = MappingProxyType({})
) -> Judgement:
    """Judge one learned row of a table: by its interval over takes it is above every floor of the table.

    The interval of the paired difference decides, which knows that both answered the same windows; against a floor
    without one, the row's own.

    Args:
        low: lower end, in percent; infinite if there are too few takes for an interval.
        floors: name -> value of each floor of the table, in percent.
        leads: name of a floor -> lower end of the paired difference of row and floor, in points.
    """
    of_floors = ", ".join(f"{name} {value:.1f}" for name, value in floors.items()) or "none was scored"
    if low == float("-inf"):
        return Judgement(check=check, verdict="undertrained", detail=f"too few takes for an interval of {what}")
    holds = bool(floors) and all(leads.get(name, low - value) > 0 for name, value in floors.items())
    of_leads = "".join(f"; {lead:+.1f} above {name}, paired" for name, lead in leads.items())
    detail = f"{what}, lower end {low:.1f} % (floors: {of_floors}{of_leads})"
    return Judgement(check=check, verdict="holds" if holds else "undertrained", detail=detail)


def dev_rows(curve: Sequence[CurvePoint], model: str, seed: int, quantity: str = "M@1") -> list[CurvePoint]:
    """Return the rows of a dev quantity of one model and seed, by epoch."""
    rows = [r for r in curve if (r.model, r.seed, r.split, r.quantity) == (model, seed, "dev", quantity)]
    return sorted(rows, key=lambda row: row.epoch)


def judge_models(
    curves: Sequence[CurvePoint], models: Collection[str], quantity: str, floors: Mapping[str, float]
) -> list[Judgement]:
    """Judge models of the final chain by their dev curves of a quantity, a share of right answers (D 51)."""
    known = {(p.model, p.seed) for p in curves if p.model in models and (p.split, p.quantity) == ("dev", quantity)}
    scores = {of: [point.value for point in dev_rows(curves, *of, quantity)] for of in sorted(known)}
    return [judge_scores(f"{TRAINED}{model}, seed {s}", scores[model, s], floors, "right") for model, s in scores]


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
        if (m.metric, m.seed) == (metric, None) and m.pooling != "sample"
    }
    judged = []
    for row in METHODS:
        horizons = [horizon for id_, reference, horizon in means if (id_, reference) == (row.id, None)]
        if not horizons or not is_learned(row):
            continue
        known: list[int | None] = [*sorted(horizon for horizon in horizons if horizon is not None)]
        candidates = [_judged(row, at, means, metric) for at in ([None] if None in horizons else known)]
        judged.append(next((judgement for judgement in candidates if judgement.verdict != "holds"), candidates[0]))
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


def model_of(check: str) -> str:
    """Return the model of a check `trained: <chain>/<model>, seed <seed>`; of a fold `folds/<model>`."""
    chain, _, model = check.removeprefix(TRAINED).split(",")[0].partition("/")
    return model if chain == "final" else f"folds/{model}"


def undertrained_rows(
    judgements: Iterable[Judgement], models_of: Mapping[str, Collection[str]], seed: int | None = None
) -> frozenset[str]:
    """Return the rows that do not count as trained; `seed`: only its trainings count, None: all.

    `models_of`: row -> the models behind it, as `model_of` names them.
    """
    weak = [judged.check for judged in judgements if judged.check.startswith(TRAINED) and judged.verdict != "holds"]
    rows = {check.removeprefix(ROW) for check in weak if check.startswith(ROW)}
    models = {model_of(check) for check in weak if seed is None or check.endswith(f", seed {seed}")}
    return frozenset(row for row, behind in models_of.items() if row in rows or models & set(behind))


class Quality(NamedTuple):
    """Quality of one decision, percent, with its interval over takes."""

    name: str
    value: float
    low: float
    high: float
    chance: float

    @property
    def text(self) -> str:
        """Return the figures as text."""
        ends = f"[{self.low:.1f}, {self.high:.1f}]" if np.isfinite(self.low) else "(too few takes)"
        return f"{self.name} {self.value:.1f} % {ends}, chance {self.chance:.1f}"


def judge_scorer(
    check: str, choices: Sequence[ScorerChoice], curve: Sequence[CurvePoint], cfg: EvaluationConfig
) -> Judgement:
    """Judge one scorer: the intervals of gate and ranking are above chance, and its dev curve passes as any training's.

    The floor of its curve is its fallback.
    """
    if not choices:
        return Judgement(check=check, verdict="undertrained", detail="never trained, or no dev window to judge it by")
    dev = sorted((row for row in curve if row.split == "dev"), key=lambda row: row.epoch)
    scores = [row.value for row in dev if row.quantity == "M@1"]
    fallback = [row.value for row in dev if row.quantity == FALLBACK]
    whole = judge_scores(check, scores, {"its fallback": fallback[0]} if fallback else {})
    qualities = [gate_quality(choices, cfg), ranking_quality(choices, cfg)]
    wrong = [f"{quality.name} not above chance" for quality in qualities if not quality.low > quality.chance]
    detail = "; ".join([*(quality.text for quality in qualities), whole.detail, *([", ".join(wrong)] if wrong else [])])
    return whole.replace(verdict="undertrained" if wrong else whole.verdict, detail=detail)


def gate_quality(choices: Sequence[ScorerChoice], cfg: EvaluationConfig) -> Quality:
    """Return the area under the gate's curve: the share of pairs of one horizon where it is higher if it should open.

    Pairs are counted by the takes of both sides, so that a resample of takes is a product with both its weights.
    """
    take = np.unique([row.take for row in choices], return_inverse=True)[1]
    gate, opens = np.array([row.gate for row in choices]), np.array([row.should_open for row in choices])
    horizon, n_takes = np.array([row.horizon for row in choices]), int(take.max()) + 1
    won, pairs = np.zeros((n_takes, n_takes)), np.zeros((n_takes, n_takes))
    for h in np.unique(horizon):
        good = (horizon == h) & opens
        for other in range(n_takes):
            bad = np.sort(gate[(horizon == h) & ~opens & (take == other)])
            below, up_to = np.searchsorted(bad, gate[good], "left"), np.searchsorted(bad, gate[good], "right")
            won[:, other] += np.bincount(take[good], (below + up_to) / 2, n_takes)
            pairs[:, other] += np.bincount(take[good], minlength=n_takes) * len(bad)
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = ((weights @ won) * weights).sum(1) / ((weights @ pairs) * weights).sum(1)
        value = float(won.sum() / pairs.sum())
    kept = draws[~np.isnan(draws)]  # none where no draw has a pair
    low, high = ends_of(100 * kept[:, None], n_takes if len(kept) else 0, cfg.confidence)
    return Quality("gate, area under its curve", 100 * value, float(low[0]), float(high[0]), 50.0)


def ranking_quality(choices: Sequence[ScorerChoice], cfg: EvaluationConfig) -> Quality:
    """Return the share of windows whose first candidate is a best one; the interval is that of the lead over chance."""
    ranked = [(row.take, row.is_best, row.chance) for row in choices if row.is_best is not None]
    if not ranked:
        return Quality("best candidate first", np.nan, -np.inf, np.inf, np.nan)
    lead = 100 * np.array([float(bool(first)) - float(chance or 0.0) for _, first, chance in ranked])
    low, high, _ = ends_of_means(lead[:, None], np.array([take for take, *_ in ranked]), cfg)
    chance = 100 * float(np.mean([row[2] or 0.0 for row in ranked]))
    ends = float(low[0]) + chance, float(high[0]) + chance
    return Quality("best candidate first", float(lead.mean()) + chance, *ends, chance)
