"""A hidden Markov model over labels in closed form: the chain of labels, and a linear discriminant of what is seen.

The chain has exact posteriors, and decodes the probable labels of every step together. Transitions are counted in
training takes and backed off to the frequency of labels, so that the transition table is sparse plus a product of two
vectors: a step of a recursion costs (counts + V) per window, and nothing has the size of windows x V x V. The
discriminant is one Gaussian per label, with a shared, automatically shrunk covariance.

Shapes: B windows, H steps, V labels, P labels kept per step, M = H - 2 middle steps, S segments, C numbers of a
segment, N queries. Source: Rabiner, Proc. IEEE 77 (1989), for the recursions; Witten and Bell, IEEE Trans. Inf. Theory
37 (1991), method C, for the back-off; Ledoit and Wolf, J. Multivariate Analysis 88 (2004), for the shrinkage;
docs/decisions/methods.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from trajpilot_core.models.ranking import best

TINY = 1e-30


class Sparse(NamedTuple):
    """A sparse matrix (R, C) and its transpose (torch cannot transpose one in inference mode)."""

    matrix: Tensor
    transposed: Tensor


def sparse(values: Tensor) -> Sparse:
    """Return a dense or sparse matrix (R, C) as a sparse one that works in inference mode."""
    with torch.inference_mode(mode=False):
        matrix = values.clone() if values.is_sparse else values.clone().to_sparse()
        return Sparse(matrix, matrix.t().coalesce())


class LabelMoves(NamedTuple):
    """p(b follows a) = seen[a] count[a, b] + unseen[a] frequent[b]; `seen` and `unseen` include the normalisation."""

    counts: Sparse
    """(V, V) counts: the column's label follows the row's."""
    seen: Tensor
    """(V,)."""
    unseen: Tensor
    """(V,) probability of backing off to frequencies; 1 after a label without counted transitions."""
    frequent: Tensor
    """(V,) probability of a label anywhere, never 0."""

    def forth(self, state_VB: Tensor) -> Tensor:
        """Return (V, B): the mass that reaches each label from (V, B)."""
        by_frequency_1B = (self.unseen[:, None] * state_VB).sum(0, keepdim=True)
        seen_VB: Tensor = torch.sparse.mm(self.counts.transposed, (self.seen[:, None] * state_VB).contiguous())
        return seen_VB + self.frequent[:, None] * by_frequency_1B

    def back(self, value_VB: Tensor) -> Tensor:
        """Return (V, B): the expected value, of (V, B), of the label after each label."""
        by_frequency_1B = (self.frequent[:, None] * value_VB).sum(0, keepdim=True)
        seen_VB: Tensor = torch.sparse.mm(self.counts.matrix, value_VB.contiguous())
        return self.seen[:, None] * seen_VB + self.unseen[:, None] * by_frequency_1B

    def between(self, before_x: Tensor, after_x: Tensor) -> Tensor:
        """Return the probabilities of single transitions, in the broadcast shape of two long tensors of labels."""
        entries = self.counts.matrix.coalesce()
        (row_N, column_N), size = entries.indices(), len(self.frequent)
        wanted_x = before_x * size + after_x
        by_frequency_x = self.unseen[before_x] * self.frequent[after_x]
        if not len(row_N):
            return by_frequency_x
        known_N = row_N * size + column_N  # ascending, as `coalesce` leaves them
        at_x = torch.searchsorted(known_N, wanted_x).clamp_max(len(known_N) - 1)
        count_x = torch.where(known_N[at_x] == wanted_x, entries.values()[at_x], 0.0)
        return self.seen[before_x] * count_x + by_frequency_x


class KeptChain(NamedTuple):
    """The chain on P labels of every step."""

    labels: Tensor
    """(B, H, P) long, ascending."""
    own: Tensor
    """(B, H, P) likelihood of each label at its step, scaled so that the best of a step has 1."""
    first: Tensor
    """(B, P) frequency of the labels of the first step."""
    moves: list[Tensor]
    """H - 1 times (B, P, P), probabilities of the transitions from the labels of a step to those of the next."""


def label_moves(follows: Sparse, count_V: Tensor) -> LabelMoves:
    """Smooth (V, V) counts of the column's label after the row's (Witten and Bell): the more different labels follow,
    the likelier is an unseen one. A label without segments counts as one segment, so that none is impossible."""
    entries = follows.matrix.coalesce()
    row_N = entries.indices()[0]
    total_V = count_V.new_zeros(len(count_V)).index_add_(0, row_N, entries.values())
    followers_V = count_V.new_zeros(len(count_V)).index_add_(0, row_N, torch.ones_like(entries.values()))
    followers_V = followers_V.clamp_min(1.0)
    whole_V = total_V + followers_V
    frequent_V = (count_V + 1) / (count_V.sum() + len(count_V))
    return LabelMoves(follows, 1 / whole_V, followers_V / whole_V, frequent_V)


def chain_marginals(moves: LabelMoves, first_BV: Tensor, last_BV: Tensor, horizon: int) -> Tensor:
    """Return (B, H, V), H at least 2: the posterior of every step, given the log likelihoods (B, V) of Start and Goal,
    up to a constant per window."""
    first_VB, last_VB = ((log_BV - log_BV.amax(1, keepdim=True)).exp().T for log_BV in (first_BV, last_BV))
    forward = [_normalised(moves.frequent[:, None] * first_VB)]
    for _ in range(horizon - 2):
        forward.append(_normalised(moves.forth(forward[-1])))
    forward.append(_normalised(moves.forth(forward[-1]) * last_VB))
    backward_VB, out = last_VB, [forward[-1]]
    for state_VB in forward[-2::-1]:
        backward_VB = _normalised(moves.back(backward_VB))
        out.append(_normalised(state_VB * backward_VB))
    return torch.stack(out[::-1]).permute(2, 0, 1)


def _normalised(values_VB: Tensor) -> Tensor:
    """Scale the columns of (V, B) to sum 1."""
    return values_VB / values_VB.sum(0).clamp_min(TINY)


def probable_labels(score_BHV: Tensor, keep: int) -> Tensor:
    """Return (B, H, P) long: the labels of the highest scores at each step, ascending; ties go to the smaller index."""
    return best(score_BHV, keep)[0].sort(dim=2).values


def kept_moves(moves: LabelMoves, labels_BHP: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return `first` and `moves` of the chain on some labels of every step."""
    pairs = zip(labels_BHP[:, :-1].unbind(1), labels_BHP[:, 1:].unbind(1), strict=True)
    return moves.frequent[labels_BHP[:, 0]], [moves.between(a[:, :, None], b[:, None]) for a, b in pairs]


