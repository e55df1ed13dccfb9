"""Posteriors and best sequences under a transition prior: those of the enumeration of all sequences."""

import json
import math
from typing import NamedTuple

import pytest
import torch
from checkout import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from planners_fixture import VITERBI_PATHS as CASES
from planners_fixture import decoding_inputs as inputs
from planners_fixture import dense, posterior, scores_of_all
from torch import Tensor
from torch.testing import assert_close

from schemas.training import EGOPER_DECODING, GOALSTEP_DECODING, KEYSTEP_DECODING
from trajpilot_core.errors import InputError
from trajpilot_core.models.planners.decoding import (
    TransitionPrior,
    clamped_prior,
    log_scores,
    marginals,
    smoothed_prior,
    viterbi,
)


class Case(NamedTuple):
    """A few windows of a small vocabulary."""

    logits: Tensor
    """(B, H, V)."""
    counts: Tensor
    """(V, V), some rows empty, most pairs unseen."""
    allowed: Tensor
    """(B, V) bool, at least one label a window."""


def case(seed: int, n_labels: int, horizon: int, n_windows: int = 3) -> Case:
    g = torch.Generator().manual_seed(seed)
    counts_VV = torch.randint(-3, 5, (n_labels, n_labels), generator=g).clamp_min(0).float()
    counts_VV[torch.rand(n_labels, generator=g) < 0.25] = 0
    allowed_BV = torch.rand(n_windows, n_labels, generator=g) < 0.7
    allowed_BV[torch.arange(n_windows), torch.randint(n_labels, (n_windows,), generator=g)] = True
    return Case(3 * torch.randn(n_windows, horizon, n_labels, generator=g), counts_VV, allowed_BV)


def transitions(counts_VV: Tensor, smoothing: float) -> Tensor:
    """(V, V) log((n + s) / (N + s V)) written out; -inf where nothing was counted and nothing is added."""
    n_labels = len(counts_VV)
    rows = [
        [math.log((n + smoothing) / (sum(row) + smoothing * n_labels)) if n + smoothing > 0 else -math.inf for n in row]
        for row in counts_VV.tolist()
    ]
    return torch.tensor(rows, dtype=torch.float64)


shapes = st.tuples(st.integers(0, 2**31 - 1), st.integers(2, 6), st.integers(2, 5))
weights = st.sampled_from([0.0, 0.05, 1.0, 2.5])


@given(shapes, weights, st.sampled_from([0.0, 0.05, 0.5]), st.booleans())
def test_posteriors_and_sequences_are_those_of_all_sequences(
    shape: tuple[int, int, int], weight: float, smoothing: float, is_masked: bool
) -> None:
    made = case(*shape)
    score_BHV = log_scores(made.logits / 1.2, made.allowed if is_masked else None)
    prior, log_VV = smoothed_prior(made.counts, smoothing), transitions(made.counts, smoothing)
    for score_HV in score_BHV:
        sequences, scores = scores_of_all(score_HV, log_VV, weight)
        if scores.max() == -torch.inf:
            with pytest.raises(InputError, match="window 0: every sequence"):
                marginals(score_HV[None], prior, weight)
            with pytest.raises(InputError, match="window 0: every sequence"):
                viterbi(score_HV[None], prior, weight)
            continue
        assert_close(marginals(score_HV[None], prior, weight)[0], posterior(sequences, scores, shape[1]))
        found = viterbi(score_HV[None], prior, weight)[0]
        assert_close(scores[(sequences == found).all(1)][0], scores.max())


@settings(max_examples=30)
@given(shapes)
def test_of_equal_sequences_the_one_with_the_smallest_last_labels_is_taken(shape: tuple[int, int, int]) -> None:
    """Small whole numbers, so that many sequences score exactly the same."""
    g = torch.Generator().manual_seed(shape[0])
    score_BHV = torch.randint(-1, 1, (3, shape[2], shape[1]), generator=g).double()
    is_seen_VV = torch.rand(shape[1], shape[1], generator=g) < 0.4
    before_N, after_N = is_seen_VV.nonzero().T
    floor_V = -torch.randint(1, 3, (shape[1],), generator=g).double()
    seen_N = (floor_V[before_N] + torch.randint(2, before_N.shape, generator=g)).clamp_max(-0.0)
    prior = TransitionPrior(before_N, after_N, seen_N, floor_V)
    for score_HV, found in zip(score_BHV, viterbi(score_BHV, prior), strict=True):
        sequences, scores = scores_of_all(score_HV, dense(prior), 1.0)
        equal = sequences[scores == scores.max()].flip(1).tolist()
        assert found.flip(0).tolist() == min(equal)


