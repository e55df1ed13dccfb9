"""The rows of the tables of events, and what each may see of the event that it answers.

A row of shots answers with the probability that the shot is made; a row of actions with a token, which a probe reads
next to those of the pixels. They are not of the type `Method`, which ranks labels at every position of a plan
(docs/decisions/outcome.md, docs/decisions/epic-token.md). Shapes: n events that are answered, N events, E text width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from schemas.base import Record
from schemas.events import CompletedActionToken, CompletedOutcome, OutcomeRow, TokenRow
from trajpilot_core.arrays import Codes
from trajpilot_core.data.events import BEFORE, DURING, ActionEvents, Events, Shots
from trajpilot_core.methods.plans import derangement
from trajpilot_core.methods.sight import refuse_leaks
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.models.events import MADE, ShotProbe, TokenProbe
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import EventChain, find_events, latents_of, vote
from trajpilot_core.training.event_scorer import EventAnswers, action_target, scored, shot_target
from trajpilot_core.training.fit_event import PROBE
from trajpilot_core.training.scorer_fit import ScorerDecision

EventSight = Literal["nothing", "pixels", "pixels_motion", "event_motion"]
"""What a row sees: nothing; the pixels before the event; the head motion before it as well; that during it as well."""
UNSEEN_MOTION: Mapping[EventSight, tuple[int, ...]] = {
    "nothing": (BEFORE, DURING),
    "pixels": (BEFORE, DURING),
    "pixels_motion": (DURING,),
    "event_motion": (),
}
PROBES = 64
"""Events for the check of sight."""
AT_ONCE = 2048
"""Actions that are predicted at once."""
C = TypeVar("C", bound=Record)
E = TypeVar("E", bound=Events)
R = TypeVar("R", bound=str)


@dataclass(frozen=True)
class EventModels(Generic[C]):
    """Models of one chain, and the scorer of its seed."""

    chain: EventChain
    scorer: GateThenRankScorer
    decision: ScorerDecision
    cfg: C
    probe: ShotProbe | None = None
    """Of shots; None where features have one vector per clip."""

    def answers(
        self, events: E, rows: Tensor, methods: "Sequence[EventMethod[Any, C, E]]"
    ) -> dict[str, EventAnswers | None]:
        """Return the answers of each row for the events `rows` (n,), long; None where it was not trained."""
        return {method.id: method.answer(self, events, rows) for method in methods}


@dataclass(frozen=True)
class EventMethod(Generic[R, C, E]):
    """One row."""

    id: R
    name: str
    given: str
    """Its inputs, or the token that it appends, in words."""
    sees: EventSight
    answer: Callable[[EventModels[C], E, Tensor], EventAnswers | None]
    """(models, all events, (n,) long numbers of the answered ones) -> answers; None where it was not trained."""


OutcomeModels: TypeAlias = EventModels[CompletedOutcome]
TokenMaker: TypeAlias = EventModels[CompletedActionToken]
ShotMethod: TypeAlias = EventMethod[OutcomeRow, CompletedOutcome, Shots]
TokenMethod: TypeAlias = EventMethod[TokenRow, CompletedActionToken, ActionEvents]
Net = Literal["traj", "no_traj", "endpoint_traj"]


def predicted(chain: EventChain, events: Events, rows: Tensor, net: Net, *parts: int) -> Tensor:
    """Return (n, P): what a predictor returns by the pixels before events, and these parts of their head motion."""
    none = events.motions.new_zeros(len(rows), chain.e_tau.text_width)
    both = [latents_of(chain.e_tau, events, rows, part) if part in parts else none for part in (BEFORE, DURING)]
    latents_n2E, model = torch.stack(both, dim=1), getattr(chain, net)
    assert model is not None
    at_once = AT_ONCE if isinstance(events, ActionEvents) else max(1, len(rows))
    pieces = torch.split(torch.arange(len(rows), device=rows.device), at_once)
    outputs: list[Tensor] = [model(events.context[rows[at]], latents_n2E[at]) for at in pieces if len(at)]
    return torch.cat(outputs) if outputs else none


def p_made(logits_n2: Tensor) -> Tensor:
    """Return probabilities of made, of shape (n,)."""
    return logits_n2.softmax(-1)[:, MADE]


def answer_by(net: Net, *parts: int) -> Callable[[EventModels[Any], Any, Tensor], EventAnswers]:
    """Return how a row answers with a predictor that is given these parts of the head motion."""

    @torch.no_grad()
    def answer(models: EventModels[Any], events: Events, rows: Tensor) -> EventAnswers:
        prediction = predicted(models.chain, events, rows, net, *parts)
        return EventAnswers(p_made(prediction) if isinstance(events, Shots) else prediction)

    return answer


@torch.no_grad()
def attentive_probe(models: OutcomeModels, shots: Shots, rows: Tensor) -> EventAnswers | None:
    """Answer shots `rows`, shape (n,), by the tokens of the pixels before them, no predictor; None without tokens."""
    return None if models.probe is None else EventAnswers(p_made(models.probe(shots.tokens[rows])))


def shot_scorer(models: OutcomeModels, shots: Shots, rows: Tensor, motion_of: Tensor | None = None) -> EventAnswers:
    """Answer shots `rows`, shape (n,), under the head motion of a retrieved one, or none where the gate is closed."""
    target = shot_target(shots, models.cfg, models.chain.e_tau.text_width)
    answers = scored(models.chain, models.scorer, models.decision, shots, rows, target, motion_of)
    return answers._replace(prediction=p_made(answers.prediction))


def permuted_candidates(models: OutcomeModels, shots: Shots, rows: Tensor) -> EventAnswers:
    """Answer shots `rows`, shape (n,), by the same scorer where candidates have the motion of other training shots."""
    return shot_scorer(models, shots, rows, permuted(models.chain.bank, len(shots), models.cfg.shuffle_seed))


def permuted(bank: Tensor, n_shots: int, seed: int) -> Tensor:
    """Return long of shape (N,): each shot of the bank -> another one, by a random cycle; other shots -> themselves."""
    motion_of = torch.arange(n_shots, device=bank.device)
    motion_of[bank] = bank[derangement(len(bank), seed).to(bank.device)]
    return motion_of


def knn_outcome(models: OutcomeModels, shots: Shots, rows: Tensor) -> EventAnswers:
    """Answer shots `rows`, shape (n,), by the outcomes of the retrieved training shots alone."""
    neighbours = find_events(models.chain, shots, rows, models.cfg.scorer.candidates)
    return EventAnswers(vote(shots.made, neighbours, models.decision.knn_temperature))


def majority(models: OutcomeModels, shots: Shots, rows: Tensor) -> EventAnswers:
    """Answer shots `rows`, shape (n,), by the share of made shots among the fitted ones."""
    return EventAnswers(shots.made[models.chain.bank].float().mean().expand(len(rows)))


SHOT_ROWS: tuple[ShotMethod, ...] = (
    ShotMethod("no_traj", "No-Traj", "pixels before the shot", "pixels", answer_by("no_traj")),
    ShotMethod("attentive_probe", "Visual probe", "tokens of the pixels before the shot", "pixels", attentive_probe),
    ShotMethod(
        "scorer", "Scorer", "the same, head motion before it, that of retrieved shots", "pixels_motion", shot_scorer
    ),
    ShotMethod(
        "oracle", "Oracle", "pixels before the shot, all head motion", "event_motion", answer_by("traj", BEFORE, DURING)
    ),
    ShotMethod(
        "endpoint_traj",
        "Endpoint-Traj",
        "pixels and head motion before it",
        "pixels_motion",
        answer_by("endpoint_traj", BEFORE),
    ),
    ShotMethod(
        "permuted_candidates",
        "Scorer, permuted candidates",
        "as Scorer, but each candidate has the head motion of another",
        "pixels_motion",
        permuted_candidates,
    ),
    ShotMethod("knn_outcome", "kNN-outcome", "outcomes of the retrieved shots alone", "pixels_motion", knn_outcome),
    ShotMethod("majority", "majority", "share of made training shots", "nothing", majority),
)
"""In the order of the table."""
SHOT_NAMES: Mapping[str, str] = {method.id: method.name for method in SHOT_ROWS}
"""Row -> its printed name, in the order of the table."""
SHOT_FLOORS: tuple[OutcomeRow, ...] = ("majority", "knn_outcome")
SHOT_MODELS: Mapping[str, tuple[str, ...]] = {
    "no_traj": ("no_traj",),
    "attentive_probe": (PROBE,),
    "scorer": ("no_traj", "traj"),
    "oracle": ("traj",),
    "endpoint_traj": ("endpoint_traj",),
}
"""Learned row -> the models behind it; floors and controls are not learned."""
NO_TOKENS = "Visual probe: not run; it reads tokens, set features.tokens=temporal"
"""Note where the features have one vector per clip."""


def nothing(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> EventAnswers:
    """Return zeros (n, E): the row is given nothing."""
    return EventAnswers(events.bank.new_zeros(len(rows), events.bank.shape[1]))


def token_scorer(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> EventAnswers:
    """Predict (n, E) under the head motion of a retrieved training action, or without any where the gate is closed."""
    return scored(maker.chain, maker.scorer, maker.decision, events, rows, action_target(events, maker.cfg))


def shuffled(maker: TokenMaker, events: ActionEvents, rows: Tensor) -> EventAnswers:
    """Return the token (n, E) of No-Traj for another one of the answered clips, by a random cycle."""
    others = rows[derangement(len(rows), maker.cfg.shuffle_seed).to(rows.device)]
    return answer_by("no_traj")(maker, events, others)


TOKEN_METHODS: tuple[TokenMethod, ...] = (
    TokenMethod("visual", "visual probe, fine-tuned equally long", "no token", "pixels", nothing),
    TokenMethod("constant", "constant token", "a learned token, the same for every clip", "pixels", nothing),
    TokenMethod("zero", "zero token", "zeros, which still receive attention", "pixels", nothing),
    TokenMethod("shuffled", "shuffled token", "No-Traj’s prediction of another clip", "pixels", shuffled),
    TokenMethod("no_traj", "No-Traj", "the prediction by the pixels before the action", "pixels", answer_by("no_traj")),
    TokenMethod(
        "scorer",
        "Scorer",
        "that under the head motion of a retrieved training action, and that before the action",
        "pixels_motion",
        token_scorer,
    ),
    TokenMethod(
        "oracle",
        "Oracle",
        "that under the head motion before and during the action",
        "event_motion",
        answer_by("traj", BEFORE, DURING),
    ),
)
"""In the order of the table."""
TOKEN_MODELS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("visual", "constant", "zero", "shuffled"), ()),
    "no_traj": ("no_traj",),
    "scorer": ("no_traj", "traj"),
    "oracle": ("traj",),
}
"""Row -> the predictors behind its token; its probe is judged by its level."""
TOKEN_NAMES: Mapping[str, str] = {method.id: method.name for method in TOKEN_METHODS}
"""Row -> its printed name, in the order of the table."""


class TokenModels(NamedTuple):
    """Models of the rows of one seed."""

    maker: TokenMaker
    """Models of the chain `final`."""
    probes: Mapping[TokenRow, TokenProbe]
    read: Callable[[Sequence[TokenProbe], Tensor, Sequence[Tensor]], list[dict[ActionPart, Codes]]]
    """(probes, (n,) long numbers of clips, for each probe the tokens (n, E)) -> part -> (n, K) ranked classes."""

    def answers(
        self, events: ActionEvents, rows: Tensor, methods: Sequence[TokenMethod] = TOKEN_METHODS
    ) -> dict[str, EventAnswers]:
        """Return the answers of each row for the clips `rows` (n,), long, with what its probe ranks."""
        tokens = [answer for answer in self.maker.answers(events, rows, methods).values() if answer is not None]
        probes = [self.probes[method.id] for method in methods]
        rankings = self.read(probes, rows, [token.prediction.half() for token in tokens])
        answered = (token._replace(rankings=ranked) for token, ranked in zip(tokens, rankings, strict=True))
        return {method.id: answers for method, answers in zip(methods, answered, strict=True)}


def hidden(events: E, rows: Tensor, sees: EventSight) -> E:
    """Return the events with everything exchanged, at `rows` (n,), long, that a row of this sight must not see.

    Outcomes are inverted; pixels, texts, classes and unseen head motion are those of other events.
    """
    of_shots, of_actions = ("shot", "labels"), ("labels", "classes")
    names = of_shots if isinstance(events, Shots) else of_actions
    pixels = ("tokens", "context") if sees == "nothing" else ()
    exchanged = events.hidden(rows, (*names, *pixels), UNSEEN_MOTION[sees])
    if isinstance(exchanged, Shots):
        made = exchanged.made.clone()
        made[rows] = ~made[rows]
        exchanged = replace(exchanged, made=made)
    return exchanged


def check_sight(
    methods: Sequence[EventMethod[Any, Any, E]], models: EventModels[Any] | TokenModels, events: E, rows: Tensor
) -> None:
    """Check on `rows` (n,), long, that no model was fitted on, that each answer depends on no more than it declares.

    Raises:
        LeakError: names a row that sees more.
    """
    probed = rows[:PROBES]

    def answers(group: Sequence[Any], is_blind: bool) -> Mapping[str, EventAnswers | None]:
        seen: Any = hidden(events, probed, group[0].sees) if is_blind else events
        return models.answers(seen, probed, group)

    def are_equal(one: EventAnswers | None, other: EventAnswers | None) -> bool:
        if one is None or other is None:
            return True
        is_same = torch.equal(one.prediction, other.prediction)
        return is_same and all(np.array_equal(one.rankings[part], other.rankings[part]) for part in one.rankings)

    what = f"{len(probed)} events checked"
    refuse_leaks(methods, answers, are_equal, what, "trajpilot_core/evaluation/event_rows.py")
