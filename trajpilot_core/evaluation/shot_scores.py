"""Figures of the rows on the test shots, with intervals over takes, Wilson's, and McNemar's exact test.

Shapes: n shots, T takes, S seeds, B resamples. Source: docs/decisions/outcome.md.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from schemas.outcome import OutcomeConfig, OutcomeRow, ShotAnswer, ShotContrast, ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array
from trajpilot_core.data.cross_fitting import noted_fitted
from trajpilot_core.data.other_runs import shown
from trajpilot_core.data.shots import DEV, Shots
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.bootstrap import draw_weights, interval
from trajpilot_core.evaluation.shot_rows import FLOORS, MODELS, SHOT_NAMES
from trajpilot_core.evaluation.trained_rows import judge_events, judge_models
from trajpilot_core.metrics.shots import MADE_FROM, SHOT_METRICS, ShotMetric

DIGITS = 9
"""Places that numbers are rounded to, as in the other tables."""
REFERENCE: OutcomeRow = "no_traj"
MEANT: tuple[tuple[OutcomeRow, OutcomeRow], ...] = (
    ("scorer", "endpoint_traj"),
    ("scorer", "permuted_candidates"),
    ("oracle", "scorer"),
)
"""Contrasts next to those against No-Traj."""


class RowAnswers:
    """The answers of one row: probabilities, truths and takes of the same shots, seed by seed."""

    def __init__(self, answers: Sequence[ShotAnswer]) -> None:
        by_seed: dict[int, list[ShotAnswer]] = {}
        for one in answers:
            by_seed.setdefault(one.seed, []).append(one)
        ordered = {seed: sorted(found, key=lambda one: one.shot_id) for seed, found in sorted(by_seed.items())}
        first = next(iter(ordered.values()))
        self.seeds = tuple(ordered)
        self.shots = tuple(one.shot_id for one in first)
        if any(tuple(one.shot_id for one in found) != self.shots for found in ordered.values()):
            raise LeakError(f"{first[0].row}: the seeds answer different shots; run the stage outcome again")
        self.p: Array = np.array([[one.p_made for one in found] for found in ordered.values()])
        self.made: NDArray[np.bool_] = np.array([one.is_made for one in first], dtype=bool)
        self.takes, self.take = np.unique([one.take_id for one in first], return_inverse=True)

    @property
    def right(self) -> NDArray[np.bool_]:
        """(S, n) whether the outcome is right, made from one half on."""
        return np.asarray((self.p >= MADE_FROM) == self.made)


def by_row(answers: Sequence[ShotAnswer]) -> dict[OutcomeRow, RowAnswers]:
    """Return row -> its answers, in the order of the answers."""
    found: dict[OutcomeRow, list[ShotAnswer]] = {}
    for one in answers:
        found.setdefault(one.row, []).append(one)
    return {row: RowAnswers(own) for row, own in found.items()}


def wilson(n_right: int, n: int, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a share, in percent; (0, 100) without a shot."""
    if n == 0:
        return 0.0, 100.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, more = n_right / n, z * z / n
    middle = (share + more / 2) / (1 + more)
    half = z / (1 + more) * math.sqrt(share * (1 - share) / n + more / (4 * n))
    return 100 * (middle - half), 100 * (middle + half)


