"""Scorer+: its probabilities, what weighs a take, what it must not see, and that nothing makes it other than finite."""

from dataclasses import replace

import pytest
import torch
from planning_fixture import SCORER
from plus_fixture import (
    PLUS,
    T,
    V,
    answer,
    assert_sound,
    candidates_of,
    corpus,
    hiding,
    moved,
    network,
    random_inputs,
    random_queries,
    random_statistics,
    source_of,
)
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.data.chains import query_takes
from trajpilot_core.models.role_chain import sparse
from trajpilot_core.models.scorer_plus import EXPERTS, PlusInputs, ScorerPlus, TrainingStatistics
from trajpilot_core.training.scorer_plus import plus_answers, plus_loss, plus_queries
from trajpilot_core.training.scorer_plus_statistics import below_best, plus_source, seen_takes


@pytest.mark.parametrize("horizon", [3, 4, 7])
@pytest.mark.parametrize("experts", [2, 3])
def test_probabilities_sum_to_one_at_every_step(horizon: int, experts: int) -> None:
    probability, decoded = answer(network(), random_inputs(horizon, experts), random_statistics())
    assert probability.shape == (3, horizon, V)
    assert decoded.shape == (3, horizon)
    assert_sound(probability, decoded)


def test_two_experts_and_three_share_their_parameters() -> None:
    scorer, inputs, statistics = network(), random_inputs(), random_statistics()
    two = inputs._replace(plans=inputs.plans[:, :2])
    third_is_zero = inputs._replace(plans=inputs.plans.index_fill(1, torch.tensor(2), 0.0))
    assert_close(answer(scorer, two, statistics)[0], answer(scorer, third_is_zero, statistics)[0])
    assert not torch.allclose(answer(scorer, two, statistics)[0], answer(scorer, inputs, statistics)[0], atol=1e-3)
    assert scorer.plan.shape == (EXPERTS, 2)


@pytest.mark.parametrize("expert", [0, 1, 2])
def test_every_expert_is_read_at_ends_and_middles(expert: int) -> None:
    scorer, inputs, statistics = network(), random_inputs(), random_statistics()
    for step in range(4):
        plans = inputs.plans.clone()
        plans[:, expert, step] = statistics.bank[0]
        other = answer(scorer, inputs._replace(plans=plans), statistics)[0]
        assert not torch.allclose(other[:, step], answer(scorer, inputs, statistics)[0][:, step], atol=1e-3)


@pytest.mark.parametrize("horizon", [3, 5])
def test_a_single_middle_is_its_marginals_best_whatever_labels_are_kept(horizon: int) -> None:
    """Planted: of several middles the best together need not be the best each."""
    scorer = network(PLUS.replace(kept_labels=2, plan_ends=0.1, plan_middles=3.0, recognition=0.1))
    probability, decoded = answer(scorer, random_inputs(horizon, b=400), random_statistics())
    same = decoded[:, 1:-1] == probability[:, 1:-1].argmax(-1)
    assert bool(same.all()) is (horizon == 3)


def renamed(statistics: TrainingStatistics, takes: Tensor, labels: Tensor) -> TrainingStatistics:
    """The same training statistics with takes and labels in another order."""
    return TrainingStatistics(
        statistics.bank[labels],
        statistics.counts[takes][:, labels],
        sparse(statistics.follows.matrix.to_dense()[labels][:, labels]),
        statistics.look[labels][:, labels],
        statistics.context[labels][:, labels],
        statistics.clash[labels][:, takes],
    )


def test_the_order_of_takes_and_labels_means_nothing() -> None:
    scorer, inputs, statistics = network(), random_inputs(), random_statistics()
    takes, labels = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([5, 2, 0, 1, 4, 3])
    other = inputs._replace(manner=inputs.manner[:, takes], recognised=inputs.recognised[:, :, labels])
    one, found = answer(scorer, inputs, statistics), answer(scorer, other, renamed(statistics, takes, labels))
    assert_close(found[0], one[0][:, :, labels])
    assert torch.equal(labels[found[1]], one[1])


def weights(scorer: ScorerPlus, inputs: PlusInputs, statistics: TrainingStatistics) -> Tensor:
    with torch.inference_mode():
        return scorer.read(inputs, scorer.roles(statistics)).weight


