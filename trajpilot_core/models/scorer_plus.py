"""Scorer+: what the training takes know, weighed by the query, as one model of the query's label sequence.

Source: docs/decisions/scorer-plus.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from schemas.training import ScorerPlusConfig
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.role_chain import (
    TINY,
    RoleChain,
    RoleMoves,
    Sparse,
    best_middles,
    coupling,
    kept_chain,
    labels_of,
    marginals,
    role_kernel,
    role_moves,
    sparse,
    with_ends,
)

ENDS, MIDDLES = 0, 1
EXPERTS = 3
LARGEST_LOG_ODDS = 40.0
"""Log odds of labels and takes are cut here: beyond, sums of odds or their gradients would overflow."""


@dataclass(frozen=True)
class TrainingStatistics:
    """What the training takes of one chain of models know, in closed form."""

    bank: Tensor
    """(V, E) label embeddings."""
    counts: Tensor
    """(T, V) float32, how often each take holds each label."""
    follows: Sparse
    """(V, V) float32, how often the column's label follows the row's."""
    look: Tensor
    """(V, V) squared distances of the labels' looks."""
    context: Tensor
    """(V, V) likeness of the labels' contexts."""
    clash: Tensor
    """(V, T) product of the label's and the take's effects on head motion."""

    @cached_property
    def held(self) -> Sparse:
        """Return `counts`: a take holds few of the labels."""
        return sparse(self.counts)


class PlusInputs(NamedTuple):
    """What Scorer+ reads of B queries of one horizon H."""

    plans: Tensor
    """(B, X, H, E) what each expert predicts, unit norm: no_traj, the mean of the candidates' plans, and endpoint_traj
    where the chain has it (then X is 3, else 2)."""
    recognised: Tensor
    """(B, 2, V) log likelihood ratios of the labels of Start and Goal, from both clips and motions, the best 0."""
    manner: Tensor
    """(B, T) log likelihood ratios of the takes, from the motion of both ends; -inf for takes not to be seen."""


class Roles(NamedTuple):
    """What the weights make of the training takes, the same for all queries of a chain."""

    statistics: TrainingStatistics
    kernel: Tensor
    """(V, V), rows sum to 1: which labels can stand in the place of which."""
    moves: Tensor | RoleMoves
    """(V, V), see `RoleChain`."""
    preference: Tensor
    """(T, V) how much each take prefers each label."""
    common: Tensor
    """(V,) the preference of all takes alike, which is added."""


class AnsweringRoles(NamedTuple):
    """Roles of weights that no longer change, with what only answers need: V^3 once for all queries of a chain."""

    roles: Roles
    """Its `moves` are whole."""
    share: Tensor
    """(T, V) each take's preference of a label within its role."""


class SequenceReading(NamedTuple):
    """A query's model of its sequence, and what it is made of."""

    chain: RoleChain
    weight: Tensor
    """(B, T) weights of the takes, rows sum to 1 (or 0 where none may be seen)."""


