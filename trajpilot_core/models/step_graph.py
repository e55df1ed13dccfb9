"""Exact inference over label sequences on a graph of observed transitions, weighted for every query apart.

Shapes: B queries, H steps, V labels, E edges, N transitions observed in the training takes, T takes.
Tensors inside the recursions are transposed, (V, B) and (E, B), so that a scatter adds whole rows.
Source: docs/decisions/scorer-plus.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

TINY = 1e-30


@dataclass(frozen=True)
class StepGraph:
    """Which label followed which in which take; edges sorted by their source, then by their target."""

    source: Tensor
    """(E,) long."""
    target: Tensor
    """(E,) long."""
    edge: Tensor
    """(N,) long, the edge of each observed transition."""
    take: Tensor
    """(N,) long, the take in which it was observed."""
    n_labels: int
    has_label: Tensor
    """(T, V) float32, 1 where a take holds a label."""


def step_graph(steps_N2: Tensor, take_N: Tensor, n_takes: int, n_labels: int) -> StepGraph:
    """Collect the transitions of takes.

    Args:
        steps_N2: (N, 2) long, the labels of two steps that follow each other.
        take_N: (N,) long, the take in which they do.
        n_takes: T.
        n_labels: V.
    """
    edges, edge = torch.unique(steps_N2[:, 0] * n_labels + steps_N2[:, 1], return_inverse=True)
    has_label = torch.zeros(n_takes, n_labels, device=steps_N2.device)
    has_label[take_N[:, None].expand_as(steps_N2), steps_N2] = 1.0
    return StepGraph(edges // n_labels, edges % n_labels, edge, take_N, n_labels, has_label)


def edge_probabilities(graph: StepGraph, weight_BT: Tensor) -> Tensor:
    """Return (E, B): how probable each target is after each source, among the transitions of weighted takes.

    Args:
        graph: the transitions.
        weight_BT: (B, T) weights of the takes; 0 for takes that a query must not see.
    """
    of_transition_NB = weight_BT.T[graph.take]
    counts_EB = of_transition_NB.new_zeros(len(graph.source), weight_BT.shape[0])
    counts_EB = counts_EB.index_add(0, graph.edge, of_transition_NB)
    total_VB = counts_EB.new_zeros(graph.n_labels, counts_EB.shape[1]).index_add(0, graph.source, counts_EB)
    return counts_EB / total_VB[graph.source].clamp_min(TINY)


def marginals(graph: StepGraph, unary_BHV: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Return (B, H, V): the posterior of every step given all potentials, by forward and backward recursion.

    Args:
        graph: the edges.
        unary_BHV: log potentials.
        edge_EB: potentials of the edges.
        jump: scalar, share of the transitions that go to any label alike.
    """
    potential_HVB = _potentials(unary_BHV)
    steps = len(potential_HVB)
    forward = [_normalised(potential_HVB[0])]
    for t in range(1, steps):
        forward.append(_normalised(_forth(graph, forward[-1], edge_EB, jump) * potential_HVB[t]))
    backward = torch.ones_like(forward[0])
    out = [forward[-1]]
    for t in range(steps - 2, -1, -1):
        backward = _normalised(_back(graph, backward * potential_HVB[t + 1], edge_EB, jump))
        out.append(_normalised(forward[t] * backward))
    return torch.stack(out[::-1]).permute(2, 0, 1)


def _potentials(unary_BHV: Tensor) -> Tensor:
    """Return (H, V, B) potentials, the largest of each step 1."""
    return (unary_BHV - unary_BHV.amax(-1, keepdim=True)).exp().permute(1, 2, 0)


def _normalised(values_VB: Tensor) -> Tensor:
    """Scale the columns of (V, B) to sum 1."""
    return values_VB / values_VB.sum(0).clamp_min(TINY)


def _forth(graph: StepGraph, state_VB: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Move (V, B) mass along the edges, and a share of it to any label."""
    along = torch.zeros_like(state_VB).index_add(0, graph.target, state_VB[graph.source] * edge_EB)
    return (1 - jump) * along + jump / graph.n_labels * state_VB.sum(0)


def _back(graph: StepGraph, state_VB: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Move (V, B) mass against the edges, and a share of it from any label."""
    along = torch.zeros_like(state_VB).index_add(0, graph.source, state_VB[graph.target] * edge_EB)
    return (1 - jump) * along + jump / graph.n_labels * state_VB.sum(0)


def best_middles(graph: StepGraph, unary_BHV: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Return (B, H) long: the most probable sequence of middle labels, Start and Goal summed out, then the best ends.

    What counts as one answer is the sequence of the middles (MSeq); with a single middle it is its marginal's best.
    """
    potential_HVB = _potentials(unary_BHV)
    steps = len(potential_HVB)
    first_VB = _normalised(_forth(graph, potential_HVB[0], edge_EB, jump) * potential_HVB[1])
    scores = [first_VB]
    for t in range(2, steps - 1):
        scores.append(_normalised(_best_forth(graph, scores[-1], edge_EB, jump) * potential_HVB[t]))
    last_VB = scores[-1] * _back(graph, potential_HVB[-1], edge_EB, jump)
    path = [last_VB.max(0).indices]
    for score_VB in scores[-2::-1]:
        path.append(_came_from(graph, score_VB, path[-1], edge_EB, jump))
    path.append(_came_from(graph, _normalised(potential_HVB[0]), path[-1], edge_EB, jump))
    path.insert(0, _goes_to(graph, potential_HVB[-1], path[0], edge_EB, jump))
    return torch.stack(path[::-1], 1)


def _best_forth(graph: StepGraph, score_VB: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Return (V, B): the score of the best way into each label."""
    along_EB = score_VB[graph.source] * ((1 - jump) * edge_EB + jump / graph.n_labels)
    anywhere_VB = (score_VB.amax(0) * jump / graph.n_labels).expand_as(score_VB)
    index = graph.target[:, None].expand_as(along_EB)
    return anywhere_VB.clone().scatter_reduce_(0, index, along_EB, "amax", include_self=True)


def _came_from(graph: StepGraph, score_VB: Tensor, now_B: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Return (B,) long: the best label before `now`; of equals the smallest."""
    step_VB = torch.full_like(score_VB, 1.0) * jump / graph.n_labels
    into_EB = torch.where(graph.target[:, None] == now_B, (1 - jump) * edge_EB, 0.0)
    return (score_VB * step_VB.index_add(0, graph.source, into_EB)).max(0).indices


def _goes_to(graph: StepGraph, score_VB: Tensor, now_B: Tensor, edge_EB: Tensor, jump: Tensor) -> Tensor:
    """Return (B,) long: the best label after `now`; of equals the smallest."""
    step_VB = torch.full_like(score_VB, 1.0) * jump / graph.n_labels
    from_EB = torch.where(graph.source[:, None] == now_B, (1 - jump) * edge_EB, 0.0)
    return (score_VB * step_VB.index_add(0, graph.target, from_EB)).max(0).indices
