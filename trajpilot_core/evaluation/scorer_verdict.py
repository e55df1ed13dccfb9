"""Whether a gate-then-rank scorer has learned to decide: its gate and its ranking against chance, on dev, over takes.

Its score says little: where its gate is closed it is that of its fallback. Source: docs/decisions/training.md.
Shapes: T takes, B draws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schemas.config import EvaluationConfig
from schemas.results import CurvePoint, Judgement, ScorerChoice
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.bootstrap import draw_weights, interval
from trajpilot_core.training.convergence import judge_scores

FALLBACK = "fallback M@1"


class Quality(NamedTuple):
    """How well one decision is made, percent, with its interval over takes."""

    name: str
    value: float
    low: float
    high: float
    chance: float

    @property
    def text(self) -> str:
        """The figures in words."""
        ends = f"[{self.low:.1f}, {self.high:.1f}]" if np.isfinite(self.low) else "(too few takes)"
        return f"{self.name} {self.value:.1f} % {ends}, chance {self.chance:.1f}"


def judge_scorer(
    check: str, choices: Sequence[ScorerChoice], curve: Sequence[CurvePoint], cfg: EvaluationConfig
) -> Judgement:
    """Judge one scorer: gate and ranking lie above chance, intervals and all, and its dev curve is as of any training.

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
    found = [gate_quality(choices, cfg), ranking_quality(choices, cfg)]
    wrong = [f"{one.name} not above chance" for one in found if not one.low > one.chance]
    said = "; ".join(one.text for one in found) + "; " + whole.detail
    said += f"; {', '.join(wrong)}" if wrong else ""
    return whole.replace(verdict="undertrained" if wrong else whole.verdict, detail=said)


def gate_quality(choices: Sequence[ScorerChoice], cfg: EvaluationConfig) -> Quality:
    """Return the area under the gate's curve: how often it is higher where it should open, of pairs of one horizon.

    Pairs are counted by the takes of both sides, so that a resample of takes is a product with both its weights.
    """
    take = np.unique([row.take for row in choices], return_inverse=True)[1]
    gate, opens = np.array([row.gate for row in choices]), np.array([row.should_open for row in choices])
    horizon, n_takes = np.array([row.horizon for row in choices]), int(take.max()) + 1
    won, pairs = np.zeros((n_takes, n_takes)), np.zeros((n_takes, n_takes))
    for one in np.unique(horizon):
        good = (horizon == one) & opens
        for other in range(n_takes):
            bad = np.sort(gate[(horizon == one) & ~opens & (take == other)])
            below, up_to = np.searchsorted(bad, gate[good], "left"), np.searchsorted(bad, gate[good], "right")
            won[:, other] += np.bincount(take[good], (below + up_to) / 2, n_takes)
            pairs[:, other] += np.bincount(take[good], minlength=n_takes) * len(bad)
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = ((weights @ won) * weights).sum(1) / ((weights @ pairs) * weights).sum(1)
        value = float(won.sum() / pairs.sum())
    return _quality("gate, area under its curve", value, draws, n_takes, 50.0, cfg)


def ranking_quality(choices: Sequence[ScorerChoice], cfg: EvaluationConfig) -> Quality:
    """Return how often a best candidate is ranked first; its interval is that of the lead over chance."""
    held = [(row.take, row.is_best, row.chance) for row in choices if row.is_best is not None]
    if not held:
        return Quality("best candidate first", np.nan, -np.inf, np.inf, np.nan)
    take = np.unique([one[0] for one in held], return_inverse=True)[1]
    lead = np.array([float(bool(first)) - float(chance or 0.0) for _, first, chance in held])
    n_takes, chance = int(take.max()) + 1, 100 * float(np.mean([one[2] or 0.0 for one in held]))
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    draws = (weights @ np.bincount(take, lead)) / (weights @ np.bincount(take))
    found = _quality("best candidate first", float(lead.mean()), draws, n_takes, 0.0, cfg)
    return found._replace(value=found.value + chance, low=found.low + chance, high=found.high + chance, chance=chance)


def _quality(name: str, value: float, draws_B: Array, n_takes: int, chance: float, cfg: EvaluationConfig) -> Quality:
    """Return shares as percentages with the interval of their draws (B,); none where no draw has a figure."""
    kept = draws_B[~np.isnan(draws_B)]
    n_takes = n_takes if len(kept) else 0
    low, high = interval(100 * kept[:, None, None], np.array([n_takes]), cfg.confidence)
    return Quality(name, 100 * value, float(low[0, 0]), float(high[0, 0]), chance)
