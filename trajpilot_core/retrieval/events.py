"""Training events (shots, actions) that are similar before the event: their motion and outcome are used (D 33, D 43).

Shapes: N events, n bank, B queries, K candidates, E text width, D feature width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.data.action_events import ACTION, ActionEvents
from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.data.shots import Shots
from trajpilot_core.models.action_token import ActionPredictor
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.models.outcome import OutcomePredictor

QUERIES_AT_ONCE = 1024
"""Queries whose cosines with the whole bank are in memory together."""


@dataclass(frozen=True)
class OutcomeChain:
    """The frozen models of one chain and seed, and the shots that it was fitted on, which are its bank."""

    e_tau: TrajectoryEncoder
    traj: OutcomePredictor
    no_traj: OutcomePredictor
    endpoint_traj: OutcomePredictor | None
    """Only the final chain has it."""
    bank: Tensor
    """(n,) long."""


@dataclass(frozen=True)
class ActionChain:
    """The frozen models of one chain and seed, and the clips that it was fitted on."""

    e_tau: TrajectoryEncoder
    traj: ActionPredictor
    no_traj: ActionPredictor
    fit: Tensor
    """(n,) long."""

    def bank(self, events: ActionEvents) -> Tensor:
        """Return (n,) long: the fitted clips whose action has head motion, which is what is retrieved."""
        return self.fit[events.has_motion[self.fit, ACTION]]


class FoundShots(NamedTuple):
    """Candidates of B queries."""

    shot: Tensor
    """(B, K) long, numbers of events; 0 where there is none."""
    cosine: Tensor
    """(B, K) float32, descending, -inf where there is none."""

    @property
    def valid(self) -> Tensor:
        """(B, K) bool."""
        return self.cosine > -torch.inf


def latents_of(chain: OutcomeChain | ActionChain, events: Shots | ActionEvents, rows: Tensor, part: int) -> Tensor:
    """Return (B, E) embeddings of head motion, zeros where there is none.

    Args:
        rows: (B,) long, events.
        part: 0: the motion before the event; 1: the motion during it.
    """
    latents_BE = trajectory_latents(chain.e_tau, events.motions[rows, part])
    return latents_BE * events.has_motion[rows, part][:, None] if isinstance(events, ActionEvents) else latents_BE


def keys_of(chain: OutcomeChain | ActionChain, events: Shots | ActionEvents, rows: Tensor) -> Tensor:
    """Return (B, D + E) unit vectors: features and head motion before the events `rows` (B,), long, equally weighted.

    The Goal is masked, so only Start is part of the key.
    """
    seen_BD = chain.traj.backbone.standardise(events.context[rows].mean(1))
    return F.normalize(torch.cat([F.normalize(seen_BD, dim=-1), latents_of(chain, events, rows, 0)], dim=-1), dim=-1)


def nearest(
    bank: Tensor, key_nW: Tensor, keys: Callable[[Tensor], Tensor], take: Tensor, rows: Tensor, candidates: int
) -> FoundShots:
    """Find the most similar events of a bank, none of the query's own take (D 27); ties go to the smaller number.

    Args:
        bank: (n,) long, with keys `key_nW`.
        keys: numbers of events, long (b,), -> their keys (b, W).
        take: (N,) long, of every event.
        rows: (B,) long, the queries.
        candidates: K; padded where the bank is smaller.
    """
    events, cosines = [], []
    for part in torch.split(rows, QUERIES_AT_ONCE):
        same_take_Bn = take[part][:, None] == take[bank][None]
        cosine_Bn = (keys(part) @ key_nW.T).masked_fill(same_take_Bn, -torch.inf)
        ranked, order = cosine_Bn.sort(dim=1, descending=True, stable=True)
        cosines.append(ranked[:, :candidates])
        events.append(bank[order[:, :candidates]])
    event_BK, cosine_BK = torch.cat(events), torch.cat(cosines)
    missing = candidates - cosine_BK.shape[1]
    cosine_BK = F.pad(cosine_BK, (0, missing), value=-torch.inf)
    return FoundShots(F.pad(event_BK, (0, missing)).where(cosine_BK > -torch.inf, 0), cosine_BK)


def find_shots(chain: OutcomeChain, shots: Shots, rows: Tensor, candidates: int) -> FoundShots:
    """Find the K most similar training shots of the queries, long of shape (B,)."""
    keys = partial(keys_of, chain, shots)
    return nearest(chain.bank, keys(chain.bank), keys, shots.take, rows, candidates)


@torch.no_grad()
def find_actions(chain: ActionChain, events: ActionEvents, rows: Tensor, candidates: int) -> FoundShots:
    """Find the K most similar clips of the bank for the queries, long of shape (B,)."""
    bank, keys = chain.bank(events), partial(keys_of, chain, events)
    return nearest(bank, keys(bank), keys, events.take, rows, candidates)


def vote(shots: Shots, found: FoundShots, temperature: float) -> Tensor:
    """Return the share of made candidates, shape (B,), weighted by softmax(cos / T); one half where there is none."""
    weights_BK = (found.cosine / temperature).softmax(dim=1).nan_to_num(0.0)
    has_any = found.valid.any(1)
    return torch.where(has_any, (weights_BK * shots.made[found.shot]).sum(1), 0.5)
