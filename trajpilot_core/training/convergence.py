"""Whether a training counts as trained (docs/decisions/paper-gaps.md, D 51)."""

from collections.abc import Sequence

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
    check = f"{model} seed {seed} is trained"
    scores = [row.value for row in _dev_rows(curve, model, seed) if row.epoch > 0]
    if len(scores) < 4:
        return Judgement(check=check, verdict="undertrained", detail=f"{len(scores)} epochs are too few to judge")
    chain = model.split("/")[0]
    floors = {name: row.value for name in FLOORS for row in _dev_rows(curve, f"{chain}/{name}", seed)}
    cut = len(scores) - len(scores) // 4
    rise, best = max(scores[cut:]) - max(scores[:cut]), max(scores)
    of_floors = ", ".join(f"{name} {100 * value:.1f}" for name, value in floors.items())
    risen = f"{100 * rise:+.1f} points in the last quarter of {len(scores)} epochs"
    detail = f"dev M@1 {100 * best:.1f} % ({of_floors}); {risen}"
    trained = set(floors) == set(FLOORS) and best > max(floors.values()) and rise <= RISE
    return Judgement(check=check, verdict="holds" if trained else "undertrained", detail=detail)


def _dev_rows(curve: Sequence[CurvePoint], model: str, seed: int) -> list[CurvePoint]:
    """Rows of dev M@1 (mean over H) of one model and seed, by epoch."""
    rows = [r for r in curve if (r.model, r.seed, r.split, r.quantity) == (model, seed, "dev", "M@1")]
    return sorted(rows, key=lambda row: row.epoch)
