"""The rows of the hidden Markov model, by brute force."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from planning_fixture import World, model_files, planning_data
from rows_fixture import CONFIG, quiet, scorers_of
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.errors import LeakError, MethodError
from trajpilot_core.evaluation.predictions import predict_rows
from trajpilot_core.methods import METHODS, hmm, method
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.methods.sequences import FittedSequences, endpoint_vectors, fit_sequences, hmm_answers
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.label_chain import chain_marginals
from trajpilot_core.retrieval.bank import chain_view

FEW = World(labels=5)
MANY = World(train=200)


def sequences_of(data: PlanningData) -> FittedSequences:
    """The model of the fitted takes."""
    return fit_sequences(data, chains_of(data)[0])


def windows_of(data: PlanningData, horizon: int = 4, split: int = 2) -> Tensor:
    """(B, H) windows of a split."""
    windows = data.windows[horizon]
    return windows.segments[windows.split == split]


def enumerated(data: PlanningData, fitted: FittedSequences, segments: Tensor, *, moving: bool) -> tuple[Tensor, Tensor]:
    """Posterior (H, V) and the best middles of one window, by every sequence."""
    horizon, n = len(segments), len(data.bank)
    vectors = endpoint_vectors(data, segments[[0, -1]])
    discriminant = fitted.looks_and_motion if moving else fitted.looks
    log = discriminant.log_likelihood(vectors if moving else vectors[:, : data.features.shape[2]]).double()
    table = fitted.moves.between(torch.arange(n)[:, None], torch.arange(n)).double()
    joint = torch.zeros((n,) * horizon, dtype=torch.float64)
    for labels in itertools.product(range(n), repeat=horizon):
        p = torch.stack([table[a, b] for a, b in itertools.pairwise(labels)]).log().sum()
        joint[labels] = fitted.moves.frequent[labels[0]].log() + p + log[0, labels[0]] + log[1, labels[-1]]
    joint = joint.flatten().softmax(0).view(joint.shape)
    steps = range(horizon)
    marginal = torch.stack([joint.sum([other for other in steps if other != step]) for step in steps])
    middles = joint.sum((0, horizon - 1))
    return marginal.float(), torch.stack(torch.unravel_index(middles.argmax(), middles.shape))


def test_the_hidden_markov_model_is_brute_force(subtests: pytest.Subtests) -> None:
    data = planning_data(FEW)
    sequences = sequences_of(data)
    for horizon, moving in itertools.product((3, 4), (False, True)):
        with subtests.test(f"{horizon}, {moving}"):
            segments = windows_of(data, horizon)[::5]
            answers = hmm_answers(data, segments, sequences, moving=moving)
            for row, own in enumerate(segments):
                marginal, middles = enumerated(data, sequences, own, moving=moving)
                assert_close(answers.scores[row], marginal.gather(1, answers.ids[row]), atol=1e-4, rtol=1e-3)
                assert torch.equal(answers.ids[row, :, 0], marginal.argmax(1))
                assert torch.equal(answers.decoded[row, 1:-1], middles)


def test_windows_in_parts_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data()
    sequences, segments = sequences_of(data), windows_of(data)
    whole = hmm_answers(data, segments, sequences, moving=True)
    monkeypatch.setattr("trajpilot_core.methods.sequences.windows_at_once", lambda *_: 3)
    parts = hmm_answers(data, segments, sequences, moving=True)
    assert torch.equal(whole.ids, parts.ids)
    assert torch.equal(whole.decoded, parts.decoded)


def distance_to_the_prior(data: PlanningData) -> float:
    """Mean KL divergence of the model's posteriors from its prior without features."""
    fitted, segments = sequences_of(data), windows_of(data)
    vectors = endpoint_vectors(data, ends_of(segments))[..., : data.features.shape[2]]
    log = fitted.looks.log_likelihood(vectors)
    nothing = torch.zeros_like(log[:, 0])
    prior, found = (chain_marginals(fitted.moves, *ends, 4) for ends in ((nothing, nothing), log.unbind(1)))
    return float((found * (found.clamp_min(1e-12) / prior).log()).sum(2).mean())


def test_permuted_features_bring_it_to_its_prior() -> None:
    data = planning_data(MANY)
    fitted = rows_of_takes(data.segment_take, fit_takes(data, chains_of(data)[0]))
    features = data.features.clone()
    features[fitted] = features[fitted[torch.randperm(len(fitted), generator=torch.Generator().manual_seed(0))]]
    informed, permuted = distance_to_the_prior(data), distance_to_the_prior(replace(data, features=features))
    assert informed > 0.4
    assert permuted < 0.05, "few segments leave some noise in the means of labels"
    assert distance_to_the_prior(replace(data, features=torch.ones_like(features))) < 1e-6


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = planning_data()
    files = model_files(data)
    return data, files, scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=0.5)


def test_a_model_that_reads_undeclared_motion_is_refused(trained, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = replace(hmm.HMM, id="liar", answer=partial(hmm.by_hmm, moving=True))
    monkeypatch.setattr("trajpilot_core.evaluation.predictions.METHODS", [*METHODS, liar])
    with pytest.raises(LeakError, match="id liar"):
        list(predict_rows(*trained, CONFIG, "test", "cpu", quiet))


def test_windows_without_moves_are_refused(trained) -> None:
    data, files, _ = trained
    batch = WindowBatch(chain_view(data, files, chains_of(data)[0], 0, "cpu"), windows_of(data))
    with pytest.raises(MethodError, match="have no moves between labels"):
        method("hmm").answer(batch)