def kept_chain(
    labels_BHP: Tensor, log_BHP: Tensor, known: tuple[Tensor, list[Tensor]], weight: float = 1.0
) -> KeptChain:
    """Return the chain on some labels of every step, from their log likelihoods, up to a constant per step.

    `known` are `first` and `moves` of the chain, `weight` their exponent; 0: every step is independent.
    """
    likelihood_BHP = (log_BHP - log_BHP.amax(2, keepdim=True)).exp()
    first_BP, moves = known
    return KeptChain(labels_BHP, likelihood_BHP, first_BP**weight, [step_BPP**weight for step_BPP in moves])


def kept_marginals(chain: KeptChain) -> Tensor:
    """Return (B, H, P): the posterior of every step among its kept labels."""
    forward = [_shares(chain.first * chain.own[:, 0])]
    for step_BPP, likelihood_BP in zip(chain.moves, chain.own.unbind(1)[1:], strict=True):
        forward.append(_shares(_along(forward[-1], step_BPP) * likelihood_BP))
    backward_BP, out = torch.ones_like(forward[-1]), [forward[-1]]
    for t in range(len(chain.moves) - 1, -1, -1):
        backward_BP = _shares(_against(chain.moves[t], backward_BP * chain.own[:, t + 1]))
        out.append(_shares(forward[t] * backward_BP))
    return torch.stack(out[::-1], dim=1)


def _shares(values_BP: Tensor) -> Tensor:
    """Scale the rows of (B, P) to sum 1."""
    return values_BP / values_BP.sum(1, keepdim=True).clamp_min(TINY)


def _along(state_BP: Tensor, step_BPP: Tensor) -> Tensor:
    """Return (B, P): the mass that reaches the labels of the next step."""
    return torch.bmm(state_BP[:, None], step_BPP)[:, 0]


def _against(step_BPP: Tensor, value_BP: Tensor) -> Tensor:
    """Return (B, P): the expected value of the next step after each label."""
    return torch.bmm(step_BPP, value_BP[:, :, None])[:, :, 0]


