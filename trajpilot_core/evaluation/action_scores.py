"""Scores of anticipated actions with intervals over videos, and what is checked of them.

Shapes: N tested clips, T videos, C classes that occur, B resamples. Source: docs/decisions/epic-probe.md.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from schemas.probe import ProbeConfig, ProbeScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.evaluation.bootstrap import draw_weights, interval
from trajpilot_core.evaluation.trained_rows import judge_events
from trajpilot_core.metrics.epic_kitchens import (
    ACTION,
    EPIC_METRICS,
    SPACES,
    SUBSETS,
    ActionClips,
    ActionMetric,
    ActionPart,
    LabelSpace,
    Subset,
    hits_of,
    score,
)

BOOTSTRAP_SEED = 0


class TestedClips(NamedTuple):
    """The clips that are scored."""

    clips: ActionClips
    take: Codes
    """(N,) number of each clip's video, 0 to T - 1."""


class AnsweredRow(NamedTuple):
    """What one row of the table answered."""

    row: str
    seed: int
    trial: str
    rankings: Mapping[ActionPart, Codes]
    """Part -> (N, K)."""


def action_scores(answered: AnsweredRow, tested: TestedClips, cfg: ProbeConfig) -> list[ProbeScore]:
    """Return every metric on every set under both label spaces; the same videos are drawn for each."""
    weights = draw_weights(int(tested.take.max()) + 1, cfg.bootstrap, BOOTSTRAP_SEED)
    return [
        _score(answered, tested, metric, subset, space, weights, cfg.confidence)
        for space in SPACES
        for subset in SUBSETS
        for metric in EPIC_METRICS.values()
    ]


def _score(
    answered: AnsweredRow,
    tested: TestedClips,
    metric: ActionMetric,
    subset: Subset,
    space: LabelSpace,
    weights: Array,
    confidence: float,
) -> ProbeScore:
    found = score(metric, tested.clips, answered.rankings, subset, space)
    kept = tested.clips.kept(subset, space, metric.part)
    classes, takes = tested.clips.classes(metric.part)[kept], tested.take[kept]
    hits = hits_of(classes, answered.rankings[metric.part][kept], metric.k)
    n_takes = len(np.unique(takes))
    low, high = -np.inf, np.inf
    if len(classes):
        groups = classes if metric.over == "classes" else np.zeros_like(classes)
        draws = resampled_means(groups, hits, takes, weights)
        low, high = (float(end[0, 0]) for end in interval(draws[:, None, None], np.array([n_takes]), confidence))
    return ProbeScore(
        row=answered.row,
        seed=answered.seed,
        metric=metric.id,
        subset=subset,
        space=space,
        value=found.value if found.n_clips else None,
        low=low,
        high=high,
        n_clips=found.n_clips,
        n_classes=found.n_classes,
        n_takes=n_takes,
        trial=answered.trial,
    )


def resampled_means(groups_N: Codes, hits_N: Mask, take_N: Codes, weights_BT: Array) -> Array:
    """Return (B,): the mean over the groups that a resample holds of their shares of hits, percent; NaN without one.

    Args:
        groups_N: class of each clip; one group for all gives the share of the clips.
        weights_BT: how often each resample holds each video.
    """
    present, of = np.unique(groups_N, return_inverse=True)
    counts = np.zeros((weights_BT.shape[1], len(present)))
    hits = np.zeros_like(counts)
    np.add.at(counts, (take_N, of), 1.0)
    np.add.at(hits, (take_N, of), hits_N.astype(np.float64))
    drawn, right = weights_BT @ counts, weights_BT @ hits
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(drawn > 0, right / drawn, 0.0)
        means: Array = 100.0 * shares.sum(axis=1) / (drawn > 0).sum(axis=1)
    return means


def judge_actions(scores: Sequence[ProbeScore], learned: Sequence[str], floor: str) -> list[Judgement]:
    """Judge the learned rows of a table of actions by the metric of actions on every tested clip; of several seeds the
    lowest end counts.
    """
    held = [one for one in scores if (one.metric, one.subset, one.space) == (ACTION.id, "overall", "challenge")]
    floors = [one.value for one in held if one.row == floor and one.value is not None]
    of_floor = {"the most frequent": max(floors)} if floors else {}
    lows = {row: [one.low for one in held if one.row == row] for row in learned}
    return judge_events({row: min(found) for row, found in lows.items() if found}, of_floor, f"{ACTION.id} on test")


def check_choice(scores: Sequence[ProbeScore], curve: Sequence[CurvePoint], name: str, seed: int) -> Judgement:
    """Judge that one trial answers every metric, and that it is the one that dev chose.

    Args:
        curve: of all trials; that of the chosen one is called `name`, that of another `<name>, <trial>`.
    """
    check = f"choice: {name}, seed {seed}"
    best: dict[str, float] = {}
    for point in curve:
        if point.split == "dev" and point.quantity == ACTION.id:
            best[point.model] = max(best.get(point.model, 0.0), point.value)
    trials = sorted({one.trial for one in scores})
    if len(trials) != 1:
        said = f"{len(trials)} trainings of the grid answer one row ({'; '.join(trials)}); one is for all metrics"
        return Judgement(check=check, verdict="fails", detail=said)
    other = max(best.values(), default=0.0)
    if best.get(name, 0.0) < other:
        said = f"{trials[0]} has {100 * best.get(name, 0.0):.2f} on dev, another trial {100 * other:.2f}"
        return Judgement(check=check, verdict="fails", detail=said)
    said = f"{trials[0]}, of {len(best)} trials the highest {ACTION.id} on dev, {100 * other:.2f}"
    return Judgement(check=check, verdict="holds", detail=said)


def check_anticipation(too_late: Mask, gap_s: float | None, protocol_s: float) -> Judgement:
    """Judge that no clip shows its action.

    Args:
        too_late: (N,) the last frame is later than `protocol_s` before the action.
        gap_s: what the run demands; None: nothing.
        protocol_s: the gap of the corpus' protocol, seconds.
    """
    late, of = int(too_late.sum()), len(too_late)
    said = f"the last frame of {late:,} of {of:,} clips is later than {protocol_s:g} s before the action"
    if gap_s is None or gap_s < protocol_s:
        said += "; this run allows it, so it is another task than the corpus' protocol"
    return Judgement(check="leak: clips end before their actions", verdict="fails" if late else "holds", detail=said)


def check_splits(tested_takes: Sequence[str], fitted_takes: Sequence[str]) -> Judgement:
    """Judge that no video is both fitted (or chosen) on and scored."""
    shared = sorted(set(tested_takes) & set(fitted_takes))
    said = f"{len(set(tested_takes))} videos are scored, {len(set(fitted_takes))} fitted or chosen on"
    if shared:
        said += f"; {len(shared)} are both, such as {shared[0]}"
    return Judgement(
        check="leak: no scored video was learned from", verdict="fails" if shared else "holds", detail=said
    )
