"""Figures of the rows on the test shots, with intervals over takes.

Shapes: n shots, T takes, S seeds, B resamples. Source: docs/decisions/outcome.md.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.events import CompletedOutcome, OutcomeRow, ShotAnswer, ShotContrast, ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array
from trajpilot_core.data.cross_fitting import noted_fitted
from trajpilot_core.data.events import DEV, Shots
from trajpilot_core.data.other_runs import shown
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.bootstrap import draw_weights, ends_of, ends_of_means, rounded
from trajpilot_core.evaluation.event_rows import SHOT_FLOORS, SHOT_MODELS, SHOT_NAMES
from trajpilot_core.evaluation.trained_rows import ROW, judge_models, judge_row
from trajpilot_core.metrics.shots import MADE_FROM, SHOT_METRICS

REFERENCE: OutcomeRow = "no_traj"
FURTHER: tuple[tuple[OutcomeRow, OutcomeRow], ...] = (
    ("scorer", "endpoint_traj"),
    ("scorer", "permuted_candidates"),
    ("oracle", "scorer"),
)
"""Contrasts next to those against No-Traj."""


class RowAnswers:
    """The answers of one row: probabilities, truths and takes of the same shots, seed by seed."""

    def __init__(self, answers: Sequence[ShotAnswer]) -> None:
        by_seed: dict[int, list[ShotAnswer]] = {}
        for answer in answers:
            by_seed.setdefault(answer.seed, []).append(answer)
        ordered = {seed: sorted(rows, key=lambda row: row.shot_id) for seed, rows in sorted(by_seed.items())}
        first = next(iter(ordered.values()))
        self.seeds = tuple(ordered)
        self.shots = tuple(answer.shot_id for answer in first)
        if any(tuple(answer.shot_id for answer in rows) != self.shots for rows in ordered.values()):
            raise LeakError(f"{first[0].row}: the seeds answer different shots; run the stage outcome again")
        self.p: Array = np.array([[answer.p_made for answer in rows] for rows in ordered.values()])
        self.made: NDArray[np.bool_] = np.array([answer.is_made for answer in first], dtype=bool)
        self.takes, self.take = np.unique([answer.take_id for answer in first], return_inverse=True)

    @property
    def right(self) -> NDArray[np.bool_]:
        """(S, n) whether the outcome is right, where one half or more means made."""
        return np.asarray((self.p >= MADE_FROM) == self.made)


def by_row(answers: Sequence[ShotAnswer]) -> dict[OutcomeRow, RowAnswers]:
    """Return row -> its answers, in the order of the answers."""
    by_row_id: dict[OutcomeRow, list[ShotAnswer]] = {}
    for answer in answers:
        by_row_id.setdefault(answer.row, []).append(answer)
    return {row: RowAnswers(rows) for row, rows in by_row_id.items()}


def scores_of(answers: Sequence[ShotAnswer], cfg: CompletedOutcome) -> list[ShotScore]:
    """Return every metric of every row, seed by seed and in the mean over the seeds."""
    scores = []
    for row, of_row in by_row(answers).items():
        made, n_takes = of_row.made, len(of_row.takes)
        weights, once = draw_weights(n_takes, cfg.bootstrap, cfg.seed)[:, of_row.take], np.ones((1, len(made)))
        for metric in SHOT_METRICS.values():
            values = [metric.values(p, made, once)[0] for p in of_row.p]
            draws = [metric.values(p, made, weights) for p in of_row.p]
            n_shots = {"made": made.sum(), "missed": (~made).sum()}.get(metric.id, len(made))
            of_seeds = zip(of_row.seeds, values, draws, strict=True)
            for seed, value, draws_B in (*of_seeds, (None, np.mean(values), np.mean(draws, axis=0))):
                low, high = ends_of(draws_B[:, None], n_takes, cfg.confidence)
                figures = rounded(value=value, low=low[0], high=high[0])
                place = {"row": row, "seed": seed, "metric": metric.id}
                scores.append(ShotScore(**place, **figures, n_shots=int(n_shots), n_takes=n_takes))
    return scores


def contrasts_of(answers: Sequence[ShotAnswer], cfg: CompletedOutcome) -> list[ShotContrast]:
    """Return every row against No-Traj, and further contrasts, on the same shots."""
    rows = by_row(answers)
    pairs = [(row, REFERENCE) for row in rows if row != REFERENCE and REFERENCE in rows]
    contrasts = []
    for row, against in (pair for pair in (*pairs, *FURTHER) if set(pair) <= rows.keys()):
        one, other = rows[row], rows[against]
        if one.shots != other.shots or one.seeds != other.seeds:
            raise LeakError(f"{row} and {against} answer different shots or seeds; run the stage outcome again")
        gain = 100 * (one.right.astype(float) - other.right.astype(float))
        for seed, per_shot in (*zip(one.seeds, gain, strict=True), (None, gain.mean(axis=0))):
            low, high, n_takes = ends_of_means(per_shot[:, None], one.take, cfg)
            figures = rounded(difference=per_shot.mean(), low=low[0], high=high[0])
            place = {"row": row, "against": against, "seed": seed}
            contrasts.append(ShotContrast(**place, **figures, n_shots=len(one.shots), n_takes=n_takes))
    return contrasts


def fitted_judgements(metadata: Sequence[Mapping[str, str]], shots: Shots) -> list[Judgement]:
    """Judge by the metadata of models, which name the takes of their tensors, that none was fitted on dev or test."""
    held_out = {shots.take_ids[int(take)] for take, split in zip(shots.take, shots.split, strict=True) if int(split)}
    seen: dict[str, set[str]] = {}
    for about in metadata:
        for chain, takes in noted_fitted(about).items():
            seen.setdefault(chain, set()).update(takes)
    wrong = sorted({f"{take} ({chain})" for chain, takes in seen.items() for take in takes & held_out})
    detail = f"{len(metadata)} trainings, {len(held_out)} takes of dev and test"
    detail = f"fitted on {shown(wrong)}" if wrong else detail
    check = "takes: none of dev or test is fitted"
    return [Judgement(check=check, verdict="fails" if wrong else "holds", detail=detail)]


def trained_judgements(curves: Sequence[CurvePoint], shots: Shots) -> list[Judgement]:
    """Judge every model of the final chain by its dev accuracy, against that of the larger class (D 51)."""
    dev = shots.made[shots.split == DEV].double()
    floor = float(max(dev.mean(), 1 - dev.mean())) if len(dev) else 1.0
    models = {row.model for row in curves if row.model.startswith("final/")}
    return judge_models(curves, models, "accuracy", {f"the larger class of {len(dev)} shots": floor})


def row_judgements(scores: Sequence[ShotScore]) -> list[Judgement]:
    """Judge every learned row by its accuracy on test, mean over the seeds, against the floors of the table."""
    means: dict[str, ShotScore] = {
        score.row: score for score in scores if (score.metric, score.seed) == ("accuracy", None)
    }
    floors = {SHOT_NAMES[row]: means[row].value for row in SHOT_FLOORS if row in means}
    learned = [row for row in SHOT_MODELS if row in means]
    return [judge_row(f"{ROW}{row}", means[row].low, floors, "accuracy on test shots") for row in learned]
