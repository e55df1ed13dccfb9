"""Whether the Scorer has learned to rank: its gate and its ranking against chance, never its score.

Where the gate is closed the Scorer answers with No-Traj, so that its M@1 is mostly No-Traj's. The figures are those of
`studies.scorer_study`, one per seed; a seed is a world of its own, and the interval is Student's over the seeds.
Source: docs/decisions/claims-statistics.md.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import t

from schemas.checks import StudyConfig
from schemas.claims import ClaimsConfig, world_seeds
from trajpilot_core.studies.claims.evidence.contrasts import models_of
from trajpilot_core.studies.claims.evidence.shares import is_ranked
from trajpilot_core.studies.claims.evidence.tables import Evidence

GATE = "rank: area under the gate's curve"
FEWEST_SEEDS = 2
"""An interval over seeds needs as many."""


class AgainstChance(NamedTuple):
    """One quality of a ranking next to chance, percent."""

    quantity: str
    value: float
    low: float
    """Lower end of the interval over the seeds."""
    chance: float

    @property
    def text(self) -> str:
        """The figures in words."""
        what = self.quantity.removeprefix("rank: ")
        return f"{what} {self.value:.1f} %, lower bound {self.low:.1f}, chance {self.chance:.1f}"


class JudgedRanking(NamedTuple):
    """Whether one scorer ranks above chance in one world."""

    verdict: Literal["holds", "undertrained", "not judged"]
    text: str


def judge_ranking(evidence: Evidence, world: str, model: str, cfg: ClaimsConfig) -> JudgedRanking:
    """Judge the ranking of a scorer: it holds where both lower bounds lie above chance.

    Args:
        evidence: the tables.
        world: name of the world.
        model: scorer, or the Scorer without a part.
        cfg: planned seeds, level of the interval.

    Returns:
        `not judged` where the tables lack a seed, the number of candidates, or an interval.
    """
    among = f"rank: best candidate among the first {StudyConfig().first}"
    n_candidates = evidence.run.recipe.candidates if evidence.run and evidence.run.recipe else 0
    planned = world_seeds(cfg, world)
    if not n_candidates:
        return JudgedRanking("not judged", "the number of candidates is not recorded")
    if len(planned) < FEWEST_SEEDS:
        return JudgedRanking("not judged", f"{len(planned)} seed gives no interval ({world})")
    found = []
    for quantity, chance in ((GATE, 50.0), (among, 100.0 * StudyConfig().first / n_candidates)):
        values = ranking_values(evidence, world, model, quantity)
        lacking = [str(seed) for seed in planned if seed not in values]
        if lacking:
            return JudgedRanking("not judged", f"no {quantity.removeprefix('rank: ')} ({world}, {', '.join(lacking)})")
        found.append(over_seeds(quantity, [values[seed] for seed in planned], chance, cfg.confidence))
    is_above = all(each.low > each.chance for each in found)
    text = f"{world}: {'; '.join(each.text for each in found)}"
    return JudgedRanking("holds" if is_above else "undertrained", text)


def over_seeds(quantity: str, values: list[float], chance: float, confidence: float) -> AgainstChance:
    """Return the mean over seeds with the lower end of Student's two-sided interval."""
    values_S = np.asarray(values)
    error = float(values_S.std(ddof=1)) / math.sqrt(len(values))
    low = float(values_S.mean()) - float(t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return AgainstChance(quantity, float(values_S.mean()), low, chance)


def ranking_values(evidence: Evidence, world: str, model: str, quantity: str) -> Mapping[int, float]:
    """Return seed -> one quantity over all H, of the scorer that was trained on the most queries."""
    rows = [
        (row.share, origin.seed, row.value)
        for origin, row in evidence.study
        if (origin.world, row.model, row.quantity, row.horizon) == (world, model, quantity, None)
    ]
    most = max((share for share, _, _ in rows), default=0.0)
    return {seed: value for share, seed, value in rows if share == most}


def ranked_models(row: str) -> tuple[str, ...]:
    """Return the scorers whose ranking a row rests on; none for a row that is not the Scorer or a part of it."""
    return tuple(model for model in models_of(row) if is_ranked(model)) if is_ranked(row) else ()
