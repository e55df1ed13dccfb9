"""The chain of roles: every inference against an enumeration of all label sequences, written independently."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.models.role_chain import (
    RoleChain,
    RoleMoves,
    Sparse,
    best_middles,
    context_likeness,
    coupling,
    kept_chain,
    labels_of,
    marginals,
    role_kernel,
    role_moves,
    sparse,
    with_ends,
)

V, B = 4, 2
ALL = V**3


def random_chain(horizon: int = 4, seed: int = 0, jump: float = 0.1) -> RoleChain:
    """A chain of B queries in double precision; the last label is followed by nothing."""
    g = torch.Generator().manual_seed(seed)

    def positive(*size: int) -> Tensor:
        return torch.rand(*size, generator=g, dtype=torch.float64) + 0.05

    moves = positive(V, V) / V
    moves = moves / moves.sum(1, keepdim=True)
    moves[-1] = 0
    kernel = (3 * positive(V, V)).softmax(1)
    return RoleChain(positive(horizon, V, B), kernel, moves, positive(V, B), torch.tensor(jump, dtype=torch.float64))


def step(chain: RoleChain, query: int, a: int, b: int) -> float:
    """The weight of a step from label a to label b, place by place."""
    total = 0.0
    for place in range(V):
        here = sum(float(chain.kernel[place, c] * chain.preference[c, query]) for c in range(V))
        total += float(chain.moves[a, place] * chain.kernel[place, b] * chain.preference[b, query]) / here
    return (1 - float(chain.jump)) * total + float(chain.jump) / V


def sequences(chain: RoleChain, query: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every label sequence of one query and its weight."""
    steps = [[step(chain, query, a, b) for b in range(V)] for a in range(V)]
    for labels in itertools.product(range(V), repeat=len(chain.potential)):
        weight = math.prod(float(chain.potential[t, a, query]) for t, a in enumerate(labels))
        yield labels, weight * math.prod(steps[a][b] for a, b in itertools.pairwise(labels))


def middle_weights(chain: RoleChain, query: int) -> dict[tuple[int, ...], float]:
    """The weight of every sequence of middles, Start and Goal summed out."""
    out: dict[tuple[int, ...], float] = {}
    for labels, weight in sequences(chain, query):
        out[labels[1:-1]] = out.get(labels[1:-1], 0.0) + weight
    return out


@pytest.mark.parametrize("horizon", [3, 4, 5])
@pytest.mark.parametrize("jump", [1e-3, 0.3])
def test_marginals_are_those_of_all_sequences(horizon: int, jump: float) -> None:
    chain = random_chain(horizon, seed=horizon, jump=jump)
    expected = torch.zeros(B, horizon, V, dtype=torch.float64)
    for query in range(B):
        for labels, weight in sequences(chain, query):
            expected[query, torch.arange(horizon), torch.tensor(labels)] += weight
    assert_close(marginals(chain), expected / expected.sum(-1, keepdim=True))


def test_a_wrong_step_is_seen_by_the_enumeration() -> None:
    """Planted: places and labels mixed up, and a jump that was forgotten."""
    chain = random_chain()
    for wrong in (chain._replace(moves=chain.moves.T), chain._replace(jump=torch.tensor(0.0, dtype=torch.float64))):
        assert not torch.allclose(marginals(wrong), marginals(chain), atol=1e-3)


def test_a_step_leads_to_the_labels_of_one_place_in_the_ratio_of_their_preferences() -> None:
    """Labels 1 and 2 share their role and nothing speaks for either; the query prefers 2 three times as much."""
    kernel = torch.tensor([[1.0, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1.0]])
    moves = torch.tensor([[0, 1.0, 0, 0], [0, 0, 0, 1.0], [0, 0, 0, 1.0], [0, 0, 0, 0]])
    potential = torch.ones(3, V, 1)
    potential[0, 1:], potential[2, :3] = 0, 0
    preference = torch.tensor([1.0, 1.0, 3.0, 1.0])[:, None]
    middle = marginals(RoleChain(potential, kernel, moves, preference, torch.tensor(0.0)))[0, 1]
    assert_close(middle, torch.tensor([0, 0.25, 0.75, 0]))


