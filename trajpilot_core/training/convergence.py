"""Whether a training counts as trained (docs/decisions/paper-gaps.md, D 51)."""

from collections.abc import Mapping, Sequence

from schemas.results import CurvePoint, Judgement

FLOORS = ("majority", "previous")
"""Rows of the curves, epoch 0, that need no model. They are what `training.dev_scores.floor_scores` writes; the list of
rows lies above this room, and a test holds its floors against these."""
RISE = 0.01
"""One point of dev M@1."""


def judge_trained(curve: Sequence[CurvePoint], model: str, seed: int) -> Judgement:
    """Judge one training: it beats both floors on dev, and dev has not risen by over a point in its last quarter.

    The rise is the best dev score of the last quarter of the epochs that ran, less the best before it, so that noise
    from epoch to epoch does not count as a rise.

    Args:
        curve: rows of predictor_curves.
        model: `<chain>/<variant>`.
        seed: of the training.
    """
    scores = [row.value for row in _dev_rows(curve, model, seed) if row.epoch > 0]
    chain = model.split("/")[0]
    floors = {name: row.value for name in FLOORS for row in _dev_rows(curve, f"{chain}/{name}", seed)}
    return judge_scores(f"{model} seed {seed} is trained", scores, floors)


def judge_planner(curve: Sequence[CurvePoint], method: str, seed: int) -> Judgement:
    """Judge the models of a planner of one seed, one a horizon, each against the floors of its horizon.

    Args:
        curve: rows of planners_curves and predictor_curves.
        method: whose models `final/<method>_h<H>` are.
        seed: of the trainings.

    Returns:
        `holds` where all are trained; else what is said of the first that is not.
    """
    check, begins = f"{method} seed {seed} is trained", f"final/{method}_h"
    names = {row.model for row in curve if row.seed == seed and row.model.startswith(begins) and "," not in row.model}
    judged = []
    for horizon, name in sorted((int(name.removeprefix(begins)), name) for name in names):
        scores = [row.value for row in _dev_rows(curve, name, seed, "Mid mAcc")]
        rows = [(floor, _dev_rows(curve, f"final/{floor}", seed, f"M@1 H={horizon}")) for floor in FLOORS]
        found = judge_scores(check, scores, {floor: row.value for floor, at in rows for row in at[:1]})
        judged.append(found.replace(detail=f"H={horizon}: {found.detail}"))
    wrong = [one for one in judged if one.verdict != "holds"]
    return (wrong or judged or [Judgement(check=check, verdict="undertrained", detail="no model")])[0]


def judge_scores(check: str, scores: Sequence[float], floors: Mapping[str, float]) -> Judgement:
    """Judge the dev scores of the epochs of one training, in order, against those of rows that need no model."""
    if len(scores) < 4:
        return Judgement(check=check, verdict="undertrained", detail=f"{len(scores)} epochs are too few to judge")
    cut = len(scores) - len(scores) // 4
    rise, best = max(scores[cut:]) - max(scores[:cut]), max(scores)
    of_floors = ", ".join(f"{name} {100 * value:.1f}" for name, value in floors.items())
    risen = f"{100 * rise:+.1f} points in the last quarter of {len(scores)} epochs"
    detail = f"dev M@1 {100 * best:.1f} % ({of_floors}); {risen}"
    trained = set(floors) == set(FLOORS) and best > max(floors.values()) and rise <= RISE
    return Judgement(check=check, verdict="holds" if trained else "undertrained", detail=detail)


def _dev_rows(curve: Sequence[CurvePoint], model: str, seed: int, quantity: str = "M@1") -> list[CurvePoint]:
    """Rows of a dev quantity of one model and seed, by epoch."""
    rows = [r for r in curve if (r.model, r.seed, r.split, r.quantity) == (model, seed, "dev", quantity)]
    return sorted(rows, key=lambda row: row.epoch)
