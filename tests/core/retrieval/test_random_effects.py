"""Effects of labels and takes, on segments drawn from the model itself and against Bayes' rule by brute force."""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

from schemas.training import EffectsConfig
from trajpilot_core.retrieval import random_effects
from trajpilot_core.retrieval.random_effects import (
    RandomEffects,
    Sizes,
    fit_effects,
    group_sums,
    label_ratios,
    placed,
    take_ratios,
)

CONFIG = EffectsConfig()
SIZES = Sizes(labels=8, takes=40)
C = 6


class Drawn(NamedTuple):
    """Segments of the model, and what they were drawn with."""

    x: Tensor
    label: Tensor
    take: Tensor
    of_label: Tensor
    of_take: Tensor
    mix: Tensor


def drawn(segments: int = 800, seed: int = 0, sizes: Sizes = SIZES) -> Drawn:
    """Columns of very different scale whose noise is correlated."""
    g = torch.Generator().manual_seed(seed)
    of_label, of_take = 1.5 * torch.randn(sizes.labels, C, generator=g), torch.randn(sizes.takes, C, generator=g)
    label = torch.randint(sizes.labels, (segments,), generator=g)
    take = torch.randint(sizes.takes, (segments,), generator=g)
    mix = torch.randn(C, C, generator=g) + 2 * torch.eye(C)
    mix = mix * torch.tensor([1e-3, 1.0, 1.0, 10.0, 1e3, 1.0])
    x = of_label[label] + of_take[take] + torch.randn(segments, C, generator=g)
    return Drawn(x @ mix + 7.0, label, take, of_label, of_take, mix)


def fitted(data: Drawn, directions: int = C, sizes: Sizes = SIZES) -> RandomEffects:
    return fit_effects(data.x, data.label, data.take, sizes, directions, CONFIG)


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """(W,) correlation of the columns of two (G, W) tensors."""
    a, b = a - a.mean(0), b - b.mean(0)
    return (a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0))


def test_the_effects_are_those_that_the_segments_were_drawn_with() -> None:
    data = drawn()
    effects = fitted(data)
    back = data.mix @ effects.project
    assert correlation(effects.label, data.of_label @ back).min() > 0.98
    assert correlation(effects.take, data.of_take @ back).min() > 0.93
    assert correlation(effects.take, (data.of_take @ back).roll(1, dims=0)).max() < 0.7, "planted: other takes"


def test_the_noise_has_variance_one_and_takes_their_spread_in_the_directions() -> None:
    data = drawn(4000)
    effects = fitted(data)
    back = data.mix @ effects.project
    assert_close(back.T @ back, torch.eye(C), atol=0.15, rtol=0)
    assert_close(effects.take_spread, back.T @ data.of_take.T.cov() @ back, atol=0.35, rtol=0.2)


def test_the_spread_of_takes_is_that_of_their_effects_where_each_has_few_segments() -> None:
    """The expected effects are shrunk and spread less; planted: their own spread."""
    data = drawn(1200, sizes=Sizes(8, 400))
    effects = fitted(data, sizes=Sizes(8, 400))
    back = data.mix @ effects.project
    true = (back.T @ back).diagonal()
    assert_close(effects.take_spread.diagonal(), true, atol=0, rtol=0.25)
    assert (effects.take.var(0) < 0.8 * true).all()


def test_the_first_directions_dropped_are_those_in_which_labels_differ_least() -> None:
    whole, two = fitted(drawn()), fitted(drawn(), directions=2)
    assert two.label.shape == (SIZES.labels, 2)
    assert_close(two.project, whole.project[:, -2:])
    assert whole.label.var(0).argsort()[-2:].sort().values.tolist() == [C - 2, C - 1]
    assert fitted(drawn(), directions=99).project.shape == (C, C)


def test_other_units_of_a_column_change_no_effect() -> None:
    data = drawn()
    units = torch.tensor([1.0, 100.0, 0.01, 1.0, -3.0, 1.0])
    one, other = fitted(data), fitted(data._replace(x=data.x * units + 5.0))
    assert_close(other.label @ other.label.T, one.label @ one.label.T, atol=0.02, rtol=1e-3)
    assert_close(other.take @ other.take.T, one.take @ one.take.T, atol=0.02, rtol=1e-3)


