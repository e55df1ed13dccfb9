"""The scorer of actions: queries from takes that their chain has not seen, with a utility of the predicted action.

The network, its losses and its choices on dev are those of planning (training/scorer.py), with one middle step, the
action, and no goal (D 28, D 30, D 43). Shapes: B queries, K candidates, E text width, V labels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.action_token import ActionTokenConfig
from trajpilot_core.data.action_events import ACTION, BEFORE, ActionEvents
from trajpilot_core.engine.progress import Progress
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.retrieval.events import ActionChain, find_actions, latents_of
from trajpilot_core.training.scorer import Queries, decide, in_blocks, joined
from trajpilot_core.training.scorer_fit import FittedScorer, ScorerDecision, train_scorer
from trajpilot_core.training.scorer_queries import Collected, DevSet

MOST_ROLLED = 256
"""Queries whose candidates are rolled out and scored in one call."""
TOP = 5
"""Source: paper, R@5."""


class ActionUtility(NamedTuple):
    """The utility of predictions; both tensors have the shape of the predictions."""

    utility: Tensor
    first: Tensor
    """float32: 1 where the action's text is the nearest one."""


def shape_of(events: ActionEvents) -> ScorerShape:
    """Return the scorer's widths: the query consists of the features and the head motion before the action."""
    embed = events.bank.shape[1]
    return ScorerShape(events.context.shape[2] + embed, embed, 1, ends=1)


@torch.no_grad()
def action_queries(chain: ActionChain, events: ActionEvents, rows: Tensor, cfg: ActionTokenConfig) -> Queries:
    """Turn clips and their candidates into queries of the scorer.

    Args:
        chain: retrieves and rolls out.
        events: all events.
        rows: (B,) long, the queries.
        cfg: number of candidates, weights of the utility.
    """
    candidates = find_actions(chain, events, rows, cfg.ranking.candidates)
    start_BE = latents_of(chain, events, rows, BEFORE)
    mids_BKE = latents_of(chain, events, candidates.shot.flatten(), ACTION).view(*candidates.shot.shape, -1)
    fallback_BE = chain.no_traj(events.context[rows], torch.zeros_like(start_BE)[:, None].expand(-1, 2, -1))
    plans_BKE = rolled_out(chain, events, rows, start_BE, mids_BKE)
    seen_BD = chain.traj.backbone.standardise(events.context[rows].mean(1))
    is_there_BK1, truth_B = candidates.valid[..., None], events.labels[rows]
    place_BK1 = 1 + torch.arange(candidates.shot.numel(), device=rows.device).view_as(candidates.shot)[..., None]
    label_BK1 = 1 + events.labels[candidates.shot][..., None]
    rolled = utility_of(plans_BKE, truth_B[:, None].expand(candidates.shot.shape), events.bank, cfg)
    fallback = utility_of(fallback_BE, truth_B, events.bank, cfg)
    return Queries(
        latents=torch.cat([torch.zeros_like(start_BE[:1]), mids_BKE.flatten(0, 1)]),
        texts=torch.cat([torch.zeros_like(events.bank[:1]), events.bank]),
        query=torch.cat([seen_BD, start_BE], dim=1),
        fallback=fallback_BE[:, None].half(),
        plans=plans_BKE[:, :, None].half(),
        middle=place_BK1 * is_there_BK1,
        label=label_BK1 * is_there_BK1,
        valid=candidates.valid,
        n_mids=torch.ones_like(rows),
        take=events.take[rows],
        utility=rolled.utility.masked_fill(~candidates.valid, -torch.inf),
        fallback_utility=fallback.utility,
        m1=rolled.first.masked_fill(~candidates.valid, 0.0),
        fallback_m1=fallback.first,
    )