def test_a_take_that_moves_like_the_query_weighs_more() -> None:
    scorer, inputs, statistics = network(), random_inputs(), random_statistics()
    before = weights(scorer, inputs, statistics)
    after = weights(scorer, inputs._replace(manner=inputs.manner + torch.eye(T)[2] * 3), statistics)
    assert_close(before.sum(1), torch.ones(3))
    assert (after[:, 2] > before[:, 2]).all()
    assert (after[:, [0, 1, 3, 4]] < before[:, [0, 1, 3, 4]]).all()


def test_a_take_that_holds_what_the_ends_may_be_weighs_more() -> None:
    statistics = random_statistics()
    counts = statistics.counts.clone()
    counts[:, 0] = 0
    ends = torch.zeros(3, 2, V)
    ends[:, :, 0] = 50.0
    inputs = random_inputs()._replace(recognised=below_best(ends))
    before = weights(network(), inputs, replace(statistics, counts=counts))
    counts[3, 0] = 1
    assert (weights(network(), inputs, replace(statistics, counts=counts)) > before)[:, 3].all()


def test_a_take_whose_motion_the_ends_labels_would_undo_weighs_less() -> None:
    scorer, inputs, statistics = network(), random_inputs(), random_statistics()
    clash = statistics.clash.clone()
    clash[:, 1] += 2.0
    assert (weights(scorer, inputs, replace(statistics, clash=clash)) < weights(scorer, inputs, statistics))[:, 1].all()


def twins() -> TrainingStatistics:
    """Labels 1 and 2 are interchangeable and stand between 0 and 3; the first two takes prefer 1, the others 2."""
    statistics = random_statistics()
    position = torch.tensor([0.0, 1, 1, 2, 3, 4])[:, None] * 20
    follows = torch.zeros(V, V)
    follows[0, 1], follows[0, 2], follows[1, 3], follows[2, 3] = 5, 5, 5, 5
    counts = torch.tensor([[3.0, 3, 0, 3, 1, 1]] * 2 + [[3, 0, 3, 3, 1, 1]] * 3)
    look = torch.cdist(position, position).square()
    return replace(
        statistics,
        follows=sparse(follows),
        counts=counts,
        look=look,
        context=torch.zeros(V, V),
        clash=torch.zeros(V, T),
    )


@pytest.mark.parametrize(("like", "label"), [(0, 1), (3, 2)])
def test_the_takes_that_the_query_resembles_decide_between_interchangeable_labels(like: int, label: int) -> None:
    ends = torch.zeros(1, 2, V)
    ends[0, 0, 0], ends[0, 1, 3] = 20.0, 20.0
    manner = torch.zeros(1, T)
    manner[0, like] = 10.0
    inputs = PlusInputs(torch.zeros(1, 2, 3, 8), below_best(ends), below_best(manner))
    probability, decoded = answer(network(), inputs, twins())
    assert decoded.tolist() == [[0, label, 3]]
    assert probability[0, 1, label] > 2 * probability[0, 1, 3 - label]


def test_expected_gain_is_the_expected_m1_of_the_best_over_the_fallback_and_never_negative() -> None:
    queries = random_queries(40)
    (found,) = plus_answers(network(), queries, network().answering(random_statistics()))
    for query in range(40):
        middle = found.probability[query, 1:-1]
        own = [float(middle[m, label]) for m, label in enumerate(queries.fallback[query, 1:-1].tolist())]
        expected = sum(float(middle[m].max()) - p for m, p in enumerate(own)) / len(own)
        assert float(found.gain[query]) == pytest.approx(expected, abs=1e-6)
    assert (found.gain >= 0).all()
    best = replace(queries, fallback=found.probability.argmax(-1))
    assert not next(plus_answers(network(), best, network().answering(random_statistics()))).gain.any()


def test_answers_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(plus_answers(network(), random_queries(40), network().answering(random_statistics())))
    monkeypatch.setattr("trajpilot_core.training.scorer_plus.BATCH", 7)
    parts = list(plus_answers(network(), random_queries(40), network().answering(random_statistics())))
    assert (len(whole), len(parts)) == (1, 6)
    assert_close(torch.cat([part.gain for part in parts]), whole[0].gain)
    assert torch.equal(torch.cat([part.decoded for part in parts]), whole[0].decoded)


