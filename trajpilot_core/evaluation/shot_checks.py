"""What the stage of shots judges of its own trainings: whom they were fitted on, and whether they learned anything."""

from collections.abc import Mapping, Sequence

from schemas.outcome import ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import noted_fitted
from trajpilot_core.data.other_runs import shown
from trajpilot_core.data.shots import DEV, Shots
from trajpilot_core.evaluation.shot_rows import FLOORS, MODELS, SHOT_NAMES
from trajpilot_core.evaluation.trained_rows import TRAINED, judge_events
from trajpilot_core.training.convergence import judge_scores


def fitted_judgements(said: Sequence[Mapping[str, str]], shots: Shots) -> list[Judgement]:
    """Judge that no training was fitted on a take that is not for training.

    Args:
        said: of the model of each training, which says the takes of the tensors that it was given.
        shots: all of them.
    """
    held = {shots.take_ids[int(take)] for take, split in zip(shots.take, shots.split, strict=True) if int(split)}
    seen: dict[str, set[str]] = {}
    for about in said:
        for chain, takes in noted_fitted(about).items():
            seen.setdefault(chain, set()).update(takes)
    wrong = sorted({f"{take} ({chain})" for chain, takes in seen.items() for take in takes & held})
    found = f"fitted on {shown(wrong)}" if wrong else f"{len(said)} trainings, {len(held)} takes of dev and test"
    verdict = "fails" if wrong else "holds"
    check = "takes: none of dev or test is fitted"
    return [Judgement(check=check, verdict=verdict, detail=found)]


def trained_judgements(curves: Sequence[CurvePoint], shots: Shots) -> list[Judgement]:
    """Judge every model of the final chain by how often it is right on dev, against the larger class (D 51)."""
    dev = shots.made[shots.split == DEV].double()
    floor = float(max(dev.mean(), 1 - dev.mean())) if len(dev) else 1.0
    scores: dict[tuple[str, int], list[float]] = {}
    for row in sorted(curves, key=lambda row: row.epoch):
        if (row.split, row.quantity) == ("dev", "accuracy") and row.model.startswith("final/"):
            scores.setdefault((row.model, row.seed), []).append(row.value)
    floors = {f"the larger class of {len(dev)} shots": floor}
    return [
        judge_scores(f"{TRAINED}{model}, seed {seed}", found, floors, "right")
        for (model, seed), found in sorted(scores.items())
    ]


def row_judgements(scores: Sequence[ShotScore]) -> list[Judgement]:
    """Judge every learned row by its accuracy on test, mean over the seeds, against the floors of the table."""
    means: dict[str, ShotScore] = {one.row: one for one in scores if (one.metric, one.seed) == ("accuracy", None)}
    floors = {SHOT_NAMES[row]: means[row].value for row in FLOORS if row in means}
    lows = {row: means[row].low for row in MODELS if row in means}
    return judge_events(lows, floors, "accuracy on test shots")
