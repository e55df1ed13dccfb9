"""Whether the world supports a claim, whatever the models show: the rule of a statement on exact ceilings."""

from typing import NamedTuple

import numpy as np

from trajpilot_core.studies.claims.evidence.shares import has_own_ceiling
from trajpilot_core.studies.claims.evidence.statistics import Equivalence, Estimate, Profile
from trajpilot_core.studies.claims.evidence.tables import CEILING
from trajpilot_core.studies.claims.verdicts.hypotheses import Statement
from trajpilot_core.studies.claims.verdicts.words import ExactWord, Verdict

SUPPORT: dict[Verdict, ExactWord] = {"holds": "yes", "fails": "no", "not run": "not run"}


class ExactAnswer(NamedTuple):
    """What exact inference answers to a statement."""

    word: ExactWord
    figure: Estimate | Equivalence | None = None
    """The same figure as the learned one, of the ceilings; None where there is none."""


BOUND_ONLY = ExactAnswer("bound only")


def of_ceilings(statement: Statement) -> Statement | None:
    """Return a statement on the ceilings of its rows; None where a row has no ceiling of its own."""
    rows = statement.row, statement.reference
    if not all(has_own_ceiling(row) for row in rows):
        return None
    return statement._replace(row=f"{CEILING}{rows[0]}", reference=f"{CEILING}{rows[1]}")


def exact_word(verdict: Verdict, of: Profile | None, statement: Statement) -> ExactWord:
    """Put a verdict by intervals into an answer; ceilings that never differ support no claimed difference."""
    if of is not None and statement.kind != "equal" and not np.nan_to_num(of.points).any():
        return "no"
    return SUPPORT.get(verdict, "undecided")