def test_a_take_not_to_be_seen_has_no_weight() -> None:
    weight = weights(network(), hiding(random_inputs(), 1, 3), random_statistics())
    assert not weight[:, [1, 3]].any()
    assert_close(weight.sum(1), torch.ones(3))


@pytest.mark.parametrize("horizon", [3, 6])
def test_what_a_hidden_take_holds_moves_the_answer_only_through_what_all_takes_share(horizon: int) -> None:
    """Without kinship and common counts nothing does; planted: the same take in sight."""
    scorer, statistics = moved(network(), own=0.0, common=-100.0), random_statistics()
    counts = statistics.counts.clone()
    counts[2] = counts[2].flip(0) + torch.tensor([9.0, 0, 0, 0, 0, 4])
    other = replace(statistics, counts=counts)
    inputs = random_inputs(horizon, b=20)
    hidden = hiding(inputs, 2)
    one, found = answer(scorer, hidden, statistics), answer(scorer, hidden, other)
    assert_close(found[0], one[0], atol=1e-6, rtol=1e-5)
    assert torch.equal(found[1], one[1])
    assert not torch.allclose(answer(scorer, inputs, other)[0], answer(scorer, inputs, statistics)[0], atol=1e-3)


def test_two_hidden_takes_may_change_places() -> None:
    """Everything that all takes share stays as it was; planted: a take in sight changes places with a hidden one."""
    scorer, statistics, inputs = network(), random_statistics(), hiding(random_inputs(5, b=20), 0, 4)
    swapped = replace(statistics, counts=statistics.counts[[4, 1, 2, 3, 0]], clash=statistics.clash[:, [4, 1, 2, 3, 0]])
    one, found = answer(scorer, inputs, statistics), answer(scorer, inputs, swapped)
    assert_close(found[0], one[0], atol=1e-6, rtol=1e-5)
    assert torch.equal(found[1], one[1])
    seen = replace(statistics, counts=statistics.counts[[1, 0, 2, 3, 4]])
    assert not torch.allclose(answer(scorer, inputs, seen)[0], one[0], atol=1e-3)


def test_a_query_with_no_take_to_be_seen_is_answered_by_what_all_share() -> None:
    inputs = hiding(random_inputs(5), *range(T))
    reading_weight = weights(network(), inputs, random_statistics())
    assert not reading_weight.any()
    probability, decoded = answer(network(), inputs, random_statistics())
    assert_sound(probability, decoded)
    assert_close(probability, answer(network(), inputs._replace(manner=inputs.manner * 3), random_statistics())[0])


def test_the_own_take_is_never_seen_and_in_strict_mode_nor_is_its_participant() -> None:
    data = corpus()
    loose, strict = source_of(data), source_of(data, config=SCORER.replace(strict=True))
    for take in range(len(data.take_ids)):
        person = data.participants[take]
        for source, also in ((loose, False), (strict, True)):
            seen = seen_takes(source, torch.tensor([take]))[0]
            for other, is_seen in zip(source.fitted.takes.tolist(), seen.tolist(), strict=True):
                same = also and person != "" and data.participants[other] == person
                assert is_seen is (other != take and not same)


def test_no_query_sees_its_own_take_and_takes_of_dev_and_test_are_in_no_statistics() -> None:
    data = corpus(folds=3)
    for number in range(1, 4):
        source = source_of(data, 3, number)
        own = query_takes(data, source.view.chain)
        assert len(own)
        assert not torch.isin(own, source.fitted.takes).any()
        assert (data.take_split[source.fitted.takes] == 0).all()
        assert source.fitted.statistics.counts.sum() == torch.isin(data.segment_take, source.fitted.takes).sum()