def test_the_ratios_of_takes_rank_the_true_take_far_above_chance() -> None:
    data = drawn()
    effects = fitted(data)
    g = torch.Generator().manual_seed(9)
    take = torch.arange(SIZES.takes)
    label = torch.randint(SIZES.labels, (len(take), 2), generator=g)
    x = (data.of_label[label] + data.of_take[:, None] + torch.randn(len(take), 2, C, generator=g)) @ data.mix + 7.0
    ratios = take_ratios(effects, placed(effects, x) - effects.label[label])
    rank = (ratios > ratios[take, take][:, None]).sum(1).float()
    assert rank.mean() < 0.15 * SIZES.takes, "chance is half of the takes"
    with_labels = take_ratios(effects, placed(effects, x))
    assert (with_labels > with_labels[take, take][:, None]).sum(1).float().mean() < 0.4 * SIZES.takes
    assert (ratios > ratios[take, take.roll(1)][:, None]).sum(1).float().mean() > 0.35 * SIZES.takes


def by_hand(seed: int = 0, size: float = 1.0, labels: int = 5, w: int = 3) -> RandomEffects:
    """Effects in double precision whose take effects are correlated."""
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(w, w, generator=g, dtype=torch.float64)
    label = size * torch.randn(labels, w, generator=g, dtype=torch.float64)
    take = torch.randn(7, w, generator=g, dtype=torch.float64)
    one = torch.eye(w, dtype=torch.float64)
    return RandomEffects(torch.zeros(w).double(), one, label, take, root @ root.T + 0.1 * one)


def of_both(effects: RandomEffects, ends: Tensor) -> Tensor:
    """(V, V) log density of two segments (2, W) of one unknown take, for every pair of labels."""
    w, one = len(effects.take_spread), torch.eye(len(effects.take_spread)).double()
    shared = effects.take_spread.repeat(2, 2) + torch.block_diag(one, one)
    law = MultivariateNormal(torch.zeros(2 * w).double(), shared)
    pairs = [[torch.cat([ends[0] - a, ends[1] - b]) for b in effects.label] for a in effects.label]
    return torch.stack([law.log_prob(torch.stack(row)) for row in pairs])


def ends_of(effects: RandomEffects, n: int = 4, seed: int = 1) -> Tensor:
    """(n, 2, W) pairs of segments of one take each."""
    g = torch.Generator().manual_seed(seed)
    w = len(effects.take_spread)
    label = torch.randint(len(effects.label), (n, 2), generator=g)
    take = torch.randn(n, 1, w, generator=g).double() @ torch.linalg.cholesky(effects.take_spread.double()).T
    noise = torch.randn(n, 2, w, generator=g).double()
    return effects.label[label] + take + noise


def single(effects: RandomEffects) -> RandomEffects:
    """The same in single precision, as they are fitted."""
    return RandomEffects(*(value.float() for value in vars(effects).values()))


@pytest.mark.parametrize("size", [0.3, 1.0, 4.0, 8.0, 15.0])
@pytest.mark.parametrize("tempering", [1.0, 0.5])
def test_the_ratios_of_labels_are_those_of_bayes(size: float, tempering: float) -> None:
    effects = by_hand(size=size)
    ends = ends_of(effects, 40)
    found = label_ratios(single(effects), ends.float(), tempering)
    for query, pair in enumerate(ends):
        both = tempering * of_both(effects, pair)
        expected = torch.stack([both.logsumexp(1), both.logsumexp(0)]).log_softmax(1)
        assert_close(found[query].double().log_softmax(1), expected, atol=1e-3, rtol=1e-3)
        assert_close(found[query].double().softmax(1), expected.exp(), atol=2e-3, rtol=0)


def test_what_is_known_of_one_end_tells_something_of_the_other() -> None:
    """Planted: takes without any spread, whose two ends say nothing of each other."""
    shared = single(by_hand())
    alone = replace(shared, take_spread=torch.zeros(3, 3))
    ends = ends_of(by_hand()).float()
    moved = ends + torch.tensor([[0.0], [3.0]])
    for effects, moves in ((shared, True), (alone, False)):
        one, other = (label_ratios(effects, x, 1.0)[:, 0].log_softmax(-1) for x in (ends, moved))
        assert torch.allclose(one, other, atol=0.01) is not moves


