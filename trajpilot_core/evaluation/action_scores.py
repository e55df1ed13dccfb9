"""Scores of anticipated actions with intervals over videos, differences between rows with a token, and their checks.

A token is informative if its row is above the row that was fine-tuned equally long without one, and above those with
uninformative tokens; the visual probe before its fine-tuning is never the reference.
Shapes: N tested clips, T videos, C classes that occur, B resamples. Source: docs/decisions/epic-probe.md,
docs/decisions/epic-token.md.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean
from typing import NamedTuple

import numpy as np

from schemas.events import (
    TOKEN_CONTROLS,
    TOKENS_READ,
    CompletedActionToken,
    ProbeConfig,
    ProbeScore,
    TokenContrast,
    TokenRow,
)
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.evaluation.bootstrap import draw_weights, ends_of
from trajpilot_core.evaluation.trained_rows import ROW, judge_models, judge_row
from trajpilot_core.metrics.epic_kitchens import (
    ACTION,
    EPIC_METRICS,
    SPACES,
    SUBSETS,
    ActionClips,
    ActionMetric,
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
        n_takes = len(np.unique(takes))
        low, high = -np.inf, np.inf
        if len(classes):
            draws = resampled_scores(metric, classes, answered.rankings[metric.part][kept], takes, weights)
            low, high = (float(end[0]) for end in ends_of(draws[:, None], n_takes, cfg.confidence))
        row = ProbeScore(
            row=answered.row,
            seed=answered.seed,
            trial=answered.trial,
            metric=metric.id,
            subset=subset,
            space=space,
            value=scored.value if scored.n_clips else None,
            low=low,
            high=high,
            n_clips=scored.n_clips,
            n_classes=scored.n_classes,
            n_takes=n_takes,
        )
        scores.append(row)
    return scores


def resampled_scores(
    metric: ActionMetric, classes_N: Codes, rankings_NK: Codes, take_N: Codes, weights_BT: Array
) -> Array:
    """Return (B,): a metric of a resample, the mean share of hits over its classes or clips, percent; NaN without any.

    `weights_BT` is how often each video is in each resample.
    """
    groups_N = classes_N if metric.over == "classes" else np.zeros_like(classes_N)
    present, group = np.unique(groups_N, return_inverse=True)
    counts = np.zeros((weights_BT.shape[1], len(present)))
    hits = np.zeros_like(counts)
    np.add.at(counts, (take_N, group), 1.0)
    np.add.at(hits, (take_N, group), hits_of(classes_N, rankings_NK, metric.k).astype(np.float64))
    counted, right = weights_BT @ counts, weights_BT @ hits
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(counted > 0, right / counted, 0.0)
        means: Array = 100.0 * shares.sum(axis=1) / (counted > 0).sum(axis=1)
    return means


def judge_actions(scores: Sequence[ProbeScore], learned: Sequence[str], floor: str) -> list[Judgement]:
    """Judge the learned rows of a table of actions by the metric of actions on every tested clip.

    The lowest lower end of all seeds counts, in percent.
    """
    overall = [score for score in scores if (score.metric, score.subset, score.space) == JUDGED_ON]
    floors = [score.value for score in overall if score.row == floor and score.value is not None]
    lows = {row: [score.low for score in overall if score.row == row] for row in learned}
    floor_of = {"the most frequent": max(floors)} if floors else {}
    what = f"{ACTION.id} on test"
    return [judge_row(f"{ROW}{row}", min(ends), floor_of, what) for row, ends in lows.items() if ends]


def check_splits(tested_takes: Sequence[str], fitted_takes: Sequence[str]) -> Judgement:
    """Judge that no scored video was used for fitting or for a choice."""
    shared = sorted(set(tested_takes) & set(fitted_takes))
    detail = f"{len(set(tested_takes))} videos are scored, {len(set(fitted_takes))} used for fitting or choices"
    if shared:
        detail += f"; {len(shared)} are in both sets, such as {shared[0]}"
    check = "leak: no scored video was learned from"
    return Judgement(check=check, verdict="fails" if shared else "holds", detail=detail)


LENGTH: TokenRow = "visual"
"""Reference of the gains: it was fine-tuned exactly as long."""
MOST = 0.9
"""Share of the tested actions that must have head motion for the rows that are given it to measure its value."""
PAIRS_OF_ROWS: tuple[tuple[TokenRow, TokenRow], ...] = (
    *product(TOKENS_READ, TOKEN_CONTROLS),
    *product(TOKEN_CONTROLS[1:], (LENGTH,)),
    ("scorer", "no_traj"),
    ("oracle", "no_traj"),
)
"""(row, against) of every difference."""


def contrasts_of(
    answered: Sequence[AnsweredRow], tested: TestedClips, cfg: CompletedActionToken
) -> list[TokenContrast]:
    """Return the differences of every metric on every tested clip, means over the seeds, with paired intervals."""
    weights = draw_weights(int(tested.take.max()) + 1, cfg.tuned.bootstrap, BOOTSTRAP_SEED)
    n_takes = len(np.unique(tested.take))
    contrasts = []
    for metric in EPIC_METRICS.values():
        classes = tested.clips.classes(metric.part)
        values: dict[str, list[float]] = {}
        draws: dict[str, list[Array]] = {}
        for answers in answered:
            values.setdefault(answers.row, []).append(score(metric, tested.clips, answers.rankings).value)
            drawn = resampled_scores(metric, classes, answers.rankings[metric.part], tested.take, weights)
            draws.setdefault(answers.row, []).append(drawn)
        for row, against in PAIRS_OF_ROWS:
            if row in values and against in values:
                gained = np.mean(draws[row], axis=0) - np.mean(draws[against], axis=0)
                low, high = ends_of(gained[:, None], n_takes, cfg.tuned.confidence)
                contrast = TokenContrast(
                    row=row,
                    against=against,
                    metric=metric.id,
                    difference=mean(values[row]) - mean(values[against]),
                    low=low[0],
                    high=high[0],
                    n_clips=len(tested.take),
                    n_takes=n_takes,
                )
                contrasts.append(contrast)
    return contrasts


def judge_tokens(contrasts: Sequence[TokenContrast], names: Mapping[str, str]) -> list[Judgement]:
    """Judge by class-mean recall of actions whether each token is informative, and that no control gains.

    A token is informative where the intervals of its differences to all controls are above zero, and is not where one
    of these intervals is below zero. `names`: row -> its printed name.
    """
    of_pair = {(contrast.row, contrast.against): contrast for contrast in contrasts if contrast.metric == ACTION.id}
    judged = []
    for row in TOKENS_READ:
        pairs = [of_pair[row, control] for control in TOKEN_CONTROLS if (row, control) in of_pair]
        if len(pairs) == len(TOKEN_CONTROLS):
            verdict = "holds" if all(pair.low > 0 for pair in pairs) else "undecided"
            verdict = "fails" if any(pair.high < 0 for pair in pairs) else verdict
            judged.append(_judged(f"token: {names[row]} is above every control", verdict, pairs, names))
    for row in TOKEN_CONTROLS[1:]:
        if (row, LENGTH) in of_pair:
            contrast = of_pair[row, LENGTH]
            verdict = "fails" if contrast.low > 0 else "holds" if np.isfinite(contrast.low) else "undecided"
            judged.append(_judged(f"control: {names[row]} gains nothing", verdict, [contrast], names))
    return judged


def _judged(check: str, verdict: str, pairs: Sequence[TokenContrast], names: Mapping[str, str]) -> Judgement:
    def figure(pair: TokenContrast) -> str:
        ends = f"[{pair.low:.2f}, {pair.high:.2f}]" if np.isfinite(pair.low) else "no interval, too few videos"
        return f"{pair.difference:+.2f} {ends} to {names[pair.against]}"

    detail = f"{ACTION.id}, points: {'; '.join(map(figure, pairs))}"
    return Judgement.model_validate({"check": check, "verdict": verdict, "detail": detail})


def check_motion(has_motion: Mask, opened: int) -> Judgement:
    """Judge that rows of head motion were given it; where many actions lack it, Oracle is mostly No-Traj.

    `has_motion`: (N, 2) of the tested actions, before and during them.
    """
    n, (before, during) = len(has_motion), has_motion.sum(axis=0).tolist()
    check = f"head motion: {100 * MOST:g} % of the tested actions have it"
    detail = f"{n} tested actions: head motion during {during}, before {before}; the gate opened for {opened}"
    return Judgement(check=check, verdict="holds" if min(before, during) >= MOST * n else "undecided", detail=detail)


def check_trained(curve: Sequence[CurvePoint], labels_dev: Codes) -> list[Judgement]:
    """Judge every predictor of the chain `final` by how often its text is the nearest on dev, against the most common
    of the (n,) labels there (D 51).
    """
    floors = {"the most common label": float(np.bincount(labels_dev).max() / len(labels_dev))}
    return judge_models(curve, ("final/traj", "final/no_traj"), "action", floors)


def check_unseen(tokens_of: Mapping[str, Sequence[str]], fitted: Mapping[str, Sequence[str]]) -> Judgement:
    """Judge that no clip in the fine-tuning of a probe has a token of a model that was fitted on its video.

    `tokens_of`: chain -> videos of the clips that have its tokens; `fitted`: those that its models were fitted on.
    """
    check = "leak: tokens are made by models that have not seen the video"
    wrong = sorted(
        f"{take} ({chain})" for chain, takes in tokens_of.items() for take in set(takes) & set(fitted.get(chain, ()))
    )
    detail = "; ".join(f"{chain}: {len(set(takes))} videos" for chain, takes in tokens_of.items())
    if wrong:
        detail = f"{len(wrong)} videos have tokens of a model that was fitted on them, such as {wrong[0]}"
    return Judgement(check=check, verdict="fails" if wrong else "holds", detail=detail)
