"""Scores of anticipated actions with intervals over videos, and their checks.

Shapes: N tested clips, T videos, C classes that occur, B resamples. Source: docs/decisions/epic-probe.md.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from schemas.events import ProbeConfig, ProbeScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.evaluation.bootstrap import draw_weights, ends_of
from trajpilot_core.evaluation.trained_rows import judge_events
from trajpilot_core.metrics.epic_kitchens import (
    ACTION,
    EPIC_METRICS,
    SPACES,
    SUBSETS,
    ActionClips,
    ActionPart,
    hits_of,
    score,
)

BOOTSTRAP_SEED = 0
JUDGED_ON = (ACTION.id, "overall", "challenge")
"""Metric, set and label space by which rows are judged."""


class TestedClips(NamedTuple):
    """The clips that are scored."""

    clips: ActionClips
    take: Codes
    """(N,) number of each clip's video, 0 to T - 1."""


class AnsweredRow(NamedTuple):
    """Answers of one row of the table."""

    row: str
    seed: int
    trial: str
    rankings: Mapping[ActionPart, Codes]
    """Part -> (N, K)."""


def action_scores(answered: AnsweredRow, tested: TestedClips, cfg: ProbeConfig) -> list[ProbeScore]:
    """Return every metric on every set under both label spaces; all with the same resampled videos."""
    weights = draw_weights(int(tested.take.max()) + 1, cfg.bootstrap, BOOTSTRAP_SEED)
    scores = []
    for space, subset, metric in product(SPACES, SUBSETS, EPIC_METRICS.values()):
        scored = score(metric, tested.clips, answered.rankings, subset, space)
        kept = tested.clips.kept(subset, space, metric.part)
        classes, takes = tested.clips.classes(metric.part)[kept], tested.take[kept]
        hits = hits_of(classes, answered.rankings[metric.part][kept], metric.k)
        n_takes = len(np.unique(takes))
        low, high = -np.inf, np.inf
        if len(classes):
            groups = classes if metric.over == "classes" else np.zeros_like(classes)
            draws = resampled_means(groups, hits, takes, weights)
            ends = ends_of(draws[:, None], n_takes, cfg.confidence)
            low, high = float(ends.low[0]), float(ends.high[0])
        scores.append(
            ProbeScore(
                row=answered.row,
                seed=answered.seed,
                metric=metric.id,
                subset=subset,
                space=space,
                value=scored.value if scored.n_clips else None,
                low=low,
                high=high,
                n_clips=scored.n_clips,
                n_classes=scored.n_classes,
                n_takes=n_takes,
                trial=answered.trial,
            )
        )
    return scores


def resampled_means(groups_N: Codes, hits_N: Mask, take_N: Codes, weights_BT: Array) -> Array:
    """Return (B,): the mean share of hits over the groups in a resample, percent; NaN without a group.

    Args:
        groups_N: class of each clip; one group for all gives the share of the clips.
        weights_BT: how often each video is in each resample.
    """
    present, group = np.unique(groups_N, return_inverse=True)
    counts = np.zeros((weights_BT.shape[1], len(present)))
    hits = np.zeros_like(counts)
    np.add.at(counts, (take_N, group), 1.0)
    np.add.at(hits, (take_N, group), hits_N.astype(np.float64))
    counted, right = weights_BT @ counts, weights_BT @ hits
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(counted > 0, right / counted, 0.0)
        means: Array = 100.0 * shares.sum(axis=1) / (counted > 0).sum(axis=1)
    return means


def judge_actions(scores: Sequence[ProbeScore], learned: Sequence[str], floor: str) -> list[Judgement]:
    """Judge the learned rows of a table of actions by the metric of actions on every tested clip; the lowest end of all
    seeds counts.
    """
    overall = [score for score in scores if (score.metric, score.subset, score.space) == JUDGED_ON]
    floors = [score.value for score in overall if score.row == floor and score.value is not None]
    lows = {row: [score.low for score in overall if score.row == row] for row in learned}
    floor_of = {"the most frequent": max(floors)} if floors else {}
    return judge_events({row: min(ends) for row, ends in lows.items() if ends}, floor_of, f"{ACTION.id} on test")


def check_choice(scores: Sequence[ProbeScore], curve: Sequence[CurvePoint], name: str, seed: int) -> Judgement:
    """Judge that one trial answers every metric, and that it is the best one on dev.

    Args:
        curve: of all trials; the chosen one is named `name`, any other `<name>, <trial>`.
    """
    check = f"choice: {name}, seed {seed}"
    best: dict[str, float] = {}
    for point in curve:
        if point.split == "dev" and point.quantity == ACTION.id:
            best[point.model] = max(best.get(point.model, 0.0), point.value)
    trials = sorted({score.trial for score in scores})
    own, highest = best.get(name, 0.0), max(best.values(), default=0.0)
    if len(trials) != 1:
        answered = f"{len(trials)} trainings of the grid answer one row ({'; '.join(trials)})"
        return Judgement(check=check, verdict="fails", detail=f"{answered}; one must answer all metrics")
    detail = f"{trials[0]} has the highest {ACTION.id} on dev of {len(best)} trials, {100 * highest:.2f}"
    if own < highest:
        detail = f"{trials[0]} has {100 * own:.2f} on dev, another trial {100 * highest:.2f}"
    return Judgement(check=check, verdict="fails" if own < highest else "holds", detail=detail)


def check_anticipation(too_late: Mask, gap_s: float | None, protocol_s: float) -> Judgement:
    """Judge that no clip shows its action.

    Args:
        too_late: (N,) the last frame is later than `protocol_s` before the action.
        gap_s: gap that the run demands; None: none.
        protocol_s: the gap of the corpus' protocol, seconds.
    """
    late = int(too_late.sum())
    detail = f"the last frame of {late:,} of {len(too_late):,} clips is later than {protocol_s:g} s before the action"
    if gap_s is None or gap_s < protocol_s:
        detail += "; this run allows that, so its task differs from the corpus' protocol"
    return Judgement(check="leak: clips end before their actions", verdict="fails" if late else "holds", detail=detail)


def check_splits(tested_takes: Sequence[str], fitted_takes: Sequence[str]) -> Judgement:
    """Judge that no scored video was used for fitting or for a choice."""
    shared = sorted(set(tested_takes) & set(fitted_takes))
    detail = f"{len(set(tested_takes))} videos are scored, {len(set(fitted_takes))} used for fitting or choices"
    if shared:
        detail += f"; {len(shared)} are in both sets, such as {shared[0]}"
    check = "leak: no scored video was learned from"
    return Judgement(check=check, verdict="fails" if shared else "holds", detail=detail)
