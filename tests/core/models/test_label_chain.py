"""The chain over labels: equal to the enumeration of every sequence, sparse or not, whole or on a shortlist.

And the linear discriminant that tells it how each label looks: Ledoit and Wolf's shrinkage by its definition."""

import torch
from planners_fixture import posterior, scores_of_all
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.models.label_chain import (
    LEAST_VARIANCE,
    LabelMoves,
    chain_marginals,
    decoded_sequence,
    fit_discriminant,
    kept_chain,
    kept_marginals,
    kept_moves,
    label_moves,
    shrunk,
    sparse,
)

V = 4


def moves_of(seed: int = 0, n_labels: int = V) -> LabelMoves:
    """Moves that are far from symmetric, after one label none."""
    g = torch.Generator().manual_seed(seed)
    counts = torch.randint(6, (n_labels, n_labels), generator=g).float().triu()
    counts[-1] = 0
    return label_moves(sparse(counts), torch.randint(5, (n_labels,), generator=g).float())


def dense(moves: LabelMoves) -> Tensor:
    """All moves in one table."""
    every = torch.arange(len(moves.frequent))
    return moves.between(every[:, None], every)


def every_sequence(moves: LabelMoves, own_HV: Tensor) -> tuple[Tensor, Tensor]:
    """All sequences (V^H, H) and their scores, given logarithms of what speaks for each label."""
    sequences, scores = scores_of_all(own_HV, dense(moves).log())
    return sequences, scores + moves.frequent.log()[sequences[:, 0]]


def by_step(moves: LabelMoves, log_BHV: Tensor) -> Tensor:
    """(B, H, V) marginals of all sequences."""
    return torch.stack([posterior(*every_sequence(moves, own), V).float() for own in log_BHV])


def own_of(horizon: int, seed: int = 1) -> Tensor:
    """What speaks for each label at each step, logarithms of shape (3, H, V)."""
    return 2 * torch.randn(3, horizon, V, generator=torch.Generator().manual_seed(seed))


def ends_only(log_BHV: Tensor) -> Tensor:
    """The same where only Start and Goal are seen."""
    seen = torch.zeros_like(log_BHV)
    seen[:, [0, -1]] = log_BHV[:, [0, -1]]
    return seen


def best_middles(table: Tensor) -> list[int]:
    """Middle labels of the highest sum over both ends."""
    middles = table.sum((0, table.ndim - 1))
    return list(torch.unravel_index(middles.argmax(), middles.shape))


def test_moves_are_probabilities_and_a_label_that_nothing_follows_moves_by_frequency() -> None:
    moves = moves_of()
    assert_close(dense(moves).sum(1), torch.ones(V))
    assert_close(dense(moves)[-1], moves.frequent)
    seen = moves.counts.matrix.to_dense()
    expected = (seen[0] + (seen[0] > 0).sum() * moves.frequent) / (seen[0].sum() + (seen[0] > 0).sum())
    assert_close(dense(moves)[0], expected)


def test_marginals_and_the_sequence_of_a_shortlist_of_all_labels_are_those_of_all_sequences() -> None:
    moves = moves_of()
    for horizon in (3, 5):
        log = own_of(horizon)
        seen = ends_only(log)
        found = chain_marginals(moves, seen[:, 0], seen[:, -1], horizon)
        assert_close(found, by_step(moves, seen))
        labels = torch.arange(V).expand(*log.shape[:2], V)
        chain = kept_chain(labels, log, kept_moves(moves, labels))
        assert_close(kept_marginals(chain), by_step(moves, log))
        for labels, own in zip(decoded_sequence(chain).tolist(), log, strict=True):
            table = every_sequence(moves, own)[1].softmax(0).view((V,) * horizon)
            middles = [int(label) for label in best_middles(table)]
            assert labels[1:-1] == middles
            given = table[(slice(None), *middles, slice(None))]
            assert (labels[0], labels[-1]) == (int(given.sum(1).argmax()), int(given.sum(0).argmax()))


