"""Training shots that look and move alike before the shot: whose head motion and outcome are asked of (D 33, D 43).

Shapes: N shots, n bank, B queries, K candidates, E text width, D feature width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.data.shots import Shots
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.models.outcome import OutcomePredictor

QUERIES_AT_ONCE = 1024
"""Whose cosines with the whole bank are held."""


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


class FoundShots(NamedTuple):
    """Candidates of B queries."""

    shot: Tensor
    """(B, K) long, their numbers; 0 where there is none."""
    cosine: Tensor
    """(B, K) float32, descending, -inf where there is none."""

    @property
    def valid(self) -> Tensor:
        """(B, K) bool."""
        return self.cosine > -torch.inf


def latents_of(chain: OutcomeChain, shots: Shots, rows: Tensor, part: int) -> Tensor:
    """Return (B, E) embeddings of the head motion of shots `rows`: before the shot (part 0) or during it (1)."""
    return trajectory_latents(chain.e_tau, shots.motions[rows, part])


def keys_of(chain: OutcomeChain, shots: Shots, rows: Tensor) -> Tensor:
    """Return unit vectors of shape (B, D + E): what is seen before the shots and head motion there, equally weighed.

    The Goal is masked, so only Start is asked for.
    """
    seen_BD = chain.traj.backbone.standardise(shots.context[rows].mean(1))
    return F.normalize(torch.cat([F.normalize(seen_BD, dim=-1), latents_of(chain, shots, rows, 0)], dim=-1), dim=-1)


def nearest(
    bank: Tensor, key_nW: Tensor, keys: Callable[[Tensor], Tensor], take: Tensor, rows: Tensor, candidates: int
) -> FoundShots:
    """Find the most similar events of a bank, none of the query's own take (D 27); ties to the smaller number.

    Args:
        bank: (n,) long, with keys `key_nW`.
        keys: numbers of events, long (b,), -> their keys (b, W).
        take: (N,) long, of every event.
        rows: (B,) long, the queries.
        candidates: K; padded where the bank is smaller.
    """
    found, cosines = [], []
    for part in torch.split(rows, QUERIES_AT_ONCE):
        own_Bn = take[part][:, None] == take[bank][None]
        cosine_Bn = (keys(part) @ key_nW.T).masked_fill(own_Bn, -torch.inf)
        ranked, order = cosine_Bn.sort(dim=1, descending=True, stable=True)
        cosines.append(ranked[:, :candidates])
        found.append(bank[order[:, :candidates]])
    event_BK, cosine_BK = torch.cat(found), torch.cat(cosines)
    missing = candidates - cosine_BK.shape[1]
    cosine_BK = F.pad(cosine_BK, (0, missing), value=-torch.inf)
    return FoundShots(F.pad(event_BK, (0, missing)).where(cosine_BK > -torch.inf, 0), cosine_BK)


def find_shots(chain: OutcomeChain, shots: Shots, rows: Tensor, candidates: int) -> FoundShots:
    """Find the K most similar training shots of the queries, long of shape (B,)."""
    keys = partial(keys_of, chain, shots)
    return nearest(chain.bank, keys(chain.bank), keys, shots.take, rows, candidates)


def vote(shots: Shots, found: FoundShots, temperature: float) -> Tensor:
    """Return shares of made, shape (B,), among candidates weighed by softmax(cos / T); one half where there is none."""
    weights_BK = (found.cosine / temperature).softmax(dim=1).nan_to_num(0.0)
    has_any = found.valid.any(1)
    return torch.where(has_any, (weights_BK * shots.made[found.shot]).sum(1), 0.5)
