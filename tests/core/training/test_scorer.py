"""The scorer network, its targets and losses, and the threshold."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_fixture import SCORER
from torch.nn import functional as F
from torch.testing import assert_close

from trajpilot_core.models.ranking import LabelBank
from trajpilot_core.models.readout import CosineReadout
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerInputs, ScorerShape
from trajpilot_core.retrieval.candidates import scores_of
from trajpilot_core.training.scorer import NEVER, best_threshold, class_weights, plain_mean, scorer_loss
from trajpilot_core.training.scorer_fit import best_temperature

SHAPE = ScorerShape(query=22, embed=8, max_mids=4)


def random_inputs(b=3, k=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    n_mids = torch.tensor([1, 3, 4])[:b]
    there = (torch.arange(4) < n_mids[:, None]).float()[:, None, :, None]
    plans, latents, labels = (F.normalize(torch.randn(b, k, 4, 8, generator=g), dim=-1) * there for _ in range(3))
    fallback = F.normalize(torch.randn(b, 4, 8, generator=g), dim=-1) * there[:, 0]
    return ScorerInputs(
        torch.randn(b, 22, generator=g), fallback, plans, latents, labels, torch.ones(b, k, dtype=torch.bool), n_mids
    )


def network(seed=0):
    torch.manual_seed(seed)
    return GateThenRankScorer(SCORER, SHAPE).eval()


@settings(derandomize=True, deadline=None, max_examples=20)
@given(order=st.permutations(range(5)))
def test_permuting_the_candidates_permutes_the_ranks_and_leaves_the_gate(order):
    inputs, scorer = random_inputs(), network()
    gate, rank = scorer(inputs)
    shuffled = inputs._replace(**{name: getattr(inputs, name)[:, order] for name in ("plans", "latents", "labels")})
    other_gate, other_rank = scorer(shuffled)
    assert_close(other_gate, gate, atol=1e-5, rtol=1e-5)
    assert_close(other_rank, rank[:, order], atol=1e-5, rtol=1e-5)


def test_what_stands_at_an_absent_candidate_does_not_matter():
    inputs, scorer = random_inputs(), network()
    valid = inputs.valid.clone()
    valid[:, 3:] = False
    one = scorer(inputs._replace(valid=valid))
    other = scorer(inputs._replace(valid=valid, plans=inputs.plans.index_fill(1, torch.tensor([3, 4]), 7.0)))
    assert_close(one, other)
    assert (one[1][:, 3:] == -torch.inf).all()
    gate, rank = scorer(inputs._replace(valid=torch.zeros_like(valid)))
    assert gate.isfinite().all()
    assert (rank == -torch.inf).all()


def test_every_input_of_a_candidate_reaches_its_rank():
    inputs, scorer = random_inputs(), network()
    for name in ("query", "fallback", "plans", "latents", "labels"):
        changed = inputs._replace(**{name: getattr(inputs, name).roll(1, dims=0)})
        assert not torch.allclose(scorer(changed)[1], scorer(inputs)[1]), name
    swapped = inputs.plans.clone()  # the order of a plan's steps matters, and not only their mean
    swapped[2, :, [0, 1]] = inputs.plans[2, :, [1, 0]]
    assert not torch.allclose(scorer(inputs._replace(plans=swapped))[1][2], scorer(inputs)[1][2])


def test_utility_is_the_papers_sum():
    bank = torch.eye(8)
    truth, ends, take = torch.tensor([[0, 1]]), bank[None, :2], torch.tensor([0])
    right, half = bank[torch.tensor([[[0, 1]], [[0, 2]]])].transpose(0, 1)[0]
    plans = torch.stack([right, half])[None]
    scores = scores_of(CosineReadout(LabelBank(bank)), ends, plans, truth, take, (0.1, 1.0, 0.5, 1.0))
    # the second plan: cosine 0.5, R@1 0.5, R@5 1 (ties at cosine 0: label 1 is the first of seven), no exact sequence
    assert_close(scores.utility[0], torch.tensor([0.1 + 1 + 0.5 + 1, 0.05 + 0.5 + 0.5]))
    assert scores.m1.tolist() == [[1.0, 0.5]]


def test_class_weights_give_both_classes_half():
    positive = torch.tensor([True] * 9 + [False])
    up, down = class_weights(positive)
    assert_close(9 * up, 5.0)
    assert_close(1 * down, 5.0)
    assert class_weights(torch.ones(3, dtype=torch.bool)) == (1.0, 1.0)


def test_rank_losses_count_on_gate_positive_rows_only():
    g = torch.Generator().manual_seed(0)
    gate, rank, utility = (torch.randn(*size, generator=g) for size in ((4,), (4, 3), (4, 3)))
    opens = torch.tensor([True, False, True, False])
    other = rank.clone()
    other[~opens] = torch.randn(2, 3, generator=g)
    args = utility, opens, (1.0, 1.0), SCORER
    assert_close(scorer_loss(gate, rank, *args), scorer_loss(gate, other, *args))
    ungated = SCORER.replace(loss_weights=(0.0, 1.0, 1.0))
    cut = scorer_loss(gate[opens], rank[opens], utility[opens], opens[opens], (1.0, 1.0), ungated)
    assert_close(scorer_loss(gate, rank, utility, opens, (1.0, 1.0), ungated), cut)
    shut = torch.zeros(4, dtype=torch.bool)
    only_gate = F.binary_cross_entropy_with_logits(gate, torch.zeros(4))
    assert_close(scorer_loss(gate, rank, utility, shut, (1.0, 1.0), SCORER), only_gate)


def test_the_loss_is_bce_plus_ce_plus_kl():
    gate, rank = torch.tensor([0.3]), torch.tensor([[1.0, 0.0, -torch.inf]])
    utility = torch.tensor([[0.2, 0.25, -torch.inf]])
    config = SCORER.replace(loss_weights=(1.0, 2.0, 3.0), utility_temperature=0.1)
    log_q = torch.tensor([1.0, 0.0]).log_softmax(0)
    p = (torch.tensor([0.2, 0.25]) / 0.1).softmax(0)
    expected = F.softplus(torch.tensor(-0.3)) - 2 * log_q[1] + 3 * (p * (p.log() - log_q)).sum()
    assert_close(scorer_loss(gate, rank, utility, torch.tensor([True]), (1.0, 1.0), config), expected)


def test_absent_candidates_give_finite_gradients():
    gate, rank = torch.zeros(2, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    absent = torch.tensor([[False, False, True], [True, True, True]])
    utility = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]]).masked_fill(absent, -torch.inf)
    opens = torch.tensor([True, False])
    scorer_loss(gate, rank.masked_fill(absent, -torch.inf), utility, opens, (1.0, 1.0), SCORER).backward()
    assert gate.grad.isfinite().all()
    assert rank.grad.isfinite().all()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(seed=st.integers(0, 9999), n=st.integers(1, 12))
def test_no_threshold_beats_the_chosen_one_and_it_is_the_highest_of_equals(seed, n):
    g = torch.Generator().manual_seed(seed)
    gate = torch.randint(5, (n,), generator=g) / 5
    gain, horizon = torch.randint(-4, 5, (n,), generator=g) / 4, torch.randint(3, (n,), generator=g)
    chosen = best_threshold(gate, gain, horizon)
    value = {t: plain_mean(gain * (gate >= t), horizon) for t in [*gate.tolist(), NEVER]}
    assert value[chosen] >= max(value.values()) - 1e-9
    assert chosen >= max(t for t, v in value.items() if v >= value[chosen] - 1e-9) - 1e-9
    assert best_threshold(gate[:0], gain[:0], horizon[:0]) == NEVER


def test_the_temperature_is_the_best_on_dev_and_the_highest_of_equals():
    m1 = torch.tensor([[0.1, 0.4, 0.4, 0.2]]).repeat(3, 1)
    assert best_temperature((0.01, 0.1, 0.5, 1.0), m1, torch.ones(3).long()) == 0.5
    assert best_temperature((0.01, 0.1), torch.empty(0, 2), torch.empty(0).long()) == 0.1