def test_transposed_moves_are_seen() -> None:
    """The planted fault: what follows and what is followed are exchanged."""
    moves, log = moves_of(), ends_only(own_of(4))
    turned = label_moves(sparse(moves.counts.matrix.to_dense().T), 20 * moves.frequent - 1)
    whole = by_step(moves, log)
    assert (chain_marginals(turned, log[:, 0], log[:, -1], 4) - whole).abs().max() > 0.05
    labels = torch.arange(V).expand(3, 4, V)
    assert (kept_marginals(kept_chain(labels, log, kept_moves(turned, labels))) - whole).abs().max() > 0.05


def test_without_weight_every_step_stands_by_itself() -> None:
    moves, log = moves_of(), own_of(4)
    labels = torch.arange(V).expand(3, 4, V)
    chain = kept_chain(labels, log, kept_moves(moves, labels), weight=0.0)
    assert_close(kept_marginals(chain), log.softmax(2))
    assert torch.equal(decoded_sequence(chain), log.argmax(2))


def drawn(n: int = 400, labels: int = 5, width: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Numbers of segments that depend on the label, on scales that differ by a thousand."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(labels, (n,), generator=g)
    look = 2 * torch.randn(labels, width, generator=g)
    mix = torch.randn(width, width, generator=g)
    scale = torch.logspace(-2, 1, width)
    return (look[label] + torch.randn(n, width, generator=g) @ mix) * scale, label


def test_the_shrinkage_is_that_of_its_definition() -> None:
    g = torch.Generator().manual_seed(2)
    x = torch.randn(30, 8, generator=g, dtype=torch.float64) @ torch.randn(8, 8, generator=g, dtype=torch.float64)
    covariance = x.T @ x / 30
    level = covariance.trace() / 8
    around = torch.stack([row[:, None] * row - covariance for row in x]).square().sum((1, 2)).mean() / 30
    share = min(1.0, float(around / (covariance - level * torch.eye(8)).square().sum()))
    expected = (1 - share) * covariance + (share * level + LEAST_VARIANCE) * torch.eye(8)
    assert 0 < share < 1
    assert_close(shrunk(covariance, x.square().sum(1).square().mean(), 30), expected)


def test_it_is_the_gaussian_of_each_label_with_one_covariance() -> None:
    x, label = drawn()
    found = fit_discriminant(x, label, 5)
    z = ((x - found.mean) / found.scale).double()
    means = torch.stack([z[label == v].sum(0) / ((label == v).sum() + 1) for v in range(5)])
    own = torch.stack([z[label == v].mean(0) for v in range(5)])
    left = z - own[label]
    covariance = shrunk(left.T @ left / 395, left.square().sum(1).square().sum() / 395, 395)
    gaussians = torch.distributions.MultivariateNormal(means, covariance).log_prob(z[:, None])
    said = found.log_likelihood(x)
    assert_close(said - said[:, :1], (gaussians - gaussians[:, :1]).float(), atol=2e-3, rtol=1e-3)
    assert (said.argmax(1) == label).float().mean() > 0.6


def test_a_label_without_segments_looks_like_any_and_a_constant_number_says_nothing() -> None:
    x, label = drawn()
    found = fit_discriminant(torch.cat([x, torch.ones(len(x), 1)], 1), label, 7)
    assert not found.weight[-1].any()
    assert_close(found.log_likelihood(torch.cat([x, torch.full((len(x), 1), 9.0)], 1))[:, 5:], torch.zeros(len(x), 2))


def test_labels_that_explain_everything_do_not_break_it() -> None:
    label = torch.arange(4).repeat(3)
    found = fit_discriminant(torch.eye(4)[label], label, 4)
    assert found.weight.isfinite().all()
    assert torch.equal(found.log_likelihood(torch.eye(4)).argmax(1), torch.arange(4))
