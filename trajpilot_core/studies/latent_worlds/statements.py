"""What is claimed of planning in latents, the control that must break it, and how each is judged.

Fixed before a figure of the final worlds was looked at. Source of the claims: the paper (arXiv 2605.20388); of
controls, margins and rules: docs/decisions/latent-planning.md.
"""

from typing import Literal, NamedTuple

from schemas.latent_worlds import BASE, NO_INFORMATION, PLAIN_LOOKS, STRAIGHT
from trajpilot_core.methods.latent import CEM, CEM_BANK, NO_TRAJ
from trajpilot_core.studies.claims.verdicts.hypotheses import StatementRole
from trajpilot_core.studies.latent_worlds.profiles import Quantity

LatentStatementKind = Literal["each", "mean", "equal", "beyond", "recovers"]
RULES: dict[LatentStatementKind, str] = {
    "each": "at every H the 95 % interval lies on the claimed side of zero; fails where one lies on the other side",
    "mean": "the 95 % interval of the mean lies on the claimed side of zero; fails where it lies on the other",
    "equal": "the 90 % interval lies within the margin and the standard error is small enough; fails where it lies "
    "wholly outside the margin",
    "beyond": "the 95 % interval lies wholly beyond the margin on the claimed side; fails where it lies wholly short "
    "of it",
    "recovers": "the 90 % interval lies wholly above the lower margin and the standard error is small enough; fails "
    "where it lies wholly below",
}
"""When a statement holds; what neither holds nor fails is undecided. A control with a second world is vacuous where the
same figure there does not lie wholly beyond the margin on the claimed side."""


class LatentStatement(NamedTuple):
    """One statement that is tested by itself."""

    role: StatementRole
    text: str
    kind: LatentStatementKind
    quantity: Quantity
    world: str
    row: str
    reference: str
    sign: int = 1
    """Of the figure, as claimed."""
    against: str = ""
    """Informative world, in which the figure of a control must be there."""
    is_short: bool = False
    """Read at `LatentWorldsConfig.short` alone."""


class LatentClaim(NamedTuple):
    """One row of the table of verdicts."""

    key: str
    text: str
    statements: tuple[LatentStatement, ...]


def _l1(
    role: StatementRole, text: str, kind: LatentStatementKind, world: str, pair: str, sign: int, against: str = ""
) -> LatentStatement:
    row, reference = pair.split(" - ")
    return LatentStatement(role, text, kind, "l1", world, row, reference, sign, against)


def _blind(text: str, pair: str, sign: int) -> LatentStatement:
    """Control: without information in motion two conditions are equivalent."""
    return _l1("control", f"no information in motion: {text}", "equal", NO_INFORMATION, pair, sign, BASE)


def _below(text: str, row: str) -> LatentStatement:
    return LatentStatement("claim", text, "each", "accuracy", BASE, row, NO_TRAJ.id, -1)


LATENT_CLAIMS: tuple[LatentClaim, ...] = (
    LatentClaim(
        "motion",
        "Head motion tells the next latent",
        (
            _l1("claim", "l1 under trajectory − none < 0", "mean", BASE, "trajectory - none", -1),
            _blind("trajectory adds nothing to none", "trajectory - none", -1),
            _blind("trajectory adds nothing to text", "text_and_trajectory - text", -1),
        ),
    ),
    LatentClaim(
        "shuffle",
        "Foreign head motion hurts, in l1",
        (
            _l1(
                "claim",
                "l1 under shuffled trajectory − both > 0",
                "mean",
                BASE,
                "shuffled_trajectory - text_and_trajectory",
                1,
            ),
            _blind("foreign motion does not matter", "shuffled_trajectory - text_and_trajectory", 1),
        ),
    ),
    LatentClaim(
        "text",
        "Text adds nothing on top of the trajectory",
        (
            _l1(
                "claim", "l1 under both − trajectory is about 0", "equal", BASE, "text_and_trajectory - trajectory", -1
            ),
            _l1("control", "looks name the label: text must help", "beyond", BASE, "text - none", -1),
            _l1("control", "looks do not: text adds nothing", "equal", PLAIN_LOOKS, "text - none", -1, BASE),
        ),
    ),
    LatentClaim(
        "cem",
        "Planning by the cross-entropy method is below No-Traj",
        (
            _below("CEM − Latent No-Traj < 0 at every H", CEM.id),
            _below("CEM-bank − Latent No-Traj < 0 at every H: it follows real motion", CEM_BANK.id),
            LatentStatement(
                "control",
                "distance is progress: CEM recovers where the energy reads the one middle step",
                "recovers",
                "accuracy",
                STRAIGHT,
                CEM.id,
                NO_TRAJ.id,
                -1,
                BASE,
                is_short=True,
            ),
        ),
    ),
    LatentClaim(
        "l1_to_goal",
        "l1 distance to the goal says little about the action",
        (
            LatentStatement("claim", "r of energy and accuracy is about 0", "equal", "r", BASE, "last_mid", "bank", -1),
            LatentStatement(
                "control",
                "distance is progress: r must be negative",
                "beyond",
                "r",
                STRAIGHT,
                "last_mid",
                "bank",
                -1,
                is_short=True,
            ),
        ),
    ),
)
"""Rows of the table, in order. "CEM harms" is the conjunction of both statements of `cem`: CEM alone may fail because
nobody moves as it proposes."""
JUDGED_HERE = ("l1_to_goal", "cem", "text")
"""Claims of the claims table that this study judges."""
