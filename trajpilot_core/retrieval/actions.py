"""Training actions before which things look and heads move alike: whose head motion is asked of (D 33, D 43).

Shapes: N clips, n bank, B queries, K candidates, E text width, D feature width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.data.action_events import ACTION, BEFORE, ActionEvents
from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.models.action_token import ActionPredictor
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.retrieval.shots import FoundShots

QUERIES_AT_ONCE = 1024
"""Whose cosines with the whole bank are held."""


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
    """Find the most similar clips of the bank, none of the query's own take (D 27); ties to the smaller number.

    Args:
        rows: (B,) long, the queries.
        candidates: K; padded where the bank is smaller.
    """
    bank = chain.bank(events)
    keys_nW = keys_of(chain, events, bank)
    clips, cosines = [], []
    for part in torch.split(rows, QUERIES_AT_ONCE):
        cosine_Bn = keys_of(chain, events, part) @ keys_nW.T
        own_Bn = events.take[part][:, None] == events.take[bank][None]
        ranked, order = cosine_Bn.masked_fill(own_Bn, -torch.inf).sort(dim=1, descending=True, stable=True)
        cosines.append(ranked[:, :candidates])
        clips.append(bank[order[:, :candidates]])
    cosine_BK, clip_BK = torch.cat(cosines), torch.cat(clips)
    missing = candidates - cosine_BK.shape[1]
    cosine_BK = F.pad(cosine_BK, (0, missing), value=-torch.inf)
    return FoundShots(F.pad(clip_BK, (0, missing)).where(cosine_BK > -torch.inf, 0), cosine_BK)
