"""Whether a model, and the row that it produces, counts as trained: the only rule (docs/decisions/training.md).

A training is judged by its dev curve, a row by the lower end of its interval over takes. Both are `undertrained` unless
they pass.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from schemas.results import CurvePoint, Judgement

FLOORS = ("majority", "previous")
"""Rows of the curves, epoch 0, that need no model, as `training.dev_scores.floor_scores` writes them. The list of rows
is in a higher package; a test compares its floors with these."""
RISE = 0.01
"""One point of a dev score that is a share, or this part of one that is a distance; less is noise between epochs."""
FALL = 0.25
"""Part of the best epoch's lead over the floors that the last epoch may have lost."""
FEWEST_EPOCHS = 4


def judge_trained(curve: Sequence[CurvePoint], model: str, seed: int) -> Judgement:
    """Judge one training by dev M@1 against the floors of its chain.

    Args:
        curve: rows of predictor_curves.
    """
    scores = [row.value for row in _dev_rows(curve, model, seed) if row.epoch > 0]
    chain = model.split("/")[0]
    floors = {name: row.value for name in FLOORS for row in _dev_rows(curve, f"{chain}/{name}", seed)}
    return judge_scores(f"{model} seed {seed} is trained", scores, complete(floors))


def judge_planner(curve: Sequence[CurvePoint], method: str, seed: int) -> Judgement:
    """Judge the models of one planner and seed, one per horizon, each against the floors of its horizon.

    Args:
        curve: rows of planners_curves and predictor_curves.
        method: its models are `final/<method>_h<H>`.
        seed: seed of the trainings.

    Returns:
        `holds` if all are trained; else the judgement of the first that is not.
    """
    check, begins = f"{method} seed {seed} is trained", f"final/{method}_h"
    names = {row.model for row in curve if row.seed == seed and row.model.startswith(begins) and "," not in row.model}
    judged = []
    for horizon, name in sorted((int(name.removeprefix(begins)), name) for name in names):
        scores = [row.value for row in _dev_rows(curve, name, seed, "Mid mAcc")]
        rows = [(floor, _dev_rows(curve, f"final/{floor}", seed, f"M@1 H={horizon}")) for floor in FLOORS]
        judgement = judge_scores(check, scores, complete({floor: row.value for floor, at in rows for row in at[:1]}))
        judged.append(judgement.replace(detail=f"H={horizon}: {judgement.detail}"))
    failed = [judgement for judgement in judged if judgement.verdict != "holds"]
    return (failed or judged or [Judgement(check=check, verdict="undertrained", detail="no model")])[0]


def complete(floors: Mapping[str, float]) -> Mapping[str, float]:
    """Return the floors of planning if all are known, else none: a row must beat each of them."""
    return floors if set(floors) == set(FLOORS) else {}


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


def _dev_rows(curve: Sequence[CurvePoint], model: str, seed: int, quantity: str = "M@1") -> list[CurvePoint]:
    """Return the rows of a dev quantity of one model and seed, by epoch."""
    rows = [r for r in curve if (r.model, r.seed, r.split, r.quantity) == (model, seed, "dev", quantity)]
    return sorted(rows, key=lambda row: row.epoch)
