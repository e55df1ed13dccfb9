"""Whether a gate-then-rank scorer has learned to decide: its gate and its ranking against chance, on dev, over takes.

Its score is not enough: where the gate is closed it is that of the fallback. Source: docs/decisions/training.md.
Shapes: T takes, B draws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schemas.config import EvaluationConfig
from schemas.results import CurvePoint, Judgement, ScorerChoice
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.bootstrap import draw_weights, ends_of
from trajpilot_core.training.convergence import judge_scores

FALLBACK = "fallback M@1"


class Quality(NamedTuple):
    """Quality of one decision, percent, with its interval over takes."""

    name: str
    value: float
    low: float
    high: float
    chance: float

    @property
    def text(self) -> str:
        """Return the figures as text."""
        ends = f"[{self.low:.1f}, {self.high:.1f}]" if np.isfinite(self.low) else "(too few takes)"
        return f"{self.name} {self.value:.1f} % {ends}, chance {self.chance:.1f}"


def judge_scorer(
    check: str, choices: Sequence[ScorerChoice], curve: Sequence[CurvePoint], cfg: EvaluationConfig
) -> Judgement:
    """Judge one scorer: the intervals of gate and ranking are above chance, and its dev curve passes as any training's.

    Args:
        curve: of this scorer and seed; its floor is its fallback.
        cfg: draws, level and seed of the bootstrap.
    """
    if not choices:
        return Judgement(check=check, verdict="undertrained", detail="never trained, or no dev window to judge it by")
    dev = sorted((row for row in curve if row.split == "dev"), key=lambda row: row.epoch)
    scores = [row.value for row in dev if row.quantity == "M@1"]
    fallback = [row.value for row in dev if row.quantity == FALLBACK]
    whole = judge_scores(check, scores, {"its fallback": fallback[0]} if fallback else {})
    qualities = [gate_quality(choices, cfg), ranking_quality(choices, cfg)]
    wrong = [f"{quality.name} not above chance" for quality in qualities if not quality.low > quality.chance]
    detail = "; ".join([*(quality.text for quality in qualities), whole.detail, *([", ".join(wrong)] if wrong else [])])
    return whole.replace(verdict="undertrained" if wrong else whole.verdict, detail=detail)


def gate_quality(choices: Sequence[ScorerChoice], cfg: EvaluationConfig) -> Quality:
    """Return the area under the gate's curve: the share of pairs of one horizon where it is higher if it should open.

    Pairs are counted by the takes of both sides, so that a resample of takes is a product with both its weights.
    """
    take = np.unique([row.take for row in choices], return_inverse=True)[1]
    gate, opens = np.array([row.gate for row in choices]), np.array([row.should_open for row in choices])
    horizon, n_takes = np.array([row.horizon for row in choices]), int(take.max()) + 1
    won, pairs = np.zeros((n_takes, n_takes)), np.zeros((n_takes, n_takes))
    for h in np.unique(horizon):
        good = (horizon == h) & opens
        for other in range(n_takes):
            bad = np.sort(gate[(horizon == h) & ~opens & (take == other)])
            below, up_to = np.searchsorted(bad, gate[good], "left"), np.searchsorted(bad, gate[good], "right")
            won[:, other] += np.bincount(take[good], (below + up_to) / 2, n_takes)
            pairs[:, other] += np.bincount(take[good], minlength=n_takes) * len(bad)
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = ((weights @ won) * weights).sum(1) / ((weights @ pairs) * weights).sum(1)
        value = float(won.sum() / pairs.sum())
    return _quality("gate, area under its curve", value, draws, n_takes, 50.0, cfg)


def ranking_quality(choices: Sequence[ScorerChoice], cfg: EvaluationConfig) -> Quality:
    """Return the share of windows whose first candidate is a best one; the interval is that of the lead over chance."""
    ranked = [(row.take, row.is_best, row.chance) for row in choices if row.is_best is not None]
    if not ranked:
        return Quality("best candidate first", np.nan, -np.inf, np.inf, np.nan)
    take = np.unique([row[0] for row in ranked], return_inverse=True)[1]
    lead = np.array([float(bool(first)) - float(chance or 0.0) for _, first, chance in ranked])
    n_takes, chance = int(take.max()) + 1, 100 * float(np.mean([row[2] or 0.0 for row in ranked]))
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    draws = (weights @ np.bincount(take, lead)) / (weights @ np.bincount(take))
    quality = _quality("best candidate first", float(lead.mean()), draws, n_takes, 0.0, cfg)
    low, high = quality.low + chance, quality.high + chance
    return quality._replace(value=quality.value + chance, low=low, high=high, chance=chance)


def _quality(name: str, value: float, draws_B: Array, n_takes: int, chance: float, cfg: EvaluationConfig) -> Quality:
    """Return shares as percentages with the interval of their draws (B,); none where no draw has a figure."""
    kept = draws_B[~np.isnan(draws_B)]
    ends = ends_of(100 * kept[:, None], n_takes if len(kept) else 0, cfg.confidence)
    return Quality(name, 100 * value, float(ends.low[0]), float(ends.high[0]), chance)
