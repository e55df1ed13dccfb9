"""What the stage of shots judges of its own trainings: whom they were fitted on, and whether they learned anything."""

from collections.abc import Mapping, Sequence

from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import noted_fitted
from trajpilot_core.data.shots import DEV, Shots, named


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
    found = f"fitted on {named(wrong)}" if wrong else f"{len(said)} trainings, {len(held)} takes of dev and test"
    verdict = "fails" if wrong else "holds"
    check = "takes: none of dev or test is fitted"
    return [Judgement(check=check, verdict=verdict, detail=found)]


def trained_judgements(curves: Sequence[CurvePoint], shots: Shots) -> list[Judgement]:
    """Judge every model of the final chain: on dev it is right more often than the larger class is (D 51)."""
    dev = shots.made[shots.split == DEV].double()
    floor = float(max(dev.mean(), 1 - dev.mean())) if len(dev) else 1.0
    last = {
        (row.model, row.seed): row.value
        for row in curves
        if (row.split, row.quantity) == ("dev", "accuracy") and row.model.startswith("final/")
    }
    return [
        Judgement(
            check=f"trained: {model}, seed {seed}",
            verdict="holds" if value > floor else "undertrained",
            detail=f"right on dev {100 * value:.1f} %, the larger class {100 * floor:.1f} % of {len(dev)} shots",
        )
        for (model, seed), value in sorted(last.items())
    ]