def test_the_ratios_of_takes_are_those_of_their_densities() -> None:
    effects = by_hand()
    ends = ends_of(effects)
    law = MultivariateNormal(torch.zeros(3).double(), torch.eye(3).double())
    expected = torch.stack([(law.log_prob(ends - t) - law.log_prob(ends)).sum(1) for t in effects.take], dim=1)
    assert_close(take_ratios(effects, ends), expected)


def test_lost_sums_are_bounded_by_their_terms_and_equal_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = single(by_hand(size=100.0))
    ends = 30 * torch.randn(40, 2, 3, generator=torch.Generator().manual_seed(0))
    whole = label_ratios(effects, ends, 1.0)
    terms, exact = [], torch.logsumexp

    def counted(x: Tensor, dim: int) -> Tensor:
        terms.append(x.numel())
        return exact(x, dim=dim)

    monkeypatch.setattr(torch, "logsumexp", counted)
    for limit in (1, 3 * len(effects.label), 1 << 24):
        terms.clear()
        monkeypatch.setattr(random_effects, "LOST_AT_ONCE", limit)
        assert torch.equal(label_ratios(effects, ends, 1.0), whole)
        assert sum(terms) > 10 * len(effects.label), "planted: many sums are lost"
        assert max(terms) <= max(limit, len(effects.label))


def summed_as_few_labels_are(of_other: Tensor, both: Tensor) -> Tensor:
    """The sums over the other end's labels in the precision of the numbers, lost ones exactly: a copy, frozen."""
    highest = both.amax(1)
    top = of_other.amax(-1, keepdim=True)
    summed = (of_other - top).exp() @ (both - highest[:, None]).exp().T
    out = top + highest + summed.clamp_min(1e-30).log()
    query, end, label = (summed < 1e-30).nonzero().unbind(1)
    out[query, end, label] = torch.logsumexp(of_other[query, end] + both[label], dim=1)
    return out


def ratios_and_terms(
    effects: RandomEffects, ends: Tensor, many_labels: int, tiny: float = 1e-300
) -> tuple[Tensor, int]:
    """Ratios where so many labels are many and sums below `tiny` are lost in double precision; terms of lost sums."""
    terms, exact = [0], torch.logsumexp

    def counted(x: Tensor, dim: int) -> Tensor:
        terms.append(x.numel())
        return exact(x, dim=dim)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch, "logsumexp", counted)
        patched.setattr(random_effects, "MANY_LABELS", many_labels)
        patched.setitem(random_effects.TINY, torch.float64, tiny)
        return label_ratios(effects, ends, 1.0), sum(terms)


NEVER = 10**9
"""As MANY_LABELS: no vocabulary is large."""


def rounding(ratios: Tensor) -> float:
    """A millionth of the largest: eight units in the last place of single precision."""
    return 1e-6 * ratios.abs().max().clamp_min(1).item()


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.floats(0.5, 60.0), st.integers(2, 40), st.integers(1, 4), st.integers(1, 50))
def test_sums_of_many_labels_are_those_of_few(seed: int, size: float, labels: int, w: int, many: int) -> None:
    effects = by_hand(seed, size, labels, w)
    effects, ends = single(effects), ends_of(effects, 6, seed + 1).float()
    few, _ = ratios_and_terms(effects, ends, NEVER)
    found, _ = ratios_and_terms(effects, ends, many)
    assert_close(found, few, rtol=0, atol=rounding(few))
    in_order = few.gather(-1, found.argsort(dim=-1))
    assert (in_order.diff(dim=-1) >= -rounding(few)).all(), "another ranking"


def test_a_sum_that_is_lost_in_double_precision_too_is_seen() -> None:
    """Planted: a bound that no sum is below."""
    effects, ends = single(by_hand(size=60.0, labels=40)), ends_of(by_hand(size=60.0, labels=40), 20).float()
    few, _ = ratios_and_terms(effects, ends, NEVER)
    found, terms = ratios_and_terms(effects, ends, 1)
    wrong, none = ratios_and_terms(effects, ends, 1, tiny=0.0)
    assert_close(found, few, rtol=0, atol=rounding(few))
    assert terms > none == 0
    assert not torch.allclose(wrong, few, rtol=0.1)