@pytest.mark.parametrize("horizon", [3, 4, 5])
def test_the_best_middles_are_those_of_all_sequences(horizon: int) -> None:
    chain = random_chain(horizon, seed=10 + horizon)
    kept = kept_chain(chain, marginals(chain), V)
    places, scores = best_middles(kept, ALL)
    found = labels_of(kept, places)
    for query in range(B):
        expected = middle_weights(chain, query)
        pairs = zip(map(tuple, found[query].tolist()), scores[query].exp().tolist(), strict=True)
        assert dict(pairs) == pytest.approx(expected)
        assert tuple(found[query, scores[query].argmax()].tolist()) == max(expected, key=lambda m: expected[m])


def test_a_narrow_beam_returns_fewer_sequences_with_the_same_scores() -> None:
    chain = random_chain(5)
    kept = kept_chain(chain, marginals(chain), V)
    places, scores = best_middles(kept, 3)
    assert places.shape == (B, 3, 3)
    for query in range(B):
        expected = middle_weights(chain, query)
        for middles, score in zip(labels_of(kept, places)[query].tolist(), scores[query].exp().tolist(), strict=True):
            assert score == pytest.approx(expected[tuple(middles)])


@pytest.mark.parametrize("horizon", [3, 5])
def test_the_ends_are_the_best_given_the_middles(horizon: int) -> None:
    chain = random_chain(horizon, seed=20)
    kept = kept_chain(chain, marginals(chain), V)
    places, _ = best_middles(kept, ALL)
    found = labels_of(kept, places)
    for query in range(B):
        best: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        for labels, weight in sequences(chain, query):
            best[labels[1:-1]] = max(best.get(labels[1:-1], (0.0, ())), (weight, labels))
        for n in range(0, places.shape[1], 3):
            decoded = tuple(with_ends(kept, places[:, n])[query].tolist())
            assert decoded == best[tuple(found[query, n].tolist())][1]


@pytest.mark.parametrize("keep", [V, V + 5])
def test_a_chain_that_keeps_every_label_loses_nothing(keep: int) -> None:
    chain = random_chain()
    kept = kept_chain(chain, marginals(chain), keep)
    for query in range(B):
        labels = [of_step[query].tolist() for of_step in kept.labels]
        assert all(sorted(of_step) == list(range(V)) for of_step in labels)
        place = [{label: at for at, label in enumerate(of_step)} for of_step in labels]
        for sequence, weight in sequences(chain, query):
            at = [place[t][label] for t, label in enumerate(sequence)]
            score = sum(float(kept.potentials[t][query, p]) for t, p in enumerate(at))
            score += sum(float(kept.steps[t][query, p, q]) for t, (p, q) in enumerate(itertools.pairwise(at)))
            assert math.exp(score) == pytest.approx(weight)


def test_the_labels_kept_are_the_most_probable_of_their_step() -> None:
    chain = random_chain()
    probability = marginals(chain)
    for t, labels in enumerate(kept_chain(chain, probability, 2).labels):
        assert torch.equal(labels, probability[:, t].argsort(1, descending=True)[:, :2])


def test_a_step_of_potentials_that_are_all_zero_stays_finite() -> None:
    chain = random_chain()
    potential = chain.potential.clone()
    potential[1] = 0
    chain = chain._replace(potential=potential)
    kept = kept_chain(chain, marginals(chain), V)
    places, scores = best_middles(kept, 5)
    assert marginals(chain).isfinite().all()
    assert scores.isfinite().all()
    assert with_ends(kept, places[:, 0]).max() < V


