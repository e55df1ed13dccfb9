"""Losses against the printed formulas, in plain loops, and what the predictor's training is shown."""

import math
from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from trainings_fixture import PREDICTOR, clear_task

from trajpilot_core.training.fit_predictor import new_predictor
from trajpilot_core.training.losses import (
    PredictedWindows,
    alignment_loss,
    clamp_temperature,
    cosine_loss,
    pooled_prediction_loss,
)


def printed(z: Tensor, e: Tensor, ids: Tensor, tau: float) -> float:
    """The formula of the paper's section 3.3, term by term."""
    n = len(z)
    logits = [[tau * float(z[i] @ e[j]) for j in range(n)] for i in range(n)]

    def mp_ce(rows: list[list[float]]) -> float:
        total = 0.0
        for i in range(n):
            positive = sum(math.exp(rows[i][j]) for j in range(n) if ids[i] == ids[j])
            total += math.log(positive) - math.log(sum(math.exp(v) for v in rows[i]))
        return -total / n

    return 0.5 * (mp_ce(logits) + mp_ce([list(column) for column in zip(*logits, strict=True)]))


def vectors(seed: int, *shape: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 3), min_size=1, max_size=8), st.floats(0.1, 20))
def test_the_alignment_loss_is_the_printed_formula(seed: int, ids: list[int], tau: float) -> None:
    z, e = vectors(seed, len(ids), 5), vectors(seed + 1, 4, 5)[ids]
    got = alignment_loss(z, e, torch.tensor(ids), torch.tensor(math.log(tau)))
    assert_close(got.item(), printed(z, e, torch.tensor(ids), tau), rtol=1e-4, atol=1e-5)


def test_the_alignment_loss_is_exact_under_bf16_autocast() -> None:
    z, e, ids = vectors(0, 64, 32), vectors(1, 64, 32), torch.arange(64)
    plain = alignment_loss(z, e, ids, torch.tensor(math.log(100.0)))
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(alignment_loss(z, e, ids, torch.tensor(math.log(100.0))), plain)


def test_each_role_has_weight_one_at_every_horizon() -> None:
    for horizon in (3, 8):
        target = vectors(horizon, 4, horizon, 6)
        assert_close(cosine_loss(target, target).item(), 0.0, atol=1e-5, rtol=0)
        assert_close(cosine_loss(-target, target).item(), 6.0)
        half = target.clone()
        half[:, 1:-1] *= -1
        assert_close(cosine_loss(half, target).item(), 2.0)


def test_the_pool_mixes_roles_and_the_lambda_weights_it() -> None:
    ids = torch.tensor([[0, 1, 2, 3], [0, 4, 4, 5], [6, 7, 8, 9]])
    p, e = vectors(0, 3, 4, 6), vectors(1, 10, 6)[ids]
    tau = torch.tensor(1.0)
    pooled = printed(p.flatten(0, 1), e.flatten(0, 1), ids.flatten(), math.e)
    found = pooled_prediction_loss(PredictedWindows(p, e, ids, None), tau, 0.5)
    assert_close(found.item(), cosine_loss(p, e).item() + 0.5 * pooled)
    other = p.clone()
    other[1, -1] = vectors(9, 6)
    for goal_seen, is_equal in ((torch.tensor([True, False, True]), True), (None, False)):
        losses = [pooled_prediction_loss(PredictedWindows(of, e, ids, goal_seen), tau, 0.5) for of in (p, other)]
        assert torch.allclose(*losses) == is_equal, "a hidden goal is not in the pool, planted: one that is seen"


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12))
def test_rows_that_do_not_count_are_as_if_cut_out(seed: int, rows: list[tuple[int, bool]]) -> None:
    ids, counted = torch.tensor([i for i, _ in rows]), torch.tensor([True, *(c for _, c in rows[1:])])
    z, bank, tau = vectors(seed, len(rows), 5).requires_grad_(), vectors(seed + 1, 6, 5), torch.tensor(1.0)
    loss = alignment_loss(z, bank[ids], ids, tau, counted)
    cut = alignment_loss(z[counted], bank[ids][counted], ids[counted], tau)
    assert_close(loss, cut)
    assert_close(torch.autograd.grad(loss, z), torch.autograd.grad(cut, z), atol=1e-6, rtol=1e-5)


def test_the_temperature_stops_at_100_and_can_come_back() -> None:
    parameter = nn.Parameter(torch.tensor(7.0))
    assert_close(clamp_temperature(parameter).exp().item(), 100.0)
    alignment_loss(vectors(0, 4, 3), vectors(1, 4, 3), torch.arange(4), clamp_temperature(parameter)).backward()
    assert parameter.grad.abs() > 0


def test_raw_features_reach_a_predictor_that_does_not_standardise() -> None:
    task = clear_task(20, 4)
    far = replace(task, features=(task.features.float() * 4 + 3).half())
    plain, raw = (new_predictor(far, PREDICTOR.replace(standardise=is_on)) for is_on in (True, False))
    assert torch.equal(raw.standardise(far.features), far.features.float())
    assert_close(plain.standardise(far.features).mean((0, 1)), torch.zeros(10), atol=0.2, rtol=0)
    assert torch.equal(raw.feature_mean, plain.feature_mean), "both say what the takes' mean was"
