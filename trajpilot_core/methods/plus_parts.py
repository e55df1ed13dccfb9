"""Scorer+ as it answers, whole and with one of its parts switched off (docs/decisions/methods.md).

Nothing is trained again: a part that has a weight gets weight 0, every other weight and the gate's threshold stay as
they were chosen for the whole. So a difference says what the part adds to this Scorer+, not what a method without it
could reach.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import PlusPart
from trajpilot_core.models.scorer_plus import AnsweringRoles, ScorerPlus, TrainingStatistics
from trajpilot_core.training.scorer_plus_fit import PlusDecision
from trajpilot_core.training.scorer_plus_statistics import CANDIDATES, PlusSource

FAR = 1e6
"""Squared distance of looks at which no two labels share a role."""
OFF = -math.inf
"""Logarithm of a weight of 0."""


class ReadyPlus(NamedTuple):
    """Scorer+, what dev decided for it, and what it reads from the training takes."""

    scorer: ScorerPlus
    decision: PlusDecision
    source: PlusSource
    known: AnsweringRoles
    """What its weights make of the source's statistics."""


@torch.inference_mode()
def ready_plus(scorer: ScorerPlus, decision: PlusDecision, source: PlusSource) -> ReadyPlus:
    """Put together what Scorer+ answers with."""
    return ReadyPlus(scorer, decision, source, scorer.answering(source.fitted.statistics))


def without_part(plus: ReadyPlus, part: PlusPart) -> ReadyPlus:
    """Return Scorer+ with one part switched off; its own weights and statistics are not changed."""
    return PARTS[part](plus)


def without_manner(plus: ReadyPlus) -> ReadyPlus:
    """Compare takes without the head motion of the query's ends; by the labels of its ends alone."""
    return plus._replace(scorer=reweighted(plus.scorer, manner=OFF))


def without_roles(plus: ReadyPlus) -> ReadyPlus:
    """Give every label a role of its own: moves are those of single labels, as they were counted."""
    fitted = plus.source.fitted
    statistics = replace(
        fitted.statistics, look=apart(fitted.statistics), context=torch.zeros_like(fitted.statistics.look)
    )
    source = replace(plus.source, fitted=fitted._replace(statistics=statistics))
    return ready_plus(reweighted(plus.scorer, look=0.0), plus.decision, source)


def apart(statistics: TrainingStatistics) -> Tensor:
    """Return (V, V) squared distances at which every label stands alone."""
    return FAR * (1 - torch.eye(len(statistics.look), device=statistics.look.device))


@torch.inference_mode()
def without_kinship(plus: ReadyPlus) -> ReadyPlus:
    """Let every take prefer what it did itself, and nothing of what kindred takes did."""
    scorer, statistics = reweighted(plus.scorer, own=0.0), plus.source.fitted.statistics
    return plus._replace(scorer=scorer, known=scorer.answering(statistics, moves=plus.known.roles.moves))


def without_coupling(plus: ReadyPlus) -> ReadyPlus:
    """Decode by the chain alone, without asking whether one take explains the whole sequence; rankings stay."""
    scorer = reweighted(plus.scorer)
    scorer.config = scorer.config.replace(coupled_takes=1)
    return plus._replace(scorer=scorer)


def without_retrieval(plus: ReadyPlus) -> ReadyPlus:
    """Leave out the mean plan of the retrieved candidates."""
    scorer = reweighted(plus.scorer)
    with torch.no_grad():
        scorer.plan[CANDIDATES] = OFF
    return plus._replace(scorer=scorer)


def without_motion(plus: ReadyPlus) -> ReadyPlus:
    """Read no head motion: no manner, no clash, ends recognised by looks alone, No-Traj as the only expert."""
    return plus._replace(
        scorer=reweighted(plus.scorer, manner=OFF, clash=OFF), source=replace(plus.source, moving=False)
    )


def reweighted(scorer: ScorerPlus, **logs: float) -> ScorerPlus:
    """Return a frozen copy of Scorer+ with some parameters of one number set to a logarithm."""
    copy = ScorerPlus(scorer.config)
    copy.load_state_dict(scorer.state_dict())
    copy = copy.to(scorer.manner.device).eval().requires_grad_(False)
    for name, log in logs.items():
        getattr(copy, name).fill_(log)
    return copy


PARTS: Mapping[PlusPart, Callable[[ReadyPlus], ReadyPlus]] = {
    "manner": without_manner,
    "roles": without_roles,
    "kinship": without_kinship,
    "coupling": without_coupling,
    "retrieval": without_retrieval,
    "motion": without_motion,
}