def takes(n: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Weights (B, n) and preferences within roles (n, V) of some takes."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.rand(B, n, generator=g, dtype=torch.float64)
    return weight / weight.sum(1, keepdim=True), torch.rand(n, V, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("most", [2, 5, 9])
@pytest.mark.parametrize("middles", [1, 2, 4])
def test_coupling_is_its_formula(most: int, middles: int) -> None:
    weight, share = takes()
    labels = torch.randint(V, (B, 6, middles), generator=torch.Generator().manual_seed(1))
    found = coupling(labels, weight, share, most)
    for query, n in itertools.product(range(B), range(6)):
        heaviest = sorted(range(5), key=lambda t, q=query: -float(weight[q, t]))[:most]
        total = sum(float(weight[query, t]) for t in heaviest)
        w = {t: float(weight[query, t]) / total for t in heaviest}
        sequence = labels[query, n].tolist()
        together = sum(w[t] * math.prod(float(share[t, a]) for a in sequence) for t in heaviest)
        apart = math.prod(sum(w[t] * float(share[t, a]) for t in heaviest) for a in sequence)
        assert float(found[query, n]) == pytest.approx(math.log(together / apart))


def test_a_single_middle_step_is_not_coupled() -> None:
    weight, share = takes()
    assert_close(coupling(torch.arange(V).expand(B, V)[..., None], weight, share, 9), torch.zeros(B, V).double())


def test_a_pair_that_one_take_holds_is_coupled_and_a_pair_of_two_takes_is_not() -> None:
    """The first take prefers labels 0 and 1, the second 2 and 3."""
    share = torch.tensor([[0.9, 0.9, 0.1, 0.1], [0.1, 0.1, 0.9, 0.9]])
    labels = torch.tensor([[[0, 1], [2, 3], [0, 2]]])
    held, other, mixed = coupling(labels, torch.tensor([[0.5, 0.5]]), share, 2)[0].tolist()
    assert held == pytest.approx(math.log((0.81 + 0.01) / 2 / 0.25))
    assert held == pytest.approx(other)
    assert held > 0 > mixed


@pytest.mark.parametrize("hidden", [[True, False, True, False, False], [True] * 5])
def test_what_a_take_without_weight_prefers_couples_nothing(hidden: list[bool]) -> None:
    weight, share = takes()
    weight = weight.masked_fill(torch.tensor(hidden), 0.0)
    share[~torch.tensor(hidden), :] = 1e-9
    other = torch.where(torch.tensor(hidden)[:, None], share.flip(1), share)
    labels = torch.randint(V, (B, 8, 6), generator=torch.Generator().manual_seed(2))
    found = coupling(labels, weight, share, 5)
    assert found.isfinite().all()
    assert_close(coupling(labels, weight, other, 5), found, atol=0, rtol=0)
    if all(hidden):
        assert not found.any()


def test_the_rows_of_a_kernel_sum_to_one_and_near_labels_stand_for_each_other() -> None:
    look = torch.cdist(torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([[0.0], [0.1], [5.0]])).square()
    kernel = role_kernel(look, torch.zeros(3, 3), torch.tensor(1.0), torch.tensor(1.0))
    assert_close(kernel.sum(1), torch.ones(3))
    assert kernel[0, 1] > 0.4 > 1e-6 > kernel[0, 2]
    context = torch.tensor([[2.0, 0, 2], [0, 2, 0], [2, 0, 2]])
    assert role_kernel(look * 0, context, torch.tensor(1.0), torch.tensor(4.0))[0, 2] > 0.49


def test_moves_sum_to_one_or_where_nothing_follows_to_nothing() -> None:
    follows = sparse(torch.tensor([[0.0, 2, 1], [0, 0, 3], [0, 0, 0]]))
    moves = role_moves(follows, torch.eye(3)).dense()
    assert_close(moves, torch.tensor([[0, 2 / 3, 1 / 3], [0, 0, 1], [0, 0, 0]]))
    soft = role_moves(follows, torch.full((3, 3), 1 / 3)).dense()
    assert_close(soft.sum(1), torch.ones(3))
    assert not role_moves(sparse(torch.zeros(3, 3)), torch.eye(3)).dense().any()


def factored_chain() -> RoleChain:
    """The random chain with moves in factors."""
    chain, g = random_chain(), torch.Generator().manual_seed(1)
    follows = torch.randint(3, (V, V), generator=g).to(chain.kernel.dtype)
    return chain._replace(moves=role_moves(sparse(follows), chain.kernel))


def test_moves_in_factors_are_the_moves_that_their_product_is() -> None:
    """Planted: the transpose in the place of the matrix is seen."""
    chain = factored_chain()
    assert isinstance(chain.moves, RoleMoves)
    whole = chain._replace(moves=chain.moves.dense())
    assert_close(marginals(chain), marginals(whole))
    probability = marginals(chain)
    for one, other in zip(kept_chain(chain, probability, 3), kept_chain(whole, probability, 3), strict=True):
        assert_close(one, other)
    wrong = chain._replace(moves=chain.moves._replace(follows=Sparse(*chain.moves.follows[::-1])))
    assert not torch.allclose(marginals(wrong), marginals(whole), atol=1e-3)


def test_contexts_are_alike_where_the_same_comes_before_and_after() -> None:
    """Labels 1 and 2 both stand between 0 and 3; label 4 is never seen."""
    follows = torch.zeros(5, 5)
    follows[0, 1], follows[0, 2], follows[1, 3], follows[2, 3] = 2, 1, 4, 1
    alike = context_likeness(sparse(follows), torch.eye(5))
    assert_close(alike, alike.T)
    assert alike[1, 2] == pytest.approx(2.0)
    assert alike[0, 3] == 0
    assert not alike[4].any()