def test_a_split_of_the_windows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences are equal; posteriors to 1e-12, because sums over labels are added in another order."""
    made = case(6, 30, 8, 13)
    prior, score_BHV = smoothed_prior(made.counts, 0.05), log_scores(made.logits, made.allowed)
    whole, best = marginals(score_BHV, prior, 1.5), viterbi(score_BHV, prior, 1.5)
    for size in (1, 5):
        parts = torch.split(score_BHV, size)
        assert_close(torch.cat([marginals(part, prior, 1.5) for part in parts]), whole, atol=1e-12, rtol=0)
        assert torch.equal(torch.cat([viterbi(part, prior, 1.5) for part in parts]), best)
    monkeypatch.setattr("trajpilot_core.models.planners.decoding.rows_at_once", lambda *_: 4)
    assert_close(marginals(score_BHV, prior, 1.5), whole, atol=1e-12, rtol=0)
    assert torch.equal(viterbi(score_BHV, prior, 1.5), best)
    assert viterbi(score_BHV[:0], prior, 1.5).shape == (0, 8)
    assert marginals(score_BHV[:0], prior, 1.5).shape == (0, 8, 30)
    with pytest.raises(InputError, match="window 9: every sequence"):
        viterbi(score_BHV.index_fill(0, torch.tensor([9]), -torch.inf), prior, 1.5)


def test_a_clamped_prior_is_normalised_after_the_clamp_and_a_row_without_counts_is_uniform() -> None:
    counts_VV = torch.tensor([[0.0, 3.0, 1.0], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    raised = torch.tensor([[0.0, 0.75, 0.25], [0.0] * 3, [1.0, 0.0, 0.0]], dtype=torch.float64).clamp_min(0.01)
    got = dense(clamped_prior(counts_VV, 0.01)).exp()
    assert_close(got, raised / raised.sum(1, keepdim=True))
    assert_close(got[1], torch.full((3,), 1 / 3, dtype=torch.float64))


def test_long_sequences_of_tiny_probability_are_decoded() -> None:
    """The originals multiply float32 probabilities: here these are all 0, and the path is label 0 throughout."""
    counts_VV = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    score_HV = log_scores(torch.tensor([[20.0, 0.0, 0.1]]).expand(1, 8, 3))[0]
    sequences, scores = scores_of_all(score_HV, transitions(counts_VV, 0.0), 1.0)
    prior = smoothed_prior(counts_VV, 0.0)
    assert scores.max() < math.log(torch.finfo(torch.float32).smallest_normal)
    assert_close(scores[(sequences == viterbi(score_HV[None], prior)).all(1)][0], scores.max())
    assert_close(marginals(score_HV[None], prior, 1.0)[0], posterior(sequences, scores, 3))
    state_V, dense_VV = score_HV[0].float().exp(), dense(prior).float().exp()
    for own_V in score_HV.float().exp()[1:]:
        state_V = (state_V[:, None] * dense_VV).amax(0) * own_V
    assert not state_V.any(), "the planted fault, probabilities in float32, must lose this sequence"


def test_posteriors_of_single_steps_and_transitions_turned_round_are_seen() -> None:
    """Planted: the softmax of every step by itself; columns of the counts that are read as what comes before."""
    made = case(10, 5, 4)
    score_BHV, log_VV = log_scores(made.logits / 3), transitions(made.counts, 0.05)
    true = torch.stack([posterior(*scores_of_all(score_HV, log_VV, 1.5), 5) for score_HV in score_BHV])
    assert_close(marginals(score_BHV, smoothed_prior(made.counts, 0.05), 1.5), true)
    assert (score_BHV.softmax(2) - true).abs().max() > 0.05
    assert (marginals(score_BHV, smoothed_prior(made.counts.T, 0.05), 1.5) - true).abs().max() > 0.05


def test_a_masked_step_is_a_distribution_over_the_allowed_labels() -> None:
    """The planted fault, a mask after the softmax, leaves the other labels' share missing.

    Only the scores show it: each step loses one number, which neither posteriors nor sequences notice.
    """
    made = case(12, 6, 4)
    masked = log_scores(made.logits, made.allowed)
    afterwards = log_scores(made.logits).masked_fill(~made.allowed[:, None], -torch.inf)
    assert torch.equal(masked > -torch.inf, made.allowed[:, None].expand_as(masked))
    assert_close(masked.logsumexp(2), torch.zeros(3, 4, dtype=torch.float64))
    assert afterwards.logsumexp(2).min() < -0.05
    prior = smoothed_prior(made.counts, 0.5)
    assert_close(marginals(afterwards, prior, 1.5), marginals(masked, prior, 1.5))


def test_a_window_that_may_answer_nothing_is_named() -> None:
    made = case(13, 6, 4)
    made.allowed[1] = False
    with pytest.raises(InputError, match="window 1: its mask allows none of the 6 labels"):
        log_scores(made.logits, made.allowed)


def test_the_published_settings_are_those_of_the_papers_table() -> None:
    """Table closed_vocab_hparams; masks: D 36."""
    got = [
        (one.weight, one.smoothing, one.temperature, one.is_masked)
        for one in (KEYSTEP_DECODING, GOALSTEP_DECODING, EGOPER_DECODING)
    ]
    assert got == [(1.5, 0.5, 1.0, True), (0.05, 0.05, 1.2, True), (2.5, 0.5, 1.0, False)]


def test_the_sequences_of_the_original_are_found() -> None:
    """Recorded from `viterbi_path` of github.com/WenliangGuo/SCHEMA at 15e64be0 (our commit ca04742); equal labels."""
    recorded = json.loads((DATA / "planners" / "hard_viterbi.json").read_text())
    assert "WenliangGuo/SCHEMA" in recorded["origin"]
    for name in CASES:
        assert viterbi(*inputs(name)).tolist() == recorded[name], name
