"""Training events (shots, actions) that are similar before the event: their motion and outcome are used (D 33, D 43).

Shapes: N events, n bank, B queries, K candidates, E text width, D feature width.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.data.events import BEFORE, Events
from trajpilot_core.models.events import ActionPredictor, OutcomePredictor
from trajpilot_core.models.predictor import TrajectoryEncoder

EventPredictor: TypeAlias = OutcomePredictor | ActionPredictor
QUERIES_AT_ONCE = 1024
"""Queries whose cosines with the whole bank are in memory together."""


@dataclass(frozen=True)
class EventChain:
    """The frozen models of one chain and seed, and its bank."""

    e_tau: TrajectoryEncoder
    traj: EventPredictor
    no_traj: EventPredictor
    endpoint_traj: EventPredictor | None
    """Only the final chain of shots has it."""
    bank: Tensor
    """(n,) long: the fitted events that have head motion, which is what is retrieved."""


class FoundEvents(NamedTuple):
    """Candidates of B queries."""

    event: Tensor
    """(B, K) long; 0 where there is none."""
    cosine: Tensor
    """(B, K) float32, descending, -inf where there is none."""

    @property
    def valid(self) -> Tensor:
        """(B, K) bool."""
        return self.cosine > -torch.inf


def latents_of(e_tau: TrajectoryEncoder, events: Events, rows: Tensor, part: int) -> Tensor:
    """Return (B, E) embeddings of the head motion BEFORE or DURING events `rows` (B,), long; zeros without motion."""
    return trajectory_latents(e_tau, events.motions[rows, part]) * events.has_motion[rows, part][:, None]


def keys_of(chain: EventChain, events: Events, rows: Tensor) -> Tensor:
    """Return (B, D + E) unit vectors: features and head motion before the events `rows` (B,), long, equally weighted.

    The Goal is masked, so only Start is part of the key.
    """
    seen_BD = chain.traj.backbone.standardise(events.context[rows].mean(1))
    latents_BE = latents_of(chain.e_tau, events, rows, BEFORE)
    return F.normalize(torch.cat([F.normalize(seen_BD, dim=-1), latents_BE], dim=-1), dim=-1)


@torch.no_grad()
def find_events(chain: EventChain, events: Events, rows: Tensor, candidates: int) -> FoundEvents:
    """Find the K events of the bank that are most similar to events `rows` (B,), long, none of their own takes (D 27).

    Ties go to the smaller number; results are padded where the bank is smaller.
    """
    nearest, cosines, key_nW = [], [], keys_of(chain, events, chain.bank)
    for part in torch.split(rows, QUERIES_AT_ONCE):
        same_take_Bn = events.take[part][:, None] == events.take[chain.bank][None]
        cosine_Bn = (keys_of(chain, events, part) @ key_nW.T).masked_fill(same_take_Bn, -torch.inf)
        ranked, order = cosine_Bn.sort(dim=1, descending=True, stable=True)
        cosines.append(ranked[:, :candidates])
        nearest.append(chain.bank[order[:, :candidates]])
    event_BK, cosine_BK = torch.cat(nearest), torch.cat(cosines)
    missing = candidates - cosine_BK.shape[1]
    cosine_BK = F.pad(cosine_BK, (0, missing), value=-torch.inf)
    return FoundEvents(F.pad(event_BK, (0, missing)).where(cosine_BK > -torch.inf, 0), cosine_BK)


def vote(share: Tensor, neighbours: FoundEvents, temperature: float) -> Tensor:
    """Return the mean of `share` (N,) over the candidates, weighted by softmax(cos / T), (B,); one half without any."""
    weights_BK = (neighbours.cosine / temperature).softmax(dim=1).nan_to_num(0.0)
    return torch.where(neighbours.valid.any(1), (weights_BK * share[neighbours.event]).sum(1), 0.5)