class ScorerPlus(nn.Module):
    """Weigh training takes by how the query moves and what its ends may be; infer its sequence on their preferences.

    Every parameter is the logarithm of one positive number, so that a few thousand queries determine them.

    Shapes: B queries, X experts, H steps, E text space, V labels, T training takes.
    """

    def __init__(self, config: ScorerPlusConfig) -> None:
        super().__init__()
        self.config = config
        self.plan = nn.Parameter(torch.tensor([[config.plan_ends, config.plan_middles]] * EXPERTS).log())
        self.recognition, self.manner = _weight(config.recognition), _weight(config.manner)
        self.holds, self.clash = _weight(config.holds), _weight(config.clash)
        self.look, self.context = _weight(config.look), _weight(config.context)
        self.common, self.prior = _weight(config.common), _weight(config.prior)
        self.kinship, self.own = _weight(config.kinship), _weight(config.own)
        self.jump = _weight(config.jump)

    def roles(self, statistics: TrainingStatistics) -> Roles:
        """Return what the weights make of the training takes; no product of three V x V matrices."""
        kernel_VV = role_kernel(statistics.look, statistics.context, self.look.exp(), self.context.exp())
        common_V = self.common.exp() * statistics.counts.mean(0) + 1e-6
        moves = role_moves(statistics.follows, kernel_VV)
        return Roles(statistics, kernel_VV, moves, self._preferences(statistics, kernel_VV), common_V)

    def answering(self, statistics: TrainingStatistics, moves: Tensor | RoleMoves | None = None) -> AnsweringRoles:
        """Return what `answer` reads: to be computed once for all queries of a chain.

        Args:
            statistics: of the chain.
            moves: where they are known from a Scorer+ with the same roles: whole moves cost V^3.
        """
        roles = self.roles(statistics)
        roles = roles if moves is None else roles._replace(moves=moves)
        moves_VV = roles.moves.dense() if isinstance(roles.moves, RoleMoves) else roles.moves
        share_TV = _shares(roles.preference + roles.common, roles.kernel)
        return AnsweringRoles(roles._replace(moves=moves_VV), share_TV)

    def read(self, inputs: PlusInputs, roles: Roles) -> SequenceReading:
        """Return the model of B queries' sequences."""
        statistics = roles.statistics
        unary_BHV = self._unary(inputs, statistics.bank)
        weight_BT = self._weights(inputs.manner, ends_of(unary_BHV).softmax(-1), statistics)
        taken_BV = (weight_BT @ _odds(-self.clash.exp() * statistics.clash).T).clamp_min(TINY).log()
        preference_BV = weight_BT @ roles.preference + roles.common
        prior_BV = self.prior.exp() * (preference_BV / preference_BV.sum(1, keepdim=True) + 1e-4).log()
        unary_BHV = torch.cat(
            [
                unary_BHV[:, :1] + (taken_BV + prior_BV)[:, None],
                unary_BHV[:, 1:-1],
                unary_BHV[:, -1:] + taken_BV[:, None],
            ],
            dim=1,
        )
        potential_HVB = (unary_BHV - unary_BHV.amax(-1, keepdim=True)).exp().permute(1, 2, 0)
        jump = self.jump.exp().clamp_max(0.5)
        return SequenceReading(RoleChain(potential_HVB, roles.kernel, roles.moves, preference_BV.T, jump), weight_BT)

    def _unary(self, inputs: PlusInputs, bank_VE: Tensor) -> Tensor:
        """Return (B, H, V): the weighted cosines of all experts, and what the ends were recognised as."""
        weight_X2 = self.plan.exp()[: inputs.plans.shape[1]]
        place_H = torch.full(inputs.plans.shape[2:3], MIDDLES, device=bank_VE.device)
        place_H[0] = place_H[-1] = ENDS
        weight_XH = weight_X2[:, place_H]
        unary_BHV = torch.einsum("bxhe,xh->bhe", inputs.plans, weight_XH) @ bank_VE.T
        seen_B2V = self.recognition.exp() * inputs.recognised
        first_B1V, last_B1V = unary_BHV[:, :1] + seen_B2V[:, :1], unary_BHV[:, -1:] + seen_B2V[:, 1:]
        return torch.cat([first_B1V, unary_BHV[:, 1:-1], last_B1V], dim=1)

    def _preferences(self, statistics: TrainingStatistics, kernel_VV: Tensor) -> Tensor:
        """Return (T, V): each take's counts, mixed with those of takes that prefer the same labels within the roles."""
        added_V = self.config.sparse * statistics.counts.mean(0) + 1e-6
        within_TV = statistics.held.times(kernel_VV.T) + added_V @ kernel_VV.T
        share_TV = ((statistics.counts + added_V) / within_TV.clamp_min(TINY)).log()
        alike_TT = statistics.held.times(share_TV.T)
        others = torch.eye(len(alike_TT), dtype=torch.bool, device=alike_TT.device)
        kin_TT = (self.kinship.exp() * (alike_TT + alike_TT.T) / 2).masked_fill(others, -1e30).softmax(1)
        own = self.own.exp().clamp_max(1.0)
        return own * statistics.counts + (1 - own) * statistics.held.transposed_times(kin_TT.T).T

    def _weights(self, manner_BT: Tensor, ends_B2V: Tensor, statistics: TrainingStatistics) -> Tensor:
        """Return (B, T): softmax of how well each take explains the motion and the labels of both ends.

        Args:
            manner_BT: log likelihood ratios; -inf where a take must not be seen.
            ends_B2V: probabilities of the labels of Start and Goal.
            statistics: which labels a take holds, and how labels and takes move together.
        """
        allowed_BT = manner_BT > -torch.inf
        fits_VT = _odds(self.holds.exp() * (statistics.counts > 0).float().T - self.clash.exp() * statistics.clash)
        logit_BT = self.manner.exp() * manner_BT.masked_fill(~allowed_BT, 0.0)
        logit_BT = logit_BT + (ends_B2V @ fits_VT).clamp_min(TINY).log().sum(1)
        return logit_BT.masked_fill(~allowed_BT, -1e30).softmax(-1) * allowed_BT

    def forward(self, inputs: PlusInputs, statistics: TrainingStatistics) -> Tensor:
        """Return (B, H, V): the probability of each label at each step."""
        return marginals(self.read(inputs, self.roles(statistics)).chain)

    def answer(self, inputs: PlusInputs, known: AnsweringRoles) -> tuple[Tensor, Tensor]:
        """Return the probabilities (B, H, V), and the (B, H) long sequence whose middles are most probable together.

        A single middle step is its marginal's best.
        """
        reading = self.read(inputs, known.roles)
        probability_BHV = marginals(reading.chain)
        kept = kept_chain(reading.chain, probability_BHV, self.config.kept_labels)
        places_BNM, score_BN = best_middles(kept, self.config.beam)
        labels_BNM = labels_of(kept, places_BNM)
        best_B = (score_BN + coupling(labels_BNM, reading.weight, known.share, self.config.coupled_takes)).argmax(1)
        decoded_BH = with_ends(kept, places_BNM[torch.arange(len(best_B), device=best_B.device), best_B])
        if labels_BNM.shape[2] == 1:
            decoded_BH[:, 1] = probability_BHV[:, 1].max(dim=-1).indices
        return probability_BHV, decoded_BH


def _weight(start: float) -> nn.Parameter:
    """Return a learned positive number, held as its logarithm."""
    return nn.Parameter(torch.tensor(math.log(start)))


def _odds(log_VT: Tensor) -> Tensor:
    """Return (V, T): odds of their logarithms."""
    return log_VT.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).exp()


def _shares(preference_xV: Tensor, kernel_VV: Tensor) -> Tensor:
    """Return (..., V): preferences against those of everything that can stand in the same place."""
    return preference_xV / (preference_xV @ kernel_VV.T).clamp_min(TINY)
