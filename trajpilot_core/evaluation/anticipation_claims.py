"""What the paper says of rows without a goal, judged: a verdict is withheld where a model is
not trained, has not reached the asked share of its exact ceiling, or has reached far more of it than the other row.

Source: docs/decisions/anticipation.md.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from schemas.results import Ceiling, Judgement
from trajpilot_core.evaluation.paper_claims import CheckInputs, ClaimedSign, claim_check
from trajpilot_core.methods import anticipation as rows
from trajpilot_core.methods import method
from trajpilot_core.methods.base import SEEN, SHOWS

METRIC = "M@1"
NO_TRAJ_SHARE = 0.5
"""Share of the way from Majority to the exact ceiling that a row must have reached: one that uses less than half of
what its inputs say cannot show what they lack. Fixed 2026-11-22, as are the next two."""
ORACLE_SHARE = 0.6
"""The same where the motion of the middle steps is seen: more, because it names the steps one by one."""
SHARE_GAP = 0.15
"""Two rows whose shares differ by more are confounded by training."""
CLAIMS: tuple[ClaimedSign, ...] = (
    ClaimedSign("claim: without a goal Oracle is above No-Traj at every H", rows.ORACLE.id, rows.NO_TRAJ.id, 1),
    ClaimedSign("claim: without a goal the Scorer is above No-Traj at every H", rows.SCORER.id, rows.NO_TRAJ.id, 1),
    ClaimedSign(
        "claim: without a goal the Scorer is above Endpoint-Traj at every H", rows.SCORER.id, rows.ENDPOINT_TRAJ.id, 1
    ),
    ClaimedSign(
        "claim: without a goal No-Traj is worse at every H where it was trained with every goal",
        rows.NO_TRAJ_NO_DROPOUT.id,
        rows.NO_TRAJ.id,
        -1,
    ),
    ClaimedSign(
        "claim: without a goal Oracle is worse at every H where it was trained with every goal",
        rows.ORACLE_NO_DROPOUT.id,
        rows.ORACLE.id,
        -1,
    ),
)
"""The paper's section on anticipation, a control of ours (what is retrieved, beyond Start's own motion), and the second
of its tables of goal dropout."""
BEHIND: Mapping[str, tuple[str, ...]] = {rows.SCORER.id: (rows.ORACLE.id, rows.NO_TRAJ.id)}
"""A row that falls back on another has no share of its own: its models' rows stand for it."""


class CeilingShare(NamedTuple):
    """How far a row has come from its floor to its exact ceiling, M@1, plain mean over the horizons."""

    row: str
    value: float
    floor: float
    ceiling: float
    asked: float
    """Share that it must have reached for a verdict on it."""

    @property
    def share(self) -> float:
        """(value - floor) / (ceiling - floor): 1 is the ceiling."""
        return (self.value - self.floor) / (self.ceiling - self.floor)


def reached_shares(ceilings: Sequence[Ceiling]) -> list[CeilingShare]:
    """Return the share of every row without a goal but its floor; nothing where there are no ceilings, or where one
    does not lie above the floor.
    """
    means = {one.variant: one for one in ceilings if one.horizon is None and one.metric == METRIC}
    floor = means.get(rows.MAJORITY.id)
    if floor is None:
        return []
    known = [means[one.id] for one in rows.ROWS if one.id in means and one is not rows.MAJORITY]
    return [
        CeilingShare(one.variant, one.value, floor.value, one.ceiling, asked_share(one.variant))
        for one in known
        if one.ceiling > floor.value
    ]


def asked_share(row: str) -> float:
    """Return the share that a row must have reached, by what its ceiling has seen."""
    kind = method(row).ceiling
    sees_mids = kind is not None and "mids" in SEEN[SHOWS[kind]].motion
    return ORACLE_SHARE if sees_mids else NO_TRAJ_SHARE


def anticipation_checks(evidence: CheckInputs, ceilings: Sequence[Ceiling]) -> list[Judgement]:
    """Judge every claim on rows without a goal; none where the run has no such row.

    Args:
        ceilings: rows of the table of that name; none on recorded takes, where no share is known.
    """
    if not any(method(row).anticipates for row in evidence.predictions.variants()):
        return []
    reached = {one.row: one for one in reached_shares(ceilings)}
    return [_withheld(claim, claim_check(claim, evidence), reached) for claim in CLAIMS]


def _withheld(claim: ClaimedSign, judged: Judgement, reached: Mapping[str, CeilingShare]) -> Judgement:
    """Withhold the verdict on two rows where a share speaks against it; what says less than that stays as it is."""
    if judged.verdict in ("undertrained", "not run"):
        return judged
    behind = dict.fromkeys(row for one in (claim.variant, claim.reference) for row in BEHIND.get(one, (one,)))
    shares = [reached[row] for row in behind if row in reached]
    said = f"by the intervals: {judged.verdict}; {judged.detail}"
    low = [one for one in shares if one.share < one.asked]
    if low:
        return judged.replace(verdict="underpowered", detail=f"reached of the ceiling: {_words(low)}; {said}")
    apart = [pair for pair in combinations(shares, 2) if abs(pair[0].share - pair[1].share) > SHARE_GAP]
    if apart:
        why = f"shares of the ceiling over {100 * SHARE_GAP:g} points apart: {_words(apart[0])}"
        return judged.replace(verdict="confounded by training", detail=f"{why}; {said}")
    return judged


def _words(shares: Sequence[CeilingShare]) -> str:
    """Print shares with what was asked."""
    return ", ".join(f"{method(one.row).name} {100 * one.share:.0f} % of {100 * one.asked:g} %" for one in shares)
