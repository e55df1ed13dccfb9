"""Claims of the paper about rows without a goal.

A verdict is withheld where a model is not trained, has not reached the required share of its exact ceiling, or has
reached a far larger share than the other row.

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
"""Share of the way from Majority to the exact ceiling that a row must have reached: one that uses less than half of the
information in its inputs cannot show what they lack. Fixed 2026-11-22, as are the next two."""
ORACLE_SHARE = 0.6
"""The same where the motion of the middle steps is seen: more, because that identifies the steps one by one."""
SHARE_GAP = 0.15
"""The comparison of two rows whose shares differ by more is confounded by training."""
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
"""Claims of the paper's section on anticipation, a control of ours (retrieval beyond Start's own motion), and the
second of the paper's tables of goal dropout."""
BEHIND: Mapping[str, tuple[str, ...]] = {rows.SCORER.id: (rows.ORACLE.id, rows.NO_TRAJ.id)}
"""A row with a fallback has no share of its own: the rows of its models represent it."""


class CeilingShare(NamedTuple):
    """Position of a row between its floor and its exact ceiling, M@1, plain mean over the horizons."""

    row: str
    value: float
    floor: float
    ceiling: float
    required: float
    """Share that it must have reached for a verdict on it."""

    @property
    def share(self) -> float:
        """(value - floor) / (ceiling - floor): 1 is the ceiling."""
        return (self.value - self.floor) / (self.ceiling - self.floor)


def reached_shares(ceilings: Sequence[Ceiling]) -> list[CeilingShare]:
    """Return the share of every row without a goal except the floor, where its ceiling is known and above the floor."""
    means = {row.variant: row for row in ceilings if row.horizon is None and row.metric == METRIC}
    floor = means.get(rows.MAJORITY.id)
    if floor is None:
        return []
    known = [means[row.id] for row in rows.ROWS if row.id in means and row is not rows.MAJORITY]
    return [
        CeilingShare(row.variant, row.value, floor.value, row.ceiling, required_share(row.variant))
        for row in known
        if row.ceiling > floor.value
    ]


def required_share(row: str) -> float:
    """Return the share that a row must have reached, which depends on what its ceiling has seen."""
    kind = method(row).ceiling
    sees_mids = kind is not None and "mids" in SEEN[SHOWS[kind]].motion
    return ORACLE_SHARE if sees_mids else NO_TRAJ_SHARE


def anticipation_checks(evidence: CheckInputs, ceilings: Sequence[Ceiling]) -> list[Judgement]:
    """Judge every claim on rows without a goal; none where the run has no such row.

    Args:
        ceilings: rows of the table of that name; none on recorded takes, where shares are unknown.
    """
    if not any(method(row).anticipates for row in evidence.predictions.variants()):
        return []
    reached = {share.row: share for share in reached_shares(ceilings)}
    return [_withheld(claim, claim_check(claim, evidence), reached) for claim in CLAIMS]


def _withheld(claim: ClaimedSign, judged: Judgement, reached: Mapping[str, CeilingShare]) -> Judgement:
    """Withhold the verdict on two rows where their shares forbid it; a weaker verdict is kept."""
    if judged.verdict in ("undertrained", "not run"):
        return judged
    behind = dict.fromkeys(row for id_ in (claim.variant, claim.reference) for row in BEHIND.get(id_, (id_,)))
    shares = [reached[row] for row in behind if row in reached]
    by_intervals = f"by the intervals: {judged.verdict}; {judged.detail}"
    low = [share for share in shares if share.share < share.required]
    if low:
        return judged.replace(verdict="underpowered", detail=f"share of the ceiling: {_text(low)}; {by_intervals}")
    apart = [pair for pair in combinations(shares, 2) if abs(pair[0].share - pair[1].share) > SHARE_GAP]
    if apart:
        why = f"shares of the ceiling differ by over {100 * SHARE_GAP:g} points: {_text(apart[0])}"
        return judged.replace(verdict="confounded by training", detail=f"{why}; {by_intervals}")
    return judged


def _text(shares: Sequence[CeilingShare]) -> str:
    """Print shares next to the required ones."""
    return ", ".join(
        f"{method(share.row).name} {100 * share.share:.0f} % ({100 * share.required:g} % required)" for share in shares
    )
