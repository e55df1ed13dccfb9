"""Scorer+: a product of experts over label sequences, on a graph that weighs training takes by the query.

Source: docs/decisions/scorer-plus.md.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from schemas.config import ScorerPlusConfig
from trajpilot_core.models.step_graph import StepGraph, best_middles, edge_probabilities, marginals

ENDS, MIDDLES = 0, 1


class PlusInputs(NamedTuple):
    """What Scorer+ reads of B queries of one horizon H."""

    plans: Tensor
    """(B, X, H, E) what each expert predicts, unit norm: no_traj, the mean of the candidates' plans, endpoint_traj."""
    recognised: Tensor
    """(B, 2, V) log likelihood ratios of the labels of Start and Goal, from their own clip and motion, best 0."""
    manner: Tensor
    """(B, T) log likelihood ratios of the training takes, by the motion of both ends; -inf for takes not to be seen."""


class Potentials(NamedTuple):
    """A query's model of its label sequence."""

    unary: Tensor
    """(B, H, V) log potentials of single steps."""
    edges: Tensor
    """(E, B) probabilities of transitions."""


class ScorerPlus(nn.Module):
    """Weigh training takes by manner and by labels that the query's ends may have; infer the sequence on their steps.

    Every parameter is one positive number (its logarithm is learned), so that a few thousand queries determine them.

    Shapes: B queries, X experts, H steps, E text space, V labels, T training takes.
    """

    def __init__(self, config: ScorerPlusConfig, experts: int) -> None:
        super().__init__()
        self.backing = config.backing
        self.plan = nn.Parameter(torch.full((experts, 2), math.log(config.plan_weight)))
        self.recognition = nn.Parameter(torch.tensor(math.log(config.recognition_weight)))
        self.manner = nn.Parameter(torch.tensor(math.log(config.manner_weight)))
        self.has_label = nn.Parameter(torch.tensor(math.log(config.label_weight)))
        self.jump = nn.Parameter(torch.tensor(math.log(config.jump)))

    def potentials(self, inputs: PlusInputs, graph: StepGraph, bank_VE: Tensor) -> Potentials:
        """Return the potentials of B queries.

        Args:
            inputs: the queries.
            graph: transitions of the training takes.
            bank_VE: (V, E) label embeddings.
        """
        unary_BHV = self._unary(inputs, bank_VE)
        ends_B2V = unary_BHV[:, [0, -1]].softmax(-1)
        has_BT = (ends_B2V @ graph.has_label.T).sum(1)
        allowed_BT = inputs.manner > -torch.inf
        logit_BT = self.manner.exp() * inputs.manner.masked_fill(~allowed_BT, 0.0) + self.has_label.exp() * has_BT
        weight_BT = logit_BT.masked_fill(~allowed_BT, -1e30).softmax(-1) * allowed_BT
        backing_BT = self.backing * allowed_BT / allowed_BT.sum(1, keepdim=True).clamp_min(1)
        return Potentials(unary_BHV, edge_probabilities(graph, weight_BT + backing_BT))

    def _unary(self, inputs: PlusInputs, bank_VE: Tensor) -> Tensor:
        """Return (B, H, V): the weighted cosines of all experts, and what the ends were recognised as."""
        weight_X2 = self.plan.exp()
        weight_XH = weight_X2[:, [ENDS, *[MIDDLES] * (inputs.plans.shape[2] - 2), ENDS]]
        unary_BHV = torch.einsum("bxhe,xh->bhe", inputs.plans, weight_XH) @ bank_VE.T
        seen_B2V = self.recognition.exp() * inputs.recognised
        first_B1V, last_B1V = unary_BHV[:, :1] + seen_B2V[:, :1], unary_BHV[:, -1:] + seen_B2V[:, 1:]
        return torch.cat([first_B1V, unary_BHV[:, 1:-1], last_B1V], dim=1)

    def forward(self, inputs: PlusInputs, graph: StepGraph, bank_VE: Tensor) -> Tensor:
        """Return (B, H, V): the probability of each label at each step; arguments as of `potentials`."""
        potentials = self.potentials(inputs, graph, bank_VE)
        return marginals(graph, potentials.unary, potentials.edges, self.jump_share())

    def answer(self, inputs: PlusInputs, graph: StepGraph, bank_VE: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities (B, H, V), and the (B, H) long sequence whose middles are most probable together."""
        potentials = self.potentials(inputs, graph, bank_VE)
        jump = self.jump_share()
        probability_BHV = marginals(graph, potentials.unary, potentials.edges, jump)
        return probability_BHV, best_middles(graph, potentials.unary, potentials.edges, jump)

    def jump_share(self) -> Tensor:
        """Return the share of transitions that were never observed, a scalar (shape ()); at most 1/2."""
        return self.jump.exp().clamp_max(0.5)
