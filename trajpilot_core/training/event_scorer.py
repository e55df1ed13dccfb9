"""The scorer of events: queries from takes that their chain has not seen, with a utility of what they predict.

The network, its losses and its choices on dev are those of planning (training/scorer.py), with one middle step, the
event, and no goal (D 28, D 30, D 43). Shapes: N events, B queries, K candidates, E text width, P width of a prediction,
V classes, T temperatures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.events import CompletedActionToken, CompletedOutcome
from schemas.training import ScorerConfig
from trajpilot_core.arrays import Codes
from trajpilot_core.data.events import BEFORE, DURING, ActionEvents, Events, Shots
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.memory import in_parts
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.models.events import CLASSES, MADE
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.retrieval.events import EventChain, FoundEvents, find_events, latents_of, vote
from trajpilot_core.training.scorer import Queries, decide, joined
from trajpilot_core.training.scorer_fit import FittedScorer, ScorerDecision, train_scorer
from trajpilot_core.training.scorer_queries import Collected

TOP = 5
"""Source: paper, R@5."""
SHOTS_AT_ONCE, ACTIONS_AT_ONCE = 64, 256
"""Queries whose candidates are rolled out and scored in one call."""


@dataclass(frozen=True)
class Target:
    """What is predicted of a kind of event, and how a prediction is scored."""

    truth: Tensor
    """(N,) long, the class of each event."""
    texts: Tensor
    """(V, E) float32, the vector of each class as a label of candidates."""
    shape: ScorerShape
    """Widths of the scorer. A query is the features and the head motion before the event, then zeros."""
    score: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Predictions (..., P) and true classes, long of the same shape without P -> their utility, and 1 where the
    predicted class is the true one, both float32 (...)."""
    ranking: ScorerConfig
    at_once: int
    is_logits: bool = False
    """Predictors return logits of the classes, and predictions are their log probabilities."""
    right_votes: Callable[[FoundEvents, Tensor], Tensor] | None = None
    """Candidates of dev events (B,) -> (B, T), whether their vote is right; None: nothing is voted on."""


