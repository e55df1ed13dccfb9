"""Training actions before which things look and heads move alike: whose head motion is asked of (D 33, D 43).

Shapes: N clips, n bank, B queries, K candidates, E text width, D feature width.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.data.action_events import ACTION, BEFORE, ActionEvents
from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.models.action_token import ActionPredictor
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.retrieval.shots import FoundShots, nearest


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


def latents_of(chain: ActionChain, events: ActionEvents, rows: Tensor, part: int) -> Tensor:
    """Return (B, E) embeddings of the head motion before the actions `rows` or during them; zeros where there is none.

    Args:
        rows: (B,) long.
    """
    found_BE = trajectory_latents(chain.e_tau, events.motions[rows, part])
    return found_BE * events.has_motion[rows, part][:, None]


def keys_of(chain: ActionChain, events: ActionEvents, rows: Tensor) -> Tensor:
    """Return (B, D + E) unit vectors: what is seen before the actions, and the head motion then, equally weighed."""
    seen_BD = chain.traj.backbone.standardise(events.context[rows].mean(1))
    before_BE = latents_of(chain, events, rows, BEFORE)
    return F.normalize(torch.cat([F.normalize(seen_BD, dim=-1), before_BE], dim=-1), dim=-1)


@torch.no_grad()
def find_actions(chain: ActionChain, events: ActionEvents, rows: Tensor, candidates: int) -> FoundShots:
    """Find the K most similar clips of the bank for the queries, long of shape (B,)."""
    bank, keys = chain.bank(events), partial(keys_of, chain, events)
    return nearest(bank, keys(bank), keys, events.take, rows, candidates)
