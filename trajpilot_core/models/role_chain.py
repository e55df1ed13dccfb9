"""Exact inference over label sequences on a chain of roles.

Labels that are interchangeable share a role, softly: `kernel[a]` is a distribution over the labels that could stand in
the place of `a`. A step leads from a label to the place of some next label (`moves`, the same for all queries), and
there to one of the labels that share it, by the query's own preferences.

Shapes: B queries, H steps, V labels, N best sequences, P labels kept per step, T takes. Matrices of the recursions are
transposed, (V, B). Source: docs/decisions/scorer-plus.md.
"""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

TINY = 1e-30


class Sparse(NamedTuple):
    """A sparse matrix (R, C) and its transpose (torch cannot transpose one in inference mode)."""

    matrix: Tensor
    transposed: Tensor

    def times(self, dense_Cx: Tensor) -> Tensor:
        """Return the product (R, x) with a dense matrix."""
        product: Tensor = _Product.apply(self.matrix, self.transposed, dense_Cx)  # type: ignore[no-untyped-call]
        return product

    def transposed_times(self, dense_Rx: Tensor) -> Tensor:
        """Return the product (C, x) of the transpose with a dense matrix."""
        product: Tensor = _Product.apply(self.transposed, self.matrix, dense_Rx)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """A fixed sparse matrix (R, C) times a dense one (C, x).

    torch's own gradient transposes the matrix in every call, and on a GPU the host waits until it is sorted. It reads
    the dense one row by row: where that lies transposed, it takes a fifteenth of the time on a copy (4,000 labels).
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense_Cx: Tensor) -> Tensor:
        """Return (R, x)."""
        ctx.transposed = transposed
        product: Tensor = torch.sparse.mm(matrix, dense_Cx.contiguous())
        return product

    @staticmethod
    def backward(ctx: Any, *grads_Rx: Tensor) -> tuple[None, None, Tensor]:
        """Return the gradient of the dense matrix, (C, x)."""
        return None, None, torch.sparse.mm(ctx.transposed, grads_Rx[0].contiguous())


def sparse(values: Tensor) -> Sparse:
    """Return a matrix (R, C), dense or sparse itself, as a sparse one that trainings and inference can read."""
    with torch.inference_mode(mode=False):
        matrix = values.clone() if values.is_sparse else values.clone().to_sparse()
        return Sparse(matrix, matrix.t().coalesce())


class RoleMoves(NamedTuple):
    """(V, V) rows that sum to 1 or 0, from a label to the place of the next, in factors: their product costs V^3."""

    kernel: Tensor
    """(V, V), rows sum to 1."""
    follows: Sparse
    """(V, V) how often the column's label follows the row's."""
    scale: Tensor
    """(V,) one over the sum of each row of the product."""

    def dense(self) -> Tensor:
        """Return the (V, V) product: worth its V^3 where many queries read the same weights."""
        return self.scale[:, None] * (self.kernel @ self.follows.times(self.kernel.T))


class RoleChain(NamedTuple):
    """The model of B label sequences of H steps."""

    potential: Tensor
    """(H, V, B) what speaks for each label at each step by itself."""
    kernel: Tensor
    """(V, V), rows sum to 1."""
    moves: Tensor | RoleMoves
    """(V, V), rows sum to 1: from a label to the place of the next; whole, or in factors."""
    preference: Tensor
    """(V, B) how much a query prefers each label; only ratios within a role count."""
    jump: Tensor
    """Scalar share of the steps that lead to any label alike."""


def marginals(chain: RoleChain) -> Tensor:
    """Return (B, H, V): the posterior of every step given all potentials, by forward and backward recursion."""
    share_VB = _shares(chain)
    forward = [_normalised(chain.potential[0])]
    for potential_VB in chain.potential[1:]:
        forward.append(_normalised(_forth(chain, share_VB, forward[-1]) * potential_VB))
    backward_VB = torch.ones_like(forward[0])
    out = [forward[-1]]
    for t in range(len(forward) - 2, -1, -1):
        backward_VB = _normalised(_back(chain, share_VB, backward_VB * chain.potential[t + 1]))
        out.append(_normalised(forward[t] * backward_VB))
    return torch.stack(out[::-1]).permute(2, 0, 1)


def _normalised(values_VB: Tensor) -> Tensor:
    """Scale the columns of (V, B) to sum 1."""
    return values_VB / values_VB.sum(0).clamp_min(TINY)


def _shares(chain: RoleChain) -> Tensor:
    """Return (V, B): one over the preference of everything that can stand in the place of each label."""
    return 1 / (chain.kernel @ chain.preference).clamp_min(TINY)


def _forth(chain: RoleChain, share_VB: Tensor, state_VB: Tensor) -> Tensor:
    """Move (V, B) mass one step on."""
    along_VB = chain.preference * (chain.kernel.T @ (share_VB * _to_places(chain.moves, state_VB)))
    return (1 - chain.jump) * along_VB + chain.jump / len(state_VB) * state_VB.sum(0)


def _back(chain: RoleChain, share_VB: Tensor, state_VB: Tensor) -> Tensor:
    """Move (V, B) mass one step back."""
    along_VB = _from_places(chain.moves, share_VB * (chain.kernel @ (chain.preference * state_VB)))
    return (1 - chain.jump) * along_VB + chain.jump / len(state_VB) * state_VB.sum(0)


def _to_places(moves: Tensor | RoleMoves, state_VB: Tensor) -> Tensor:
    """Return (V, B): the mass that labels send to each place; in factors it costs 2 V^2 B in place of V^2 B."""
    if isinstance(moves, Tensor):
        return moves.T @ state_VB
    before_VB = moves.kernel.T @ (moves.scale[:, None] * state_VB)
    return moves.kernel @ moves.follows.transposed_times(before_VB)


def _from_places(moves: Tensor | RoleMoves, value_VB: Tensor) -> Tensor:
    """Return (V, B): the values of the places to which each label leads, weighted."""
    if isinstance(moves, Tensor):
        return moves @ value_VB
    return moves.scale[:, None] * (moves.kernel @ moves.follows.times(moves.kernel.T @ value_VB))


class ProbableLabels(NamedTuple):
    """The chain on the P most probable labels of every step, in logarithms."""

    labels: list[Tensor]
    """H times (B, P) long."""
    potentials: list[Tensor]
    """H times (B, P)."""
    steps: list[Tensor]
    """H - 1 times (B, P, P), from the labels of a step to those of the next."""


def kept_chain(chain: RoleChain, probability_BHV: Tensor, keep: int) -> ProbableLabels:
    """Cut the chain down to the `keep` most probable labels of every step (fewer where V is smaller).

    Args:
        chain: of B queries.
        probability_BHV: its marginals.
        keep: P.
    """
    labels = [step.topk(min(keep, step.shape[1]), dim=1).indices for step in probability_BHV.unbind(1)]
    log_HBV = chain.potential.clamp_min(TINY).log().transpose(1, 2)
    potentials = [log_BV.gather(1, at) for log_BV, at in zip(log_HBV, labels, strict=True)]
    share_BV, preference_BV = _shares(chain).T, chain.preference.T
    moves_VV = chain.moves if isinstance(chain.moves, Tensor) else chain.moves.dense()
    steps = []
    for before_BP, after_BP in itertools.pairwise(labels):
        place_BPV = moves_VV[before_BP] * share_BV[:, None]
        to_BPP = place_BPV @ chain.kernel.T[after_BP].transpose(1, 2) * preference_BV.gather(1, after_BP)[:, None]
        steps.append(((1 - chain.jump) * to_BPP + chain.jump / len(chain.kernel)).log())
    return ProbableLabels(labels, potentials, steps)


def best_middles(kept: ProbableLabels, beam: int) -> tuple[Tensor, Tensor]:
    """Return the best sequences of middle labels, (B, N, H - 2) places in `kept.labels`, and their (B, N) log scores.

    Start and Goal are summed out: what counts as one answer is the sequence of the middles (MSeq).

    Args:
        kept: the chain.
        beam: N, and how many prefixes go on at every step.
    """
    start_BP = kept.potentials[0]
    score_BN = torch.logsumexp(start_BP[:, :, None] + kept.steps[0], dim=1) + kept.potentials[1]
    places_BN1 = torch.arange(score_BN.shape[1], device=score_BN.device).expand_as(score_BN)[..., None]
    for t in range(2, len(kept.labels) - 1):
        along_BNP = kept.steps[t - 1].gather(1, places_BN1[:, :, -1:].expand(-1, -1, kept.labels[t].shape[1]))
        all_BX = (score_BN[:, :, None] + along_BNP + kept.potentials[t][:, None]).flatten(1)
        score_BN, found = all_BX.topk(min(beam, all_BX.shape[1]), dim=1)
        before, last = found // along_BNP.shape[2], found % along_BNP.shape[2]
        so_far = places_BN1.gather(1, before[:, :, None].expand(-1, -1, places_BN1.shape[2]))
        places_BN1 = torch.cat([so_far, last[:, :, None]], dim=2)
    to_goal_BP = torch.logsumexp(kept.steps[-1] + kept.potentials[-1][:, None], dim=2)
    return places_BN1, score_BN + to_goal_BP.gather(1, places_BN1[:, :, -1])


def labels_of(kept: ProbableLabels, places_BNM: Tensor) -> Tensor:
    """Return (B, N, M) long: the middle labels at places in `kept.labels`."""
    return torch.stack([kept.labels[t + 1].gather(1, places) for t, places in enumerate(places_BNM.unbind(2))], dim=2)


def coupling(labels_BNM: Tensor, weight_BT: Tensor, share_TV: Tensor, most: int) -> Tensor:
    """Return (B, N): how much likelier the labels are together, under one take's preferences, than each by itself.

    log sum_t w_t prod_m p_t(a_m) - sum_m log sum_t w_t p_t(a_m): 0 for a single middle step, and 0 where no take has
    weight. It tells sequences that one plan explains from those that mix the plans of several takes.

    Args:
        labels_BNM: sequences of middle labels.
        weight_BT: weights of the takes, of which the `most` largest are read.
        share_TV: each take's preference of a label within its role.
        most: how many.
    """
    weight_BX, take_BX = weight_BT.topk(min(most, weight_BT.shape[1]), dim=1)
    hidden_BX = weight_BX <= 0
    weight_BX = weight_BX / weight_BX.sum(1, keepdim=True).clamp_min(TINY)
    share_TV = share_TV.clamp_min(1e-6)
    log_TV = share_TV.log()
    whole_BXN = weight_BX.clamp_min(TINY).log().masked_fill(hidden_BX, -torch.inf)[:, :, None]
    for labels_BN in labels_BNM.unbind(2):
        whole_BXN = whole_BXN + log_TV[take_BX[:, :, None], labels_BN[:, None]]
    apart_BV = torch.zeros_like(weight_BT).scatter(1, take_BX, weight_BX) @ share_TV
    apart_BN = apart_BV.gather(1, labels_BNM.flatten(1)).view(labels_BNM.shape).clamp_min(TINY).log().sum(2)
    coupled_BN: Tensor = torch.logsumexp(whole_BXN, dim=1) - apart_BN
    return coupled_BN.masked_fill(hidden_BX.all(1, keepdim=True), 0.0)


def with_ends(kept: ProbableLabels, places_BM: Tensor) -> Tensor:
    """Return (B, M + 2) long: middle labels at places in `kept.labels`, between the best Start and Goal given them."""
    here = torch.arange(len(places_BM), device=places_BM.device)
    start_BP = kept.potentials[0] + kept.steps[0][here, :, places_BM[:, 0]]
    goal_BP = kept.potentials[-1] + kept.steps[-1][here, places_BM[:, -1]]
    places = [start_BP.argmax(1), *places_BM.unbind(1), goal_BP.argmax(1)]
    return torch.stack([labels[here, at] for labels, at in zip(kept.labels, places, strict=True)], dim=1)


def role_kernel(look_VV: Tensor, context_VV: Tensor, look: Tensor, context: Tensor) -> Tensor:
    """Return (V, V), rows that sum to 1: labels that look alike and stand in the same context are interchangeable.

    Args:
        look_VV: squared distances of looks.
        context_VV: likeness of contexts, see `context_likeness`.
        look: scalar weight of the distance.
        context: scalar weight of the likeness.
    """
    return (context * context_VV - look * look_VV).softmax(1)


def context_likeness(follows: Sparse, kernel_VV: Tensor) -> Tensor:
    """Return (V, V): cosine of what follows two labels plus cosine of what they follow, labels smoothed by a kernel.

    Args:
        follows: (V, V) how often the column's label follows the row's.
        kernel_VV: rows sum to 1.
    """
    after = F.normalize(follows.times(kernel_VV), dim=1)
    before = F.normalize(follows.transposed_times(kernel_VV), dim=1)
    return after @ after.T + before @ before.T


def role_moves(follows: Sparse, kernel_VV: Tensor) -> RoleMoves:
    """Return where the labels of a row's role lead, in terms of places.

    Args:
        follows: (V, V) how often the column's label follows the row's.
        kernel_VV: rows sum to 1.
    """
    total_V1 = kernel_VV @ follows.times(kernel_VV.sum(0)[:, None])
    return RoleMoves(kernel_VV, follows, 1 / total_V1[:, 0].clamp_min(TINY))
