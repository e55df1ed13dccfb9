"""What the planners of other papers are held against: their ceilings in the deterministic world, and the claim on H.

Fixed before a test figure was looked at. Source: docs/decisions/planners.md.
"""

import math
from typing import Literal, NamedTuple

from schemas.claims import BASE, LIMITS, ClaimsConfig
from schemas.comparison import PlannerWorldsConfig
from schemas.planners import PLANNERS, PlannerName
from schemas.results import Judgement
from trajpilot_core.studies.claims.evidence.contrasts import TRAINED
from trajpilot_core.studies.claims.evidence.readings import name
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence
from trajpilot_core.studies.claims.verdicts.hypotheses import Claim, Statement
from trajpilot_core.studies.claims.verdicts.judge import Judged, judge

METRIC = "M@1"
BOUND = f"{CEILING}no_traj"
NO_CONTROL = (
    "no world of the claims takes away what endpoints tell; that they are enough to plan by where they tell the whole "
    "is tested in the deterministic world"
)
ReachedWord = Literal["reached", "missed", "not run"]


class Reached(NamedTuple):
    """One planner at one horizon of the deterministic world, against its exact ceiling."""

    method: PlannerName
    horizon: int
    value: float
    """M@1, percent."""
    ceiling: float
    error: float
    """Standard error of the difference, clustered by take."""
    word: ReachedWord


def reached(evidence: Evidence, horizons: tuple[int, ...], within: float) -> tuple[Reached, ...]:
    """Judge every planner at every horizon: its M@1 lies at most `within` points below its ceiling; a miss is a miss.

    Args:
        evidence: the tables of the deterministic world, of one seed.
        horizons: which.
        within: points.
    """
    found = {(row.variant, row.horizon): row for _, row in evidence.ceilings if row.metric == METRIC}
    lines = []
    for method in PLANNERS:
        for horizon in horizons:
            row = found.get((method, horizon))
            if row is None:
                lines.append(Reached(method, horizon, math.nan, math.nan, math.nan, "not run"))
                continue
            word: ReachedWord = "reached" if row.difference >= -within else "missed"
            lines.append(Reached(method, horizon, row.value, row.ceiling, row.standard_error, word))
    return tuple(lines)


def trained_word(evidence: Evidence, model: str) -> str:
    """Return `trained`, or `undertrained` with the seeds of which a model is not; `not run` where none was judged."""
    judged: list[tuple[int, Judgement]] = [
        (origin.seed, row) for origin, row in evidence.judgements if row.check.startswith(f"{TRAINED}final/{model},")
    ]
    weak = [str(seed) for seed, row in judged if row.verdict != "holds"]
    if not judged:
        return "not run"
    return f"undertrained (seed {', '.join(weak)})" if weak else "trained"


def _slopes(reference: str, why: str) -> tuple[Statement, ...]:
    """Return the statement that each planner loses more with H than a reference."""
    return tuple(
        Statement(
            "claim", f"slope of {name(row)} − {name(reference)} over H < 0{why}", "slope", BASE, row, reference, -1
        )
        for row in PLANNERS
    )


COLLAPSE: tuple[Claim, ...] = (
    Claim(
        "planners",
        "Planners that see endpoints only collapse with H: they lose more than the row that sees the motion between",
        _slopes("oracle", ""),
        no_control=NO_CONTROL,
    ),
    Claim(
        "planners_own",
        "They lose more with H than their endpoints explain",
        _slopes(BOUND, ": the fall is theirs, not that of what endpoints tell"),
        no_control=NO_CONTROL,
    ),
)
"""The paper's claim on the planners. The second says whose fall it is: a ceiling falls with H, too."""


def judge_collapse(evidence: Evidence, cfg: PlannerWorldsConfig, claims: ClaimsConfig) -> tuple[Judged, ...]:
    """Judge the claim by the rules of the claims, on the horizons of the planners.

    Args:
        evidence: the tables of the part `claims`.
        cfg: horizons.
        claims: planned seeds, resampling and levels.
    """
    own = claims.replace(horizons=cfg.horizons)
    return tuple(Judged(claim, tuple(judge(s, evidence, own, LIMITS) for s in claim.statements)) for claim in COLLAPSE)