def test_sums_of_1024_labels_are_hardly_ever_lost() -> None:
    """Planted: single precision, in which a tenth of them and more is."""
    effects, ends = single(by_hand(size=8.0, labels=1024)), ends_of(by_hand(size=8.0, labels=1024), 4).float()
    n_terms = 4 * 2 * 1024**2
    few, in_single = ratios_and_terms(effects, ends, NEVER)
    found, in_double = ratios_and_terms(effects, ends, random_effects.MANY_LABELS)
    assert in_single > 0.1 * n_terms
    assert in_double < 1e-3 * n_terms
    assert_close(found, few, rtol=0, atol=rounding(few))


@pytest.mark.parametrize("labels", [30, 1023])
def test_sums_of_fewer_labels_are_equal_to_the_bit(labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models were trained on them. Planted: 1,024 labels, which are many."""
    effects, ends = by_hand(size=8.0, labels=labels), ends_of(by_hand(size=8.0, labels=labels), 4)
    found = label_ratios(single(effects), ends.float(), 1.0)
    moved = label_ratios(single(by_hand(size=8.0, labels=1024)), ends.float(), 1.0)
    monkeypatch.setattr(random_effects, "_summed_out", summed_as_few_labels_are)
    assert torch.equal(found, label_ratios(single(effects), ends.float(), 1.0))
    assert not torch.equal(moved, label_ratios(single(by_hand(size=8.0, labels=1024)), ends.float(), 1.0))


def test_ratios_of_extreme_segments_are_finite() -> None:
    effects = single(by_hand(size=100.0))
    ends = 1e4 * torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    assert label_ratios(effects, ends, 1.0).isfinite().all()
    assert take_ratios(effects, ends).isfinite().all()


def all_finite(effects: RandomEffects) -> bool:
    return all(bool(value.isfinite().all()) for value in vars(effects).values())


def test_a_constant_column_says_nothing() -> None:
    data = drawn()
    x = torch.cat([data.x, torch.full((len(data.x), 1), 3.0)], dim=1)
    effects = fitted(data._replace(x=x), directions=C + 1)
    assert all_finite(effects)
    assert not effects.project[C].any()
    moved = x + torch.nn.functional.one_hot(torch.tensor(C), C + 1) * 100.0
    assert torch.equal(placed(effects, moved), placed(effects, x))
    assert correlation(effects.label[:, -1:], data.of_label @ (data.mix @ effects.project[:C, -1:])).item() > 0.98


def test_labels_and_takes_without_segments_have_no_effect() -> None:
    data, more = drawn(), Sizes(SIZES.labels + 2, SIZES.takes + 3)
    effects = fitted(data, sizes=more)
    assert all_finite(effects)
    assert not effects.label[SIZES.labels :].any()
    assert not effects.take[SIZES.takes :].any()
    assert not take_ratios(effects, placed(effects, data.x[:8].view(4, 2, C)))[:, SIZES.takes :].any()
    assert_close(effects.label[: SIZES.labels], fitted(data).label)


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_a_handful_of_segments_gives_finite_effects(segments: int) -> None:
    data = drawn()
    few = Drawn(data.x[:segments], data.label[:segments], data.take[:segments], *data[3:])
    effects = fitted(few)
    assert all_finite(effects)
    assert label_ratios(effects, placed(effects, data.x[:8].view(4, 2, C)), 1.0).isfinite().all()


def test_columns_that_are_all_constant_give_effects_of_zero() -> None:
    data = drawn()
    effects = fitted(data._replace(x=torch.full_like(data.x, 2.0)))
    assert all_finite(effects)
    assert not effects.label.any()
    assert not effects.take.any()
    assert not placed(effects, data.x).any()


def test_effects_of_pure_noise_shrink_to_little() -> None:
    data = drawn()
    noise = torch.randn(data.x.shape, generator=torch.Generator().manual_seed(5))
    effects = fitted(data._replace(x=noise))
    assert effects.take.std() < 0.2
    assert effects.label.std() < 0.2
    assert fitted(data).label.std() > 1


def test_group_sums_leave_empty_groups_at_zero() -> None:
    sums = group_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0, 2]), 4)
    assert sums.tolist() == [[3.0, 4.0], [0.0, 0.0], [6.0, 8.0], [0.0, 0.0]]
