"""Differences between the rows of the probe with a token, and what is concluded from them.

Whether a token tells anything is read off the row that was fine-tuned equally long without one, and off the tokens that
tell nothing; never off the visual probe before its fine-tuning. Source: docs/decisions/epic-token.md.

Shapes: N tested clips, T videos, B resamples.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean

import numpy as np

from schemas.action_token import TOKEN_CONTROLS, TOKENS_READ, ActionTokenConfig, TokenContrast, TokenRow
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.evaluation.action_scores import BOOTSTRAP_SEED, AnsweredRow, TestedClips, resampled_means
from trajpilot_core.evaluation.bootstrap import draw_weights, interval
from trajpilot_core.evaluation.trained_rows import judge_models
from trajpilot_core.metrics.epic_kitchens import ACTION, EPIC_METRICS, ActionMetric, hits_of, score

LENGTH: TokenRow = "visual"
"""The row that gains are counted from: it was fine-tuned exactly as long."""
MOST = 0.9
"""Share of the tested actions that must have head motion, so that the rows that are given it say what it is worth."""
PAIRS_OF_ROWS: tuple[tuple[TokenRow, TokenRow], ...] = (
    *product(TOKENS_READ, TOKEN_CONTROLS),
    *product(TOKEN_CONTROLS[1:], (LENGTH,)),
    ("scorer", "no_traj"),
    ("oracle", "no_traj"),
)
"""(row, against) of every difference."""


def contrasts_of(answered: Sequence[AnsweredRow], tested: TestedClips, cfg: ActionTokenConfig) -> list[TokenContrast]:
    """Return the differences of every metric on every tested clip, means over the seeds, with paired intervals."""
    weights = draw_weights(int(tested.take.max()) + 1, cfg.tuned.bootstrap, BOOTSTRAP_SEED)
    found = []
    for metric in EPIC_METRICS.values():
        of_row = {row: _of_seeds(answered, row, metric, tested, weights) for row in {one.row for one in answered}}
        found += [
            _contrast(of_row[row], of_row[against], (row, against), metric, tested, cfg)
            for row, against in PAIRS_OF_ROWS
            if row in of_row and against in of_row
        ]
    return found


def _of_seeds(
    answered: Sequence[AnsweredRow], row: str, metric: ActionMetric, tested: TestedClips, weights: Array
) -> tuple[float, Array]:
    """Return the value of a row and its resampled values (B,), means over the seeds."""
    values, draws = [], []
    classes = tested.clips.classes(metric.part)
    groups = classes if metric.over == "classes" else np.zeros_like(classes)
    for one in answered:
        if one.row == row:
            values.append(score(metric, tested.clips, one.rankings).value)
            hits = hits_of(classes, one.rankings[metric.part], metric.k)
            draws.append(resampled_means(groups, hits, tested.take, weights))
    return mean(values), np.mean(draws, axis=0)


def _contrast(
    row: tuple[float, Array],
    against: tuple[float, Array],
    names: tuple[TokenRow, TokenRow],
    metric: ActionMetric,
    tested: TestedClips,
    cfg: ActionTokenConfig,
) -> TokenContrast:
    n_takes = len(np.unique(tested.take))
    draws = (row[1] - against[1])[:, None, None]
    low, high = (float(end[0, 0]) for end in interval(draws, np.array([n_takes]), cfg.tuned.confidence))
    return TokenContrast(
        row=names[0],
        against=names[1],
        metric=metric.id,
        difference=row[0] - against[0],
        low=low,
        high=high,
        n_clips=len(tested.take),
        n_takes=n_takes,
    )


def judge_tokens(contrasts: Sequence[TokenContrast], names: Mapping[str, str]) -> list[Judgement]:
    """Judge by class-mean recall of actions whether each token tells anything, and that no control gains.

    A token tells something where it lies above the probe that was fine-tuned equally long and above every token that
    tells nothing, by its intervals; where one of these intervals excludes zero on the other side it does not.

    Args:
        names: row -> its printed name.
    """
    own = {(one.row, one.against): one for one in contrasts if one.metric == ACTION.id}
    found = []
    for row in TOKENS_READ:
        pairs = [own[row, control] for control in TOKEN_CONTROLS if (row, control) in own]
        if len(pairs) == len(TOKEN_CONTROLS):
            verdict = "holds" if all(one.low > 0 for one in pairs) else "undecided"
            verdict = "fails" if any(one.high < 0 for one in pairs) else verdict
            found.append(_judged(f"token: {names[row]} tells more than any control", verdict, pairs, names))
    for row in TOKEN_CONTROLS[1:]:
        if (row, LENGTH) in own:
            one = own[row, LENGTH]
            verdict = "fails" if one.low > 0 else "holds" if np.isfinite(one.low) else "undecided"
            found.append(_judged(f"control: {names[row]} gains nothing", verdict, [one], names))
    return found


def _judged(check: str, verdict: str, pairs: Sequence[TokenContrast], names: Mapping[str, str]) -> Judgement:
    def said(one: TokenContrast) -> str:
        ends = f"[{one.low:.2f}, {one.high:.2f}]" if np.isfinite(one.low) else "no interval, too few videos"
        return f"{one.difference:+.2f} {ends} to {names[one.against]}"

    return Judgement.model_validate(
        {"check": check, "verdict": verdict, "detail": f"{ACTION.id}, points: {'; '.join(map(said, pairs))}"}
    )


def check_length(curve: Sequence[CurvePoint], asked: int) -> Judgement:
    """Judge that every row was fine-tuned in as many trainings, each of as many epochs, as the row gains are counted
    from.

    Args:
        asked: epochs of each.
    """
    epochs: dict[str, dict[tuple[str, int], int]] = {}
    for point in curve:
        row = point.model.split("/")[-1].split(",")[0]
        one = epochs.setdefault(row, {})
        key = (point.model, point.seed)
        one[key] = max(one.get(key, 0), point.epoch)
    lengths = {row: sorted(one.values()) for row, one in epochs.items()}
    base = lengths.get(LENGTH, [])
    other = sorted(row for row, one in lengths.items() if one != base)
    said = f"{len(lengths)} rows, each {len(base)} trainings of {asked} epochs"
    if not base or other or set(base) != {asked}:
        said = "; ".join(f"{row}: epochs {', '.join(map(str, one))}" for row, one in sorted(lengths.items()))
        return Judgement(check=LENGTH_CHECK, verdict="fails", detail=said)
    return Judgement(check=LENGTH_CHECK, verdict="holds", detail=said)


LENGTH_CHECK = "length: every row was fine-tuned as long as the visual probe that it is held against"


def check_motion(has_motion: Mask, opened: int) -> Judgement:
    """Judge that rows of head motion were given it; where many lack it, Oracle is mostly No-Traj.

    Args:
        has_motion: (N, 2) of the tested actions, before them and of them.
    """
    n, (before, own) = len(has_motion), has_motion.sum(axis=0).tolist()
    said = (
        f"{own} of {n} tested actions have head motion, {before} before them; without it a row is given none; the gate "
        f"opened for {opened}"
    )
    verdict = "holds" if min(before, own) >= MOST * n else "undecided"
    return Judgement.model_validate(
        {"check": f"head motion: {100 * MOST:g} % of the tested actions have it", "verdict": verdict, "detail": said}
    )


def check_trained(curve: Sequence[CurvePoint], labels_dev: Codes) -> list[Judgement]:
    """Judge every predictor of the chain `final` by how often its text is the nearest on dev, against the commonest
    label (D 51).

    Args:
        labels_dev: (n,) labels of the dev actions.
    """
    floors = {"the commonest label": float(np.bincount(labels_dev).max() / len(labels_dev))}
    return judge_models(curve, ("final/traj", "final/no_traj"), "action", floors)


def check_unseen(tokens_of: Mapping[str, Sequence[str]], fitted: Mapping[str, Sequence[str]]) -> Judgement:
    """Judge that no clip that a probe is fine-tuned on has a token of a model that was fitted on its video.

    Args:
        tokens_of: chain -> videos whose clips have its tokens.
        fitted: chain -> videos that its models were fitted on.
    """
    check = "leak: tokens are made by models that have not seen the video"
    wrong = sorted(
        f"{take} ({chain})" for chain, takes in tokens_of.items() for take in set(takes) & set(fitted.get(chain, ()))
    )
    if wrong:
        said = f"{len(wrong)} videos have tokens of a model that was fitted on them, such as {wrong[0]}"
        return Judgement(check=check, verdict="fails", detail=said)
    said = "; ".join(f"{chain}: {len(set(takes))} videos" for chain, takes in tokens_of.items())
    return Judgement(check=check, verdict="holds", detail=said)