def mcnemar(only_one: int, only_other: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: the discordant shots are a fair coin's."""
    n, k = only_one + only_other, min(only_one, only_other)
    tail: float = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return min(1.0, 2 * tail)


def scores_of(answers: Sequence[ShotAnswer], cfg: OutcomeConfig) -> list[ShotScore]:
    """Return every metric of every row, seed by seed and in the mean over the seeds."""
    found = []
    for row, own in by_row(answers).items():
        weights = draw_weights(len(own.takes), cfg.bootstrap, cfg.seed)[:, own.take]
        for metric in SHOT_METRICS.values():
            of_seed = [metric.values(p, own.made, weights) for p in own.p]
            for at, seed in enumerate(own.seeds):
                found.append(_score(row, seed, metric, own, at, of_seed[at], cfg))
            found.append(_score(row, None, metric, own, None, np.mean(of_seed, axis=0), cfg))
    return found


def _score(
    row: OutcomeRow,
    seed: int | None,
    metric: ShotMetric,
    own: RowAnswers,
    at: int | None,
    drawn: Array,
    cfg: OutcomeConfig,
) -> ShotScore:
    """Return one figure: of the seed at place `at`, or of all in the mean."""
    once = np.ones((1, len(own.made)))
    values = [metric.values(p, own.made, once)[0] for p in (own.p if at is None else own.p[at : at + 1])]
    low, high = over_takes(drawn, len(own.takes), cfg)
    side = {"made": own.made, "missed": ~own.made}.get(metric.id, np.ones(len(own.made), dtype=bool))
    n_right = None if at is None or not metric.is_count else int(own.right[at][side].sum())
    outer = (None, None) if n_right is None else wilson(n_right, int(side.sum()), cfg.confidence)
    return ShotScore(
        row=row,
        seed=seed,
        metric=metric.id,
        value=round(float(np.mean(values)), DIGITS),
        low=low,
        high=high,
        wilson_low=None if outer[0] is None else round(outer[0], DIGITS),
        wilson_high=None if outer[1] is None else round(outer[1], DIGITS),
        n_right=n_right,
        n_shots=int(side.sum()),
        n_takes=len(own.takes),
    )


def over_takes(drawn: Array, n_takes: int, cfg: OutcomeConfig) -> tuple[float, float]:
    """Return the interval of resampled figures, shape (B,); infinite where too few takes allow none."""
    low, high = interval(drawn[:, None, None], np.array([n_takes]), cfg.confidence)
    return round(float(low[0, 0]), DIGITS), round(float(high[0, 0]), DIGITS)


def contrasts_of(answers: Sequence[ShotAnswer], cfg: OutcomeConfig) -> list[ShotContrast]:
    """Return every row against No-Traj, and further contrasts that mean something, on the same shots."""
    rows = by_row(answers)
    pairs = [(row, REFERENCE) for row in rows if row != REFERENCE and REFERENCE in rows]
    return [
        one for pair in (*pairs, *MEANT) if set(pair) <= rows.keys() for one in _contrast(*pair, rows=rows, cfg=cfg)
    ]


def _contrast(
    row: OutcomeRow, against: OutcomeRow, rows: Mapping[OutcomeRow, RowAnswers], cfg: OutcomeConfig
) -> list[ShotContrast]:
    one, other = rows[row], rows[against]
    if one.shots != other.shots or one.seeds != other.seeds:
        raise LeakError(f"{row} and {against} answer different shots or seeds; run the stage outcome again")
    gain = 100 * (one.right.astype(float) - other.right.astype(float))
    weights = draw_weights(len(one.takes), cfg.bootstrap, cfg.seed)[:, one.take]
    found = []
    for at in (*range(len(one.seeds)), None):
        per_shot = gain.mean(axis=0) if at is None else gain[at]
        drawn = (weights @ per_shot) / weights.sum(axis=1)
        low, high = over_takes(drawn, len(one.takes), cfg)
        only = [None, None] if at is None else [int((sign * per_shot > 0).sum()) for sign in (1, -1)]
        found.append(
            ShotContrast(
                row=row,
                against=against,
                seed=None if at is None else one.seeds[at],
                difference=round(float(per_shot.mean()), DIGITS),
                low=low,
                high=high,
                only_row=only[0],
                only_against=only[1],
                p_value=None if only[0] is None or only[1] is None else mcnemar(only[0], only[1]),
                n_shots=len(one.shots),
                n_takes=len(one.takes),
            )
        )
    return found


def fitted_judgements(said: Sequence[Mapping[str, str]], shots: Shots) -> list[Judgement]:
    """Judge that no training was fitted on a take that is not for training.

    Args:
        said: of the model of each training, which says the takes of the tensors that it was given.
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
    models = {row.model for row in curves if row.model.startswith("final/")}
    return judge_models(curves, models, "accuracy", {f"the larger class of {len(dev)} shots": floor})


def row_judgements(scores: Sequence[ShotScore]) -> list[Judgement]:
    """Judge every learned row by its accuracy on test, mean over the seeds, against the floors of the table."""
    means: dict[str, ShotScore] = {one.row: one for one in scores if (one.metric, one.seed) == ("accuracy", None)}
    floors = {SHOT_NAMES[row]: means[row].value for row in FLOORS if row in means}
    lows = {row: means[row].low for row in MODELS if row in means}
    return judge_events(lows, floors, "accuracy on test shots")