def rolled_out(chain: ActionChain, events: ActionEvents, rows: Tensor, start_BE: Tensor, mids_BKE: Tensor) -> Tensor:
    """Return (B, K, E) predictions of the queries under their candidates' head motion, a few queries at a time."""

    def part(at: Tensor) -> Tensor:
        return chain.traj.roll_out(events.context[rows[at]], start_BE[at], mids_BKE[at])

    return in_blocks(rows, MOST_ROLLED, part, mids_BKE[:0])


def utility_of(predicted_xE: Tensor, truth_x: Tensor, bank_VE: Tensor, cfg: ActionTokenConfig) -> ActionUtility:
    """Return the utility of predicted embeddings (..., E) for true labels (...), a few at a time.

    Ties of the cosine go to the true label.
    """
    flat_xE, flat_x = predicted_xE.flatten(0, -2), truth_x.flatten()

    def part(at: Tensor) -> Tensor:
        cosine_xV = flat_xE[at] @ bank_VE.T
        true_x = cosine_xV.gather(1, flat_x[at][:, None])
        rank_x = (cosine_xV > true_x).sum(1)
        return torch.stack([true_x[:, 0], (rank_x < 1).float(), (rank_x < TOP).float()], dim=1)

    terms_x3 = in_blocks(flat_x, MOST_ROLLED, part, flat_xE.new_zeros(0, 3))
    utility_x = (terms_x3 * terms_x3.new_tensor(cfg.utility)).sum(1)
    return ActionUtility(utility_x.view(truth_x.shape), terms_x3[:, 1].view(truth_x.shape))


def fit_action_scorer(
    final: ActionChain,
    training: Sequence[tuple[ActionChain, Tensor]],
    events: ActionEvents,
    dev: Tensor,
    cfg: ActionTokenConfig,
    seed: int,
    scratch: Path,
    device: str,
    progress: Progress,
    checkpoint_s: float,
) -> FittedScorer:
    """Fit the scorer on clips from takes that their chain has not seen; dev chooses the gate's threshold.

    Args:
        final: the chain that predicts at test.
        training: chains, each with the clips (n,), long, of the training takes that it has not seen.
        events: all events.
        dev: (m,) long, dev clips, predicted by the final chain.
        cfg: settings with resolved precision.
        seed: seed of weights, dropout and batches.
        scratch: parent of the checkpoint's folder.
        device: device of the scorer.
        progress: called with (done, total, what).
        checkpoint_s: seconds between checkpoints; 0: one after every epoch.
    """
    fitted = [action_queries(chain, events, rows, cfg) for chain, rows in training if len(rows)]
    queries = action_queries(final, events, dev, cfg) if len(dev) else None
    no_votes_NT = torch.zeros(len(dev), len(cfg.ranking.temperatures))
    collected = Collected(joined(fitted), DevSet(queries, no_votes_NT, no_votes_NT), shape_of(events))
    return train_scorer(collected, cfg.ranking, None, seed, scratch, device, progress, checkpoint_s)


@torch.no_grad()
def scored(
    chain: ActionChain,
    scorer: GateThenRankScorer,
    decision: ScorerDecision,
    events: ActionEvents,
    rows: Tensor,
    cfg: ActionTokenConfig,
) -> tuple[Tensor, Tensor]:
    """Return the scorer's predictions (B, E), and (B,) whether its gate opened.

    If the gate opens, this is the prediction under the candidate that it ranks first, else that of no_traj.

    Args:
        chain: retrieves and rolls out.
        scorer: in evaluation mode.
        decision: threshold of its gate.
        events: all events.
        rows: (B,) long.
        cfg: number of candidates.
    """
    queries = action_queries(chain, events, rows, cfg)
    gate_B, choice_B = decide(scorer, queries, cfg.ranking.train.batch)
    opened_B = gate_B >= decision.threshold
    chosen_BE = queries.plans[torch.arange(len(rows), device=rows.device), choice_B, 0]
    return torch.where(opened_B[:, None], chosen_BE, queries.fallback[:, 0]).float(), opened_B
