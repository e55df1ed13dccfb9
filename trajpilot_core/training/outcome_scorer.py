"""The scorer of shots: queries from takes that their chain has not seen, with a utility of outcomes (D 28, D 30, D 43).

The network, its losses and its choices on dev are those of planning (training/scorer.py), with one middle step, the
shot, and two classes. Shapes: B queries, K candidates, E text width, Q query width, T temperatures.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from schemas.outcome import OutcomeConfig
from trajpilot_core.data.shots import Shots
from trajpilot_core.engine.progress import Progress
from trajpilot_core.models.outcome import MADE
from trajpilot_core.models.scorer import ScorerShape
from trajpilot_core.retrieval.events import FoundShots, OutcomeChain, find_shots, latents_of, vote
from trajpilot_core.training.scorer import Queries, in_blocks, joined
from trajpilot_core.training.scorer_fit import FittedScorer, train_scorer
from trajpilot_core.training.scorer_queries import Collected, DevSet

CLASSES = 2
MOST_ROLLED = 64
"""Queries whose candidates are rolled out in one call."""


def shape_of(chain: OutcomeChain, shots: Shots) -> ScorerShape:
    """Return the scorer's widths: a query has the features before the shot and two latents, one of them zero."""
    embed = chain.e_tau.text_width
    return ScorerShape(shots.context.shape[2] + 2 * embed, embed, 1, CLASSES)


@torch.no_grad()
def shot_queries(
    chain: OutcomeChain,
    shots: Shots,
    rows: Tensor,
    found: FoundShots,
    cfg: OutcomeConfig,
    motion_of: Tensor | None = None,
) -> Queries:
    """Turn shots and their candidates into queries of the scorer.

    Args:
        chain: rolls candidates out.
        shots: all shots.
        rows: long, of shape (B,): the queries.
        found: their candidates.
        cfg: weights of the utility.
        motion_of: (N,) long, shot -> the shot whose head motion replaces its own (permuted candidates); None: itself.
    """
    start_BE = latents_of(chain, shots, rows, 0)
    moved_BK = found.shot if motion_of is None else motion_of[found.shot]
    mids_BKE = latents_of(chain, shots, moved_BK.flatten(), 1).view(*moved_BK.shape, -1)
    none_B2E = torch.zeros_like(start_BE)[:, None].expand(-1, 2, -1)
    fallback_B2 = chain.no_traj(shots.context[rows], none_B2E).log_softmax(-1)
    plans_BK2 = rolled_out(chain, shots, rows, start_BE, mids_BKE).log_softmax(-1)
    seen_BD = chain.traj.backbone.standardise(shots.context[rows].mean(1))
    is_there_BK1 = found.valid[..., None]
    truth_B = shots.made[rows].long()
    outcome_BK1 = 1 + shots.made[found.shot].long()[..., None]
    place_BK1 = 1 + torch.arange(found.shot.numel(), device=rows.device).view_as(found.shot)[..., None]
    return Queries(
        latents=torch.cat([torch.zeros_like(start_BE[:1]), mids_BKE.flatten(0, 1)]),
        texts=outcome_texts(start_BE),
        query=torch.cat([seen_BD, start_BE, torch.zeros_like(start_BE)], dim=1),
        fallback=fallback_B2[:, None].half(),
        plans=plans_BK2[:, :, None].half(),
        middle=place_BK1 * is_there_BK1,
        label=outcome_BK1 * is_there_BK1,
        valid=found.valid,
        n_mids=torch.ones_like(rows),
        take=shots.take[rows],
        utility=utility_of(plans_BK2, truth_B[:, None], cfg).masked_fill(~found.valid, -torch.inf),
        fallback_utility=utility_of(fallback_B2, truth_B, cfg),
        m1=is_right(plans_BK2, truth_B[:, None]).masked_fill(~found.valid, 0.0),
        fallback_m1=is_right(fallback_B2, truth_B),
    )


def rolled_out(chain: OutcomeChain, shots: Shots, rows: Tensor, start_BE: Tensor, mids_BKE: Tensor) -> Tensor:
    """Return (B, K, 2) logits of the queries under their candidates' head motion, a few queries at a time."""

    def part(at: Tensor) -> Tensor:
        return chain.traj.roll_out(shots.context[rows[at]], start_BE[at], mids_BKE[at])

    return in_blocks(rows, MOST_ROLLED, part, mids_BKE.new_zeros(0, mids_BKE.shape[1], CLASSES))


def outcome_texts(like_BE: Tensor) -> Tensor:
    """Return (3, E): the label vectors of no candidate, missed and made."""
    return torch.cat([torch.zeros_like(like_BE[:1]), torch.eye(CLASSES, like_BE.shape[1]).to(like_BE)])


def utility_of(log_p: Tensor, truth: Tensor, cfg: OutcomeConfig) -> Tensor:
    """Return (...) utilities of log probabilities (..., 2), given long truths (...)."""
    known = truth.expand(log_p.shape[:-1])[..., None]
    likely = log_p.gather(-1, known)[..., 0]
    return cfg.utility[0] * likely + cfg.utility[1] * is_right(log_p, truth)


def is_right(log_p: Tensor, truth: Tensor) -> Tensor:
    """Return float, in the common shape: 1 where the likelier outcome (at one half: made) is the true one."""
    predicted = (log_p[..., MADE] >= log_p[..., 1 - MADE]).long()
    return (predicted == truth).float()


def fit_shot_scorer(
    final: OutcomeChain,
    training: Sequence[tuple[OutcomeChain, Tensor]],
    shots: Shots,
    dev: Tensor,
    cfg: OutcomeConfig,
    seed: int,
    scratch: Path,
    device: str,
    progress: Progress,
    checkpoint_s: float,
) -> FittedScorer:
    """Fit the scorer on shots from takes that their chain has not seen; dev chooses gate and temperature.

    Args:
        final: the chain that predicts at test.
        training: chains, each with the shots (n,), long, of the training takes that it has not seen.
        shots: all shots.
        dev: (m,) long, dev shots, predicted by the final chain.
        cfg: settings with resolved precision.
        seed: seed of weights, dropout and batches.
        scratch: parent of the checkpoint's folder.
        device: device of the scorer.
        progress: called with (done, total, what).
        checkpoint_s: seconds between checkpoints; 0: one after every epoch.
    """
    k = cfg.ranking.candidates
    fitted = [
        shot_queries(chain, shots, rows, find_shots(chain, shots, rows, k), cfg)
        for chain, rows in training
        if len(rows)
    ]
    found = find_shots(final, shots, dev, k)
    queries = shot_queries(final, shots, dev, found, cfg) if len(dev) else None
    votes_NT = [((vote(shots, found, t) >= 0.5) == shots.made[dev]).float() for t in cfg.ranking.temperatures]
    right_NT = torch.stack(votes_NT, dim=1)
    collected = Collected(joined(fitted), DevSet(queries, right_NT, right_NT), shape_of(final, shots))
    return train_scorer(collected, cfg.ranking, None, seed, scratch, device, progress, checkpoint_s)


def permuted(bank: Tensor, n_shots: int, seed: int) -> Tensor:
    """Return long of shape (N,): each shot of the bank -> another one, by a random cycle; other shots -> themselves."""
    order = bank[torch.randperm(len(bank), generator=torch.Generator().manual_seed(seed)).to(bank.device)]
    motion_of = torch.arange(n_shots, device=bank.device)
    motion_of[order] = order.roll(1)
    return motion_of
