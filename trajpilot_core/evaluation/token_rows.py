"""The rows next to the visual probe: the token that each appends, and what each may see of the action that it answers.

They are not of the type `Method`, which ranks labels at every position of a plan (docs/decisions/epic-token.md).
Shapes: n clips that are answered, N clips, E text width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from schemas.events import CompletedActionToken, TokenRow
from trajpilot_core.arrays import Codes
from trajpilot_core.data.events import BEFORE, DURING, ActionEvents
from trajpilot_core.methods.plans import derangement
from trajpilot_core.methods.sight import refuse_leaks
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.models.events import TokenProbe
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import EventChain, EventPredictor, latents_of
from trajpilot_core.training.event_scorer import Scored, action_target, scored
from trajpilot_core.training.scorer_fit import ScorerDecision

TokenSight = Literal["pixels", "pixels_motion", "action_motion"]
"""What a row sees: the pixels before the action; the head motion then as well; that of the action as well."""
PROBES = 64
"""Clips for the check of sight."""
AT_ONCE = 2048
"""Clips that are predicted at once."""


class TokenMaker(NamedTuple):
    """Models that make tokens: those of one chain, and the scorer of its seed."""

    chain: EventChain
    scorer: GateThenRankScorer
    decision: ScorerDecision
    cfg: CompletedActionToken


@dataclass(frozen=True)
class TokenMethod:
    """One row."""

    id: TokenRow
    name: str
    given: str
    """The token that it appends, in words."""
    sees: TokenSight
    token: Callable[[TokenMaker, ActionEvents, Tensor], Tensor]
    """(maker, all clips, (n,) long numbers of the answered ones) -> (n, E) float32."""


class TokenModels(NamedTuple):
    """Models of the rows of one seed."""

    maker: TokenMaker
    """Models of the chain `final`."""
    probes: Mapping[TokenRow, TokenProbe]
    read: "ReadProbes"


ReadProbes: TypeAlias = Callable[[Sequence[TokenProbe], Tensor, Sequence[Tensor]], list[dict[ActionPart, Codes]]]
"""(probes, (n,) long numbers of clips, for each probe the tokens (n, E)) -> for each part -> (n, K) ranked classes."""


def nothing(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> Tensor:
    """Return zeros (n, E): the row is given nothing."""
    return events.bank.new_zeros(len(rows), events.bank.shape[1])


@torch.no_grad()
def no_traj(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> Tensor:
    """Predict (n, E) by the pixels before the action alone."""
    return predicted(maker.chain.no_traj, events, rows, nothing(maker, events, rows)[:, None].expand(-1, 2, -1))


@torch.no_grad()
def oracle(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> Tensor:
    """Predict (n, E) by the pixels before the action, and the head motion before and during it."""
    both_n2E = torch.stack([latents_of(maker.chain.e_tau, events, rows, part) for part in (BEFORE, DURING)], dim=1)
    return predicted(maker.chain.traj, events, rows, both_n2E)


def scorer(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> Tensor:
    """Predict (n, E) under the head motion of a retrieved training action, or without any where the gate is closed."""
    return by_scorer(maker, events, rows).prediction


def by_scorer(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> Scored:
    """Return what the scorer predicts and decides for the clips `rows` (n,), long."""
    return scored(maker.chain, maker.scorer, maker.decision, events, rows, action_target(events, maker.cfg))


def shuffled(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> Tensor:
    """Return the token (n, E) of No-Traj for another one of the answered clips, by a random cycle."""
    return no_traj(maker, events, rows[derangement(len(rows), maker.cfg.shuffle_seed).to(rows.device)])


def predicted(model: EventPredictor, events: ActionEvents, rows: Tensor, latents_n2E: Tensor) -> Tensor:
    """Return (n, E) predictions, a few clips at a time."""
    parts = [
        model(events.context[rows[at]], latents_n2E[at])
        for at in torch.split(torch.arange(len(rows), device=rows.device), AT_ONCE)
        if len(at)
    ]
    return torch.cat(parts) if parts else latents_n2E[:, 0]


METHODS: tuple[TokenMethod, ...] = (
    TokenMethod("visual", "visual probe, fine-tuned equally long", "no token", "pixels", nothing),
    TokenMethod("constant", "constant token", "a learned token, the same for every clip", "pixels", nothing),
    TokenMethod("zero", "zero token", "zeros, which still receive attention", "pixels", nothing),
    TokenMethod("shuffled", "shuffled token", "No-Traj’s prediction of another clip", "pixels", shuffled),
    TokenMethod("no_traj", "No-Traj", "the prediction by the pixels before the action", "pixels", no_traj),
    TokenMethod(
        "scorer",
        "Scorer",
        "that under the head motion of a retrieved training action, and that before the action",
        "pixels_motion",
        scorer,
    ),
    TokenMethod("oracle", "Oracle", "that under the head motion before and during the action", "action_motion", oracle),
)
"""In the order of the table."""
MODELS: Mapping[str, tuple[str, ...]] = {
    "visual": (),
    "constant": (),
    "zero": (),
    "shuffled": (),
    "no_traj": ("no_traj",),
    "scorer": ("no_traj", "traj"),
    "oracle": ("traj",),
}
"""Row -> the predictors behind its token; its probe is judged by its level."""
TOKEN_NAMES: Mapping[str, str] = {method.id: method.name for method in METHODS}
"""Row -> its printed name, in the order of the table."""


class TokenAnswer(NamedTuple):
    """Answers of one row."""

    token: Tensor
    """(n, E) float32; the probes read it as float16."""
    rankings: dict[ActionPart, Codes]
    """Part -> (n, K) ranked classes."""


def answer(
    models: TokenModels, events: ActionEvents, rows: Tensor, methods: Sequence[TokenMethod] = METHODS
) -> Mapping[str, TokenAnswer]:
    """Return the answers of each row for the clips `rows` (n,), long."""
    tokens = [method.token(models.maker, events, rows) for method in methods]
    probes = [models.probes[method.id] for method in methods]
    rankings = models.read(probes, rows, [token.half() for token in tokens])
    answered = map(TokenAnswer, tokens, rankings)
    return {method.id: answers_of_row for method, answers_of_row in zip(methods, answered, strict=True)}


def hidden(events: ActionEvents, rows: Tensor, sees: TokenSight) -> ActionEvents:
    """Return the clips with everything exchanged, at `rows`, that a row of this sight must not see.

    The action, its text and duration, and unseen head motion are those of another clip.
    """
    parts = {"pixels": (BEFORE, DURING), "pixels_motion": (DURING,), "action_motion": ()}[sees]
    return events.hidden(rows, ("labels", "classes", "seconds"), parts)


def check_sight(methods: Sequence[TokenMethod], models: TokenModels, events: ActionEvents, rows: Tensor) -> None:
    """Check that the token and the answer of every row depend on no more than it declares.

    Args:
        rows: (n,) long, clips that no model was fitted on.

    Raises:
        LeakError: names a row that sees more.
    """
    probed = rows[:PROBES]

    def answers(group: Sequence[TokenMethod], is_blind: bool) -> Mapping[str, TokenAnswer]:
        return answer(models, hidden(events, probed, group[0].sees) if is_blind else events, probed, group)

    def are_equal(one: TokenAnswer, other: TokenAnswer) -> bool:
        is_same = torch.equal(one.token, other.token)
        return is_same and all(np.array_equal(one.rankings[part], other.rankings[part]) for part in one.rankings)

    file = "trajpilot_core/evaluation/token_rows.py"
    refuse_leaks(methods, answers, are_equal, f"{len(probed)} clips checked", file)
