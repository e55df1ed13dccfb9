"""What is claimed, the control that must break it, and how each is judged: fixed before a test figure was looked at.

A verdict rests on intervals alone. Source of the claims: the paper (arXiv 2605.20388); of controls, margins and
rules: docs/decisions/claims-statistics.md. Parts of a claim that this implementation lacks say so.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from schemas.claims import BASE, NO_INFORMATION, NO_STYLE
from trajpilot_core.studies.claims.verdicts.words import ORDER, Verdict

StatementRole = Literal["claim", "control"]
StatementKind = Literal["each", "mean", "slope", "equal", "shrinks", "reported"]

RULES: dict[StatementKind, str] = {
    "each": "at every H tested the interval lies on the claimed side of zero; fails where one lies on the other side",
    "mean": "the interval of the plain mean over H lies on the claimed side of zero; fails where it lies on the other",
    "slope": "the interval of the least-squares slope over H lies above zero; fails where it lies below",
    "equal": "two one-sided tests on the plain mean over H: the 90 % interval, variance between seeds included, lies "
    "within the margin and the standard error is small enough; fails where the interval lies wholly outside the "
    "margin. Vacuous where the same difference in the world `base` (95 %, plain mean over H) does not lie "
    "wholly beyond the margin on the claimed side, or where in some seed the rows answer alike everywhere",
    "shrinks": "the interval of (lead in this world) − (lead in the world `base`) lies below zero; fails "
    "where above. Vacuous where the lead there does not lie wholly beyond the margin of the equivalence "
    "tests on the claimed side",
    "reported": "printed, not judged",
}
"""When a statement holds. What neither holds nor fails is undecided; what else a verdict can be: `words.MEANINGS`. A
control that fails still fails where it is vacuous: what differs without information differs."""


class Statement(NamedTuple):
    """One statement that is tested by itself."""

    role: StatementRole
    text: str
    kind: StatementKind
    world: str
    row: str = ""
    reference: str = ""
    sign: int = 1
    """Of row - reference, as claimed."""
    is_deep: bool = False
    """Tested from `ClaimsConfig.deep_horizon` on only."""
    metric: str = "m1"
    against: str = ""
    """Informative world, in which the difference of a control must be there; of `shrinks` the reference too."""


class Claim(NamedTuple):
    """One row of the claims table."""

    key: str
    text: str
    statements: tuple[Statement, ...] = ()
    out_of_reach: str = ""
    """Why no world of this page can judge it."""
    no_control: str = ""
    """Why no world must break it; empty where one must, or where nothing is built."""
    elsewhere: str = ""
    """Page that judges it, from tables of its own; it has no statements here then."""
    wants: str = ""
    """Command that brings its verdict from a run of its own; it has no statements here then."""


def _equal(row: str, reference: str, text: str, sign: int = 1) -> Statement:
    """Control: without information in motion two rows are equivalent; `sign` is that of their claimed difference."""
    return Statement("control", text, "equal", NO_INFORMATION, row, reference, sign, against=BASE)


DOCS_POSES = "a run of keystep_poses or demo_poses, then trajpilot docs"
NO_MOTION = "no information in motion: "
BOTH, QUERY_MOTION = "retrieval_attention", "retrieval_attention_query_motion"
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "scene",
        "The scene dominates the action: two actions of one take look nearer than one action in two takes",
        (),
        "needs pixels: the features of these worlds were fitted to such distances (docs/decisions/latents.md)",
    ),
    Claim(
        "l1_to_goal",
        "l1 distance to the goal says little about the action",
        elsewhere="docs/latent.md",
    ),
    Claim(
        "oracle",
        "Oracle is above No-Traj, and its lead widens with H",
        (
            Statement("claim", "Oracle − No-Traj > 0 at every H", "each", BASE, "oracle", "no_traj"),
            Statement("claim", "slope of Oracle − No-Traj over H > 0", "slope", BASE, "oracle", "no_traj"),
            _equal("oracle", "no_traj", NO_MOTION + "Oracle and No-Traj are equivalent"),
        ),
    ),
    Claim(
        "endpoint",
        "Endpoint-Traj is above No-Traj: motion during Start and Goal informs about the middle",
        (
            Statement("claim", "Endpoint-Traj − No-Traj > 0", "mean", BASE, "endpoint_traj", "no_traj"),
            _equal("endpoint_traj", "no_traj", NO_MOTION + "Endpoint-Traj and No-Traj are equivalent"),
        ),
    ),
    Claim(
        "scorer",
        "The Scorer is above No-Traj",
        (
            Statement("claim", "Scorer − No-Traj > 0", "mean", BASE, "scorer", "no_traj"),
            Statement(
                "control",
                "no intent in motion: the lead of the Scorer over No-Traj shrinks",
                "shrinks",
                NO_STYLE,
                "scorer",
                "no_traj",
                against=BASE,
            ),
            _equal("scorer", "scorer_permuted", NO_MOTION + "permuting the trajectories changes nothing"),
            Statement(
                "control",
                NO_MOTION + "Scorer − No-Traj (it also reads labels)",
                "reported",
                NO_INFORMATION,
                "scorer",
                "no_traj",
                against=BASE,
            ),
        ),
    ),
    Claim(
        "scorer_endpoint",
        "The Scorer is above Endpoint-Traj",
        (Statement("claim", "Scorer − Endpoint-Traj > 0", "mean", BASE, "scorer", "endpoint_traj"),),
        no_control="no world takes away all that the Scorer may be ahead by: without information in motion it still "
        "reads the candidates' labels",
    ),
    Claim(
        "retrieval",
        "Retrieved trajectories add to a plan even where the motion of the query's own ends is known",
        (
            Statement("claim", "both motions − query's motion > 0", "mean", BASE, BOTH, QUERY_MOTION),
            _equal(BOTH, QUERY_MOTION, NO_MOTION + "retrieved motion changes nothing"),
        ),
    ),
    Claim(
        "top1",
        "The nearest retrieved trajectory alone is worse than none",
        (
            Statement("claim", "Top-1 − No-Traj < 0 at long H", "each", BASE, "top1", "no_traj", -1, is_deep=True),
            Statement("claim", "Top-1 − Endpoint-Traj < 0 at every H", "each", BASE, "top1", "endpoint_traj", -1),
            _equal("top1", "no_traj", NO_MOTION + "Top-1 and No-Traj are equivalent", -1),
            _equal("top1", "endpoint_traj", NO_MOTION + "Top-1 and Endpoint-Traj are equivalent", -1),
        ),
    ),
    Claim(
        "shuffle",
        "Foreign middle trajectories hurt: what a trajectory says is used",
        (
            Statement("claim", "Shuffled − Oracle < 0", "mean", BASE, "shuffled", "oracle", -1),
            Statement("claim", "Shuffled − Endpoint-Traj < 0", "mean", BASE, "shuffled", "endpoint_traj", -1),
            _equal("shuffled", "oracle", NO_MOTION + "Shuffled and Oracle are equivalent", -1),
            _equal("shuffled", "endpoint_traj", NO_MOTION + "Shuffled and Endpoint-Traj are equivalent", -1),
        ),
        "the l1 part: in docs/latent.md",
    ),
    Claim("cem", "Planning by the cross-entropy method is below No-Traj", elsewhere="docs/latent.md"),
    Claim("text", "Text adds nothing on top of the trajectory", elsewhere="docs/latent.md"),
    Claim("planners", "Planners that see endpoints only collapse with H", elsewhere="docs/comparison.md"),
    Claim("rgb_poses", "Poses estimated from RGB video serve as well", wants=f"{DOCS_POSES} --poses ROOT"),
)
"""Rows of the claims table, in order."""


def conjunction(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of several statements that are claimed together.

    The first word of `words.ORDER` that one of them is, a failure first, speaks for the whole; it holds where all hold.
    Statements that are only reported do not count; where nothing else is left it is `reported`.
    """
    judged = [verdict for verdict in verdicts if verdict != "reported"]
    if not judged:
        return "reported"
    return next((verdict for verdict in ORDER if verdict in judged), "holds")