def shot_target(shots: Shots, cfg: CompletedOutcome, embed: int) -> Target:
    """Return the outcome of shots as the target; `embed` is the text width of E_tau."""

    def score(log_p: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        likely = log_p.gather(-1, truth[..., None])[..., 0]
        right = ((log_p[..., MADE] >= log_p[..., 1 - MADE]).long() == truth).float()  # at one half: made
        return cfg.utility[0] * likely + cfg.utility[1] * right, right

    def right_votes(neighbours: FoundEvents, rows: Tensor) -> Tensor:
        votes = [(vote(shots.made, neighbours, t) >= 0.5) == shots.made[rows] for t in cfg.scorer.temperatures]
        return torch.stack([right.float() for right in votes], dim=1)

    shape = ScorerShape(shots.context.shape[2] + 2 * embed, embed, 1, CLASSES)
    texts = torch.eye(CLASSES, embed, device=shots.context.device)
    return Target(
        shots.made.long(), texts, shape, score, cfg.scorer, SHOTS_AT_ONCE, is_logits=True, right_votes=right_votes
    )


def action_target(events: ActionEvents, cfg: CompletedActionToken) -> Target:
    """Return the text of actions as the target."""

    def score(predicted: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        flat_xE, flat_x = predicted.flatten(0, -2), truth.flatten()

        def part(at: slice) -> Tensor:
            """Return (x, 3): the cosine, whether the true text is the nearest one, whether it is among the first."""
            cosine_xV = flat_xE[at] @ events.bank.T
            true_x = cosine_xV.gather(1, flat_x[at][:, None])
            rank_x = (cosine_xV > true_x).sum(1)  # ties go to the true label
            return torch.stack([true_x[:, 0], (rank_x < 1).float(), (rank_x < TOP).float()], dim=1)

        parts = in_parts(len(flat_x), ACTIONS_AT_ONCE, part)
        terms_x3 = torch.cat([flat_xE.new_zeros(0, 3), *parts])
        utility_x = (terms_x3 * terms_x3.new_tensor(cfg.utility)).sum(1)
        return utility_x.view(truth.shape), terms_x3[:, 1].view(truth.shape)

    embed = events.bank.shape[1]
    shape = ScorerShape(events.context.shape[2] + embed, embed, 1, ends=1)
    return Target(events.labels, events.bank, shape, score, cfg.scorer, ACTIONS_AT_ONCE)


@torch.no_grad()
def event_queries(
    chain: EventChain,
    events: Events,
    rows: Tensor,
    neighbours: FoundEvents,
    target: Target,
    motion_of: Tensor | None = None,
) -> Queries:
    """Turn the events `rows`, (B,) long, and their candidates into queries of the scorer.

    `motion_of`, (N,) long: event -> the event whose head motion replaces its own (permuted candidates); None: itself.
    """
    start_BE = latents_of(chain.e_tau, events, rows, BEFORE)
    moved_BK = neighbours.event if motion_of is None else motion_of[neighbours.event]
    mids_BKE = latents_of(chain.e_tau, events, moved_BK.flatten(), DURING).view(*moved_BK.shape, -1)
    none_B2E = torch.zeros_like(start_BE)[:, None].expand(-1, 2, -1)

    def rolled_out(at: slice) -> Tensor:
        return chain.traj.roll_out(events.context[rows[at]], start_BE[at], mids_BKE[at])

    parts = in_parts(len(rows), target.at_once, rolled_out)
    none_BKP = mids_BKE.new_zeros(0, mids_BKE.shape[1], target.shape.plan)
    plans_BKP, fallback_BP = torch.cat([none_BKP, *parts]), chain.no_traj(events.context[rows], none_B2E)
    if target.is_logits:
        plans_BKP, fallback_BP = plans_BKP.log_softmax(-1), fallback_BP.log_softmax(-1)
    seen_BD = chain.traj.backbone.standardise(events.context[rows].mean(1))
    truth_B = target.truth[rows]
    utility_BK, right_BK = target.score(plans_BKP, truth_B[:, None].expand(neighbours.event.shape))
    fallback_utility_B, fallback_right_B = target.score(fallback_BP, truth_B)
    is_there_BK1 = neighbours.valid[..., None]
    place_BK1 = 1 + torch.arange(neighbours.event.numel(), device=rows.device).view_as(neighbours.event)[..., None]
    return Queries(
        latents=torch.cat([torch.zeros_like(start_BE[:1]), mids_BKE.flatten(0, 1)]),
        texts=torch.cat([torch.zeros_like(target.texts[:1]), target.texts]),
        query=torch.cat([seen_BD, start_BE, *[torch.zeros_like(start_BE)] * (target.shape.ends - 1)], dim=1),
        fallback=fallback_BP[:, None].half(),
        plans=plans_BKP[:, :, None].half(),
        middle=place_BK1 * is_there_BK1,
        label=(1 + target.truth[neighbours.event][..., None]) * is_there_BK1,
        valid=neighbours.valid,
        n_mids=torch.ones_like(rows),
        take=events.take[rows],
        utility=utility_BK.masked_fill(~neighbours.valid, -torch.inf),
        fallback_utility=fallback_utility_B,
        m1=right_BK.masked_fill(~neighbours.valid, 0.0),
        fallback_m1=fallback_right_B,
    )


def fit_event_scorer(
    final: EventChain,
    training: Sequence[tuple[EventChain, Tensor]],
    events: Events,
    dev: Tensor,
    target: Target,
    seed: int,
    runtime: Runtime,
) -> FittedScorer:
    """Fit the scorer on the events (n,), long, of training takes that a chain has not seen, for each chain; dev events
    (m,), long, predicted by the final chain, choose gate and temperature."""
    ranking = target.ranking

    def queries_of(chain: EventChain, rows: Tensor) -> Queries:
        return event_queries(chain, events, rows, find_events(chain, events, rows, ranking.candidates), target)

    fitted = [queries_of(chain, rows) for chain, rows in training if len(rows)]
    right_mT = torch.zeros(len(dev), len(ranking.temperatures))
    if target.right_votes is not None:
        right_mT = target.right_votes(find_events(final, events, dev, ranking.candidates), dev)
    of_dev = queries_of(final, dev) if len(dev) else None
    collected = Collected(joined(fitted), of_dev, right_mT, right_mT, target.shape)
    return train_scorer(collected, ranking, None, seed, runtime)


class EventAnswers(NamedTuple):
    """Answers of one row to n events."""

    prediction: Tensor
    """(n, ...) float32: the probability that a shot is made, (n,), or the token of an action, (n, E)."""
    gate: Tensor | None = None
    """(n,) float32."""
    opened: Tensor | None = None
    """(n,) bool."""
    event: Tensor | None = None
    """(n,) long: the event whose head motion was used; -1 for none."""
    rankings: Mapping[ActionPart, Codes] = {}
    """Part -> (n, K) ranked classes of a probe that has read the token."""


@torch.no_grad()
def scored(
    chain: EventChain,
    scorer: GateThenRankScorer,
    decision: ScorerDecision,
    events: Events,
    rows: Tensor,
    target: Target,
    motion_of: Tensor | None = None,
) -> EventAnswers:
    """Answer the events `rows` (n,), long, with the scorer; `motion_of` as in `event_queries`.

    The prediction (n, P) is that under the candidate that it ranks first if its gate opens, else that of no_traj.
    """
    neighbours = find_events(chain, events, rows, target.ranking.candidates)
    queries = event_queries(chain, events, rows, neighbours, target, motion_of)
    gate_n, choice_n = decide(scorer, queries, target.ranking.train.batch)
    opened_n = gate_n >= decision.threshold
    moved_nK = neighbours.event if motion_of is None else motion_of[neighbours.event]
    each = torch.arange(len(rows), device=rows.device)
    chosen_nP = queries.plans[each, choice_n, 0]
    prediction_nP = torch.where(opened_n[:, None], chosen_nP, queries.fallback[:, 0]).float()
    return EventAnswers(prediction_nP, gate_n, opened_n, moved_nK[each, choice_n].where(opened_n, -1))
