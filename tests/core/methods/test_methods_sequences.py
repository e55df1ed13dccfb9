"""Rows that decode steps together: the hidden Markov model by brute force, + Viterbi rows, and choices on dev."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from planning_fixture import SCORER, World, model_files, planning_data
from rows_fixture import CONFIG, quiet, scorers_of
from torch import Tensor
from torch.testing import assert_close

from schemas.training import JointDecodingConfig
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.errors import LeakError, MethodError
from trajpilot_core.evaluation.headroom import choose_knobs, dev_rows, grid_of
from trajpilot_core.evaluation.predictions import RowFigures, predict_rows
from trajpilot_core.methods import METHODS, method, retrieved, viterbi
from trajpilot_core.methods.batch import WindowBatch, load_scorers, retrieve
from trajpilot_core.methods.plans import derangement
from trajpilot_core.methods.sequences import Knobs, SequenceModels, endpoint_vectors, fit_sequences, hmm_answers
from trajpilot_core.methods.viterbi import PLAIN
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.label_chain import chain_marginals
from trajpilot_core.retrieval.bank import build_bank, chain_view

FEW = World(labels=5)
MANY = World(train=200)
KNOBS = Knobs(0.1, 1.0)


def sequences_of(data: PlanningData, knobs: Knobs = KNOBS) -> SequenceModels:
    """Models of the fitted takes, and the same knobs for every row."""
    return SequenceModels(fit_sequences(data, chains_of(data)[0]), JointDecodingConfig(), dict.fromkeys(PLAIN, knobs))


def windows_of(data: PlanningData, horizon: int = 4, split: int = 2) -> Tensor:
    """(B, H) windows of a split."""
    windows = data.windows[horizon]
    return windows.segments[windows.split == split]


def enumerated(
    data: PlanningData, sequences: SequenceModels, segments: Tensor, *, moving: bool
) -> tuple[Tensor, Tensor]:
    """Posterior (H, V) and the best middles of one window, by every sequence."""
    fitted, horizon, n = sequences.fitted, len(segments), len(data.bank)
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
    sequences, segments = sequences_of(data), windows_of(data)
    fitted = sequences.fitted
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


def batch_of(trained, sequences: SequenceModels, split: int = 2, horizon: int = 4, data=None) -> WindowBatch:
    own, files, scorers = trained
    view = chain_view(own if data is None else data, files, chains_of(own)[0], 0, "cpu")
    bank = build_bank(view, horizon, "action")
    rows = (view.data.windows[horizon].split == split).nonzero()[:, 0]
    ready = load_scorers(scorers, 0, "cpu")
    return retrieve(view, bank, rows, ready, derangement(len(bank.take), horizon), sequences=sequences)


def test_without_transitions_a_row_is_its_plain_row_and_with_them_others_are_decoded(trained, subtests) -> None:
    still, moved = (sequences_of(trained[0], Knobs(*knobs)) for knobs in ((0.1, 0.0), (1.0, 1.0)))
    batch, linked, short = batch_of(trained, still), batch_of(trained, moved), batch_of(trained, moved, horizon=3)
    for row in PLAIN:
        with subtests.test(row):
            plain, joint = PLAIN[row].method.answer(batch), method(row).answer(batch)
            assert torch.equal(joint.decoded, joint.ids[:, :, 0])
            if PLAIN[row].kind == "cosine":
                assert torch.equal(plain.ids, joint.ids)
            else:
                votes = retrieved.votes(batch)
                behind = plain.scores[:, :, 0] - votes.gather(2, joint.ids[:, :, :1])[:, :, 0]
                assert float(behind.max()) < 1 / SCORER.candidates, "frequencies decide between votes that are close"
            joint = method(row).answer(linked)
            assert not torch.equal(joint.decoded, PLAIN[row].method.answer(linked).ids[:, :, 0])
            assert (joint.scores.sum(2) <= 1 + 1e-5).all()
            three = method(row).answer(short)
            assert torch.equal(three.decoded[:, 1], three.ids[:, 1, 0]), "a single middle step: MSeq is M@1"


def test_without_a_vote_knn_labels_keeps_its_plain_answers(trained) -> None:
    batch = batch_of(trained, sequences_of(trained[0]))
    found = batch.candidates().found
    none = replace(found, window=torch.full_like(found.window, -1), cosine=torch.full_like(found.cosine, -torch.inf))
    empty = replace(batch, retrieved=batch.candidates()._replace(found=none))
    joint, plain = (method(id_).answer(empty) for id_ in ("knn_labels_viterbi", "no_traj"))
    assert torch.equal(joint.ids, plain.ids)
    assert torch.equal(joint.decoded, plain.ids[:, :, 0])


def test_dev_alone_chooses(trained) -> None:
    data, config = trained[0], JointDecodingConfig()
    sequences = sequences_of(data)
    said = choose_knobs(batch_of(trained, sequences, split=1), config, 0, 4)
    assert [choice.variant for choice in said] == list(PLAIN)
    assert all(Knobs(c.temperature, c.weight) in grid_of(config, c.variant) for c in said)
    of_split = data.take_split[data.segment_take]

    def relabelled(split: int) -> PlanningData:
        labels = torch.where(of_split == split, (data.labels + 1) % len(data.bank), data.labels)
        return replace(data, labels=labels)

    assert choose_knobs(batch_of(trained, sequences, 1, data=relabelled(2)), config, 0, 4) == said
    other = choose_knobs(batch_of(trained, sequences, 1, data=relabelled(1)), config, 0, 4)
    assert [c.log_likelihood for c in other] != [c.log_likelihood for c in said]


def test_without_dev_windows_nothing_is_chosen() -> None:
    config = JointDecodingConfig(cosine_temperatures=(0.1, 0.2, 0.4), weights=(1.0, 0.0))
    for choice in choose_knobs(None, config, 0, 4):
        is_vote = PLAIN[choice.variant].kind == "vote"
        assert (choice.temperature, choice.weight, choice.n_windows) == (4.0 if is_vote else 0.2, 1.0, 0)


def test_few_of_many_dev_windows_cover_all_takes() -> None:
    windows = planning_data().windows[3]
    rows = dev_rows(windows, 6)
    assert len(rows) == 6
    assert (windows.split[rows] == 1).all()
    assert len(windows.take[rows].unique()) == 3
    assert len(dev_rows(windows, 999)) == int((windows.split == 1).sum())


def test_the_choices_of_every_seed_and_horizon_are_kept(trained) -> None:
    figures = RowFigures()
    list(predict_rows(*trained, CONFIG, "test", "cpu", quiet, figures=figures))
    choices = figures.decoding
    assert [(c.variant, c.horizon) for c in choices] == [(row, h) for h in (3, 4) for row in PLAIN]


def test_a_model_that_reads_undeclared_motion_is_refused(trained, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = replace(viterbi.HMM, id="liar", answer=partial(viterbi.by_hmm, moving=True))
    monkeypatch.setattr("trajpilot_core.evaluation.predictions.METHODS", [*METHODS, liar])
    with pytest.raises(LeakError, match="id liar"):
        list(predict_rows(*trained, CONFIG, "test", "cpu", quiet))


def test_windows_without_moves_are_refused(trained) -> None:
    batch = replace(batch_of(trained, sequences_of(trained[0])), sequences=None)
    with pytest.raises(MethodError, match="have no moves between labels"):
        method("hmm").answer(batch)