def test_the_middles_and_the_labels_of_a_querys_own_take_reach_no_answer() -> None:
    """Planted: another Start moves it."""
    data = corpus()
    own = query_takes(data, source_of(data).view.chain)[0]
    row = (data.windows[4].take == own).nonzero()[:1, 0]
    segments = data.windows[4].segments[row[0]]

    def found(labels: Tensor, changed: Tensor) -> tuple[Tensor, Tensor]:
        motions, features = data.motions.clone(), data.features.clone()
        motions[changed], features[changed] = -motions[changed], -features[changed]
        source = source_of(replace(data, labels=labels, motions=motions, features=features))
        queries = plus_queries(source, candidates_of(source, row))
        return answer(network(), PlusInputs(*(value.float() for value in queries.inputs)), source.fitted.statistics)

    others = torch.where(data.segment_take == own, (data.labels + 1) % 12, data.labels)
    one, same = found(data.labels, segments[:0]), found(others, segments[1:-1])
    assert torch.equal(one[0], same[0])
    assert torch.equal(one[1], same[1])
    assert not torch.allclose(found(data.labels, segments[:1])[0], one[0], atol=1e-3)


def test_strict_hides_the_participants_takes_from_the_weights() -> None:
    data = corpus()
    strict = source_of(data, config=SCORER.replace(strict=True))
    rows = (data.windows[4].split == 2).nonzero()[:, 0]
    found = candidates_of(strict, rows, config=SCORER.replace(strict=True))
    inputs = plus_queries(strict, found).inputs
    hidden = ~seen_takes(strict, found.take)
    assert hidden.any()
    assert torch.equal(inputs.manner == -torch.inf, hidden)
    assert not weights(network(), PlusInputs(*(value.float() for value in inputs)), strict.fitted.statistics)[
        hidden
    ].any()
    every = plus_queries(source_of(data), found).inputs.manner
    assert every.isfinite().all(), "planted: queries of test takes see every take where it is not strict"


def test_the_inputs_of_the_corpus_have_the_experts_of_their_chain() -> None:
    data = corpus(folds=3)
    final, fold = source_of(data, 3, 0), source_of(data, 3, 1)
    rows = (data.windows[4].split == 1).nonzero()[:3, 0]
    for source, experts in ((final, 3), (fold, 2)):
        queries = plus_queries(source, candidates_of(source, rows))
        assert queries.inputs.plans.shape == (3, experts, 4, 16)
        assert torch.equal(queries.labels, data.labels[data.windows[4].segments[rows]])
        assert_close(queries.inputs.recognised.amax(-1), torch.zeros(3, 2).half())
        probability, decoded = answer(
            network(), PlusInputs(*(value.float() for value in queries.inputs)), source.fitted.statistics
        )
        assert_sound(probability, decoded)


def test_scorer_plus_that_is_off_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="off"):
        plus_source(source_of(corpus()).view, SCORER.replace(plus=None))


def test_no_queries_have_no_answers() -> None:
    none = [
        a for a in plus_answers(network(), random_queries(0), network().answering(random_statistics())) if len(a.gain)
    ]
    assert none == []


def test_the_loss_reaches_every_parameter() -> None:
    scorer = network()
    loss = plus_loss(scorer, random_queries(), torch.arange(20), random_statistics())
    loss.backward()
    for name, parameter in scorer.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).all(), name


def test_the_loss_is_the_mean_surprise_of_the_true_middles() -> None:
    queries, statistics, rows = random_queries(), random_statistics(), torch.tensor([3, 17])
    inputs = PlusInputs(*(value[rows] for value in queries.inputs))
    probability = answer(network(), inputs, statistics)[0]
    own = [probability[i, m, queries.labels[row, m]] for i, row in enumerate(rows.tolist()) for m in (1, 2)]
    assert_close(plus_loss(network(), queries, rows, statistics).detach(), -torch.stack(own).log().mean())
    ends = replace(queries, labels=queries.labels.index_fill(1, torch.tensor([0, 3]), 0))
    assert_close(plus_loss(network(), ends, rows, statistics), plus_loss(network(), queries, rows, statistics))


def test_two_experts_leave_the_third_where_it_began() -> None:
    scorer = network()
    plus_loss(scorer, random_queries(experts=2), torch.arange(20), random_statistics()).backward()
    assert (scorer.plan.grad[:2] != 0).all()
    assert not scorer.plan.grad[2].any()
    assert_close(scorer.plan.detach().exp(), torch.tensor([[PLUS.plan_ends, PLUS.plan_middles]] * EXPERTS))