def decoded_sequence(chain: KeptChain) -> Tensor:
    """Return (B, H) long: the most probable sequence of middle labels by Viterbi's recursion, with its best ends.

    Start and Goal are summed out first, because the middle sequence is evaluated as a whole (MSeq); then each end gets
    the label that fits its neighbour best.
    """
    likelihoods = chain.own.unbind(1)
    log_likelihood = [_log(likelihood_BP) for likelihood_BP in likelihoods]
    score_BP = _log(_along(_shares(chain.first * likelihoods[0]), chain.moves[0])) + log_likelihood[1]
    came_from = []
    for step_BPP, log_BP in zip(chain.moves[1:-1], log_likelihood[2:-1], strict=True):
        best = (score_BP[:, :, None] + _log(step_BPP)).max(dim=1)
        came_from.append(best.indices)
        score_BP = best.values + log_BP
    score_BP = score_BP + _log(_against(chain.moves[-1], likelihoods[-1]))
    places = [score_BP.max(dim=1).indices]
    for before_BP in reversed(came_from):
        places.append(before_BP.gather(1, places[-1][:, None])[:, 0])
    middles_BM = torch.stack(places[::-1], dim=1)
    here = torch.arange(len(middles_BM), device=middles_BM.device)
    start_B = (
        (_log(chain.first) + log_likelihood[0] + _log(chain.moves[0][here, :, middles_BM[:, 0]])).max(dim=1).indices
    )
    goal_B = (log_likelihood[-1] + _log(chain.moves[-1][here, middles_BM[:, -1]])).max(dim=1).indices
    places_BH = torch.cat([start_B[:, None], middles_BM, goal_B[:, None]], dim=1)
    return chain.labels.gather(2, places_BH[:, :, None])[:, :, 0]


def _log(value: Tensor) -> Tensor:
    """Return the logarithm of probabilities of any shape, finite for 0."""
    return value.clamp_min(TINY).log()


ROWS = 4096
"""Segments that are converted to double precision at once."""
LEAST_VARIANCE = 1e-3
"""Added to the variance within labels, so that it is invertible; the variance of all segments is 1."""


class Discriminant(NamedTuple):
    """Log likelihood of each label, up to a constant per query: `standardised(x) @ weight + bias`."""

    mean: Tensor
    """(C,)."""
    scale: Tensor
    """(C,) deviation over all segments; infinite for a constant number."""
    weight: Tensor
    """(C, V)."""
    bias: Tensor
    """(V,)."""

    def log_likelihood(self, x_NC: Tensor) -> Tensor:
        """Return (N, V): log p(numbers | label), up to a constant per row."""
        return ((x_NC - self.mean) / self.scale) @ self.weight + self.bias


def fit_discriminant(x_SC: Tensor, label_S: Tensor, n_labels: int) -> Discriminant:
    """Fit the mean of each label and the shared covariance of (S, C) numbers of any scale.

    A label's mean includes one more segment at the overall mean, which is the mean of labels without segments. The
    covariance within labels is shrunk towards a multiple of the identity by Ledoit and Wolf's formula.
    """
    mean_C, scale_C = x_SC.double().mean(0), x_SC.double().std(0, correction=0)
    scale_C = torch.where(scale_C > 1e-6 * scale_C.mean(), scale_C, torch.inf)
    count_V = torch.bincount(label_S, minlength=n_labels).double()
    sums_VC = torch.zeros(n_labels, x_SC.shape[1], dtype=torch.float64, device=x_SC.device)
    for rows in torch.split(torch.arange(len(x_SC), device=x_SC.device), ROWS):
        sums_VC.index_add_(0, label_S[rows], (x_SC[rows].double() - mean_C) / scale_C)
    mean_VC = sums_VC / count_V.clamp_min(1.0)[:, None]
    within_CC = torch.zeros(x_SC.shape[1], x_SC.shape[1], dtype=torch.float64, device=x_SC.device)
    fourth = torch.zeros((), dtype=torch.float64, device=x_SC.device)
    for rows in torch.split(torch.arange(len(x_SC), device=x_SC.device), ROWS):
        left_NC = (x_SC[rows].double() - mean_C) / scale_C - mean_VC[label_S[rows]]
        within_CC += left_NC.T @ left_NC
        fourth += left_NC.square().sum(1).square().sum()
    free = max(1, len(x_SC) - int((count_V > 0).sum()))
    covariance_CC = shrunk(within_CC / free, fourth / free, free)
    shown_VC = sums_VC / (count_V + 1.0)[:, None]
    weight_CV = torch.cholesky_solve(shown_VC.T, torch.linalg.cholesky(covariance_CC))
    bias_V = -0.5 * (shown_VC * weight_CV.T).sum(1)
    return Discriminant(mean_C.float(), scale_C.float(), weight_CV.float(), bias_V.float())


def shrunk(covariance_CC: Tensor, fourth: Tensor, n: int) -> Tensor:
    """Return the (C, C) covariance of n samples without mean, shrunk by Ledoit and Wolf's formula; `fourth`, a scalar,
    is the mean fourth power of their lengths."""
    one_CC = torch.eye(len(covariance_CC), dtype=covariance_CC.dtype, device=covariance_CC.device)
    level = covariance_CC.diagonal().mean()
    spread = (covariance_CC - level * one_CC).square().sum()
    noise = (fourth - covariance_CC.square().sum()).clamp_min(0.0) / n
    share = (noise / spread.clamp_min(torch.finfo(spread.dtype).tiny)).clamp_max(1.0)
    return (1 - share) * covariance_CC + (share * level + LEAST_VARIANCE) * one_CC
