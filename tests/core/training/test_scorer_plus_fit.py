"""Fitting Scorer+: what the epoch and the threshold are chosen by, its scores on dev, and its model file."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from planning_fixture import SCORER, model_files, models_of
from plus_fixture import (
    PLUS,
    candidates_of,
    corpus,
    network,
    random_queries,
    random_statistics,
    source_of,
    without_dev,
)
from rows_fixture import written_scorers
from torch import Tensor
from torch.testing import assert_close

from schemas.training import ScorerPlusConfig
from trajpilot_core.data.chains import chains_of
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.errors import StoreError
from trajpilot_core.methods.batch import ready_plus
from trajpilot_core.methods.scorer_plus import plus_answers_of
from trajpilot_core.models.ranking import best
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.store.tensors import Models
from trajpilot_core.training import scorer_plus_statistics, scorer_queries
from trajpilot_core.training.label_effects import LabelEffects
from trajpilot_core.training.scorer import NEVER
from trajpilot_core.training.scorer_file import load_plus
from trajpilot_core.training.scorer_fit import fit_scorers
from trajpilot_core.training.scorer_plus import (
    QueryGroup,
    plus_answers,
    plus_dev_scores,
    plus_loss,
    plus_queries,
    queries_at,
)
from trajpilot_core.training.scorer_plus_fit import FINAL, FittedPlus, PlusData, fit_plus
from trajpilot_core.training.scorer_plus_statistics import plus_source
from trajpilot_core.training.scorer_queries import Collected, collect, draw_queries

CONFIG = PLUS.replace(train=PLUS.train.replace(epochs=3, patience=2, batch=16))


def quiet(done: int, total: int, what: str) -> None:
    """Ignore progress."""


def toy(n: int = 32, n_dev: int = 24) -> PlusData:
    """Queries of two horizons and two chains, the second with two experts, and dev queries of the final one."""
    train = {
        QueryGroup("fold0", 4): random_queries(n, 4, 2, seed=1),
        QueryGroup(FINAL, 3): random_queries(n, 3, seed=2),
    }
    dev = {QueryGroup(FINAL, h): random_queries(n_dev, h, seed=h) for h in (3, 4)} if n_dev else {}
    return PlusData({FINAL: random_statistics(), "fold0": random_statistics(1)}, train, dev)


def fitted(data: PlusData, folder: Path, seed: int = 0, config: ScorerPlusConfig = CONFIG) -> FittedPlus:
    return fit_plus(data, config, seed, folder, "cpu", quiet)


def equal(one: FittedPlus, other: FittedPlus) -> bool:
    return all(torch.equal(one.state[name], other.state[name]) for name in one.state)


def test_one_seed_gives_one_scorer(tmp_path: Path) -> None:
    one, again, other = (fitted(toy(), tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert equal(one, again)
    assert one.decision == again.decision
    assert one.curve == again.curve
    assert not equal(one, other), "planted: another order of the batches"


def test_fitting_leaves_the_callers_random_state(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fitted(toy(), tmp_path)
    assert torch.equal(torch.rand(3), expected)


def test_learning_lowers_the_loss_of_its_queries(tmp_path: Path) -> None:
    data = toy(n_dev=0)
    config = CONFIG.replace(train=CONFIG.train.replace(epochs=8, patience=None))
    found = fitted(data, tmp_path, config=config)
    losses = [p.value for p in found.curve if p.quantity == "loss"]
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.01


def loaded(found: FittedPlus):
    scorer = network()
    scorer.load_state_dict(found.state)
    return scorer


def test_the_epoch_kept_has_the_highest_likelihood_on_dev(tmp_path: Path) -> None:
    data = toy()
    config = CONFIG.replace(train=CONFIG.train.replace(epochs=8, patience=None, lr=0.3))
    found = fitted(data, tmp_path, config=config)
    likelihood = {p.epoch: p.value for p in found.curve if (p.split, p.quantity) == ("dev", "log likelihood")}
    assert len(likelihood) == 8
    assert found.decision.dev["log likelihood"] == max(likelihood.values())
    assert max(likelihood, key=lambda e: likelihood[e]) < 8, "planted: the last epoch is not the best one"
    scores = plus_dev_scores(loaded(found), data.dev, data.statistics[FINAL])
    assert scores.pop("threshold") == found.decision.threshold
    assert scores == pytest.approx(found.decision.dev)


def test_every_query_of_every_part_is_read_once_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def spying(scorer, queries, rows, statistics):
        seen.extend((queries.labels.shape[1], row) for row in rows.tolist())
        return plus_loss(scorer, queries, rows, statistics)

    monkeypatch.setattr("trajpilot_core.training.scorer_plus_fit.plus_loss", spying)
    fitted(toy(), tmp_path, config=CONFIG.replace(train=CONFIG.train.replace(epochs=1)))
    assert sorted(seen) == [(horizon, row) for horizon in (3, 4) for row in range(32)]


def test_every_chains_queries_are_read_with_its_own_statistics(tmp_path: Path) -> None:
    data = toy()
    swapped = data._replace(statistics={FINAL: data.statistics[FINAL], "fold0": random_statistics(7)})
    assert not equal(fitted(data, tmp_path / "a"), fitted(swapped, tmp_path / "b"))
    with pytest.raises(KeyError, match="fold0"):
        fitted(data._replace(statistics={FINAL: data.statistics[FINAL]}), tmp_path / "c")


def test_the_threshold_follows_dev_and_changes_nothing_else(tmp_path: Path) -> None:
    """The fallback enters the gain and the threshold only; a fallback that is always right is never beaten."""
    data = toy()
    right = {part: replace(held, fallback=held.labels) for part, held in data.dev.items()}
    one, other = fitted(data, tmp_path / "a"), fitted(data._replace(dev=right), tmp_path / "b")
    assert equal(one, other)
    assert one.decision.threshold < NEVER
    assert other.decision.threshold == NEVER
    assert other.decision.dev["M@1"] == other.decision.dev["fallback M@1"] == 1
    assert other.decision.dev["open rate"] == 0
    again = {part: replace(held, fallback=held.labels) for part, held in data.train.items()}
    assert fitted(data._replace(train=again), tmp_path / "c").decision == one.decision


def dev_by_hand(data: PlusData) -> list[tuple[int, float, float, float]]:
    """Horizon, gain, M@1 and M@1 of the fallback of every dev query under the first weights."""
    out = []
    for part, held in data.dev.items():
        for answers in plus_answers(network(), held, network().answering(data.statistics[FINAL])):
            first = answers.probability.argmax(-1)
            for n, truth in enumerate(held.labels[:, 1:-1].tolist()):
                m1, fallback = (
                    float(np.mean([a == b for a, b in zip(truth, x[n, 1:-1].tolist(), strict=True)]))
                    for x in (first, held.fallback)
                )
                out.append((part.horizon, float(answers.gain[n]), m1, fallback))
    return out


def test_no_threshold_gives_a_better_row_on_dev() -> None:
    data = toy()
    rows = dev_by_hand(data)

    def value(threshold: float) -> float:
        means = []
        for horizon in (3, 4):
            means.append(np.mean([m1 if gain >= threshold else f for h, gain, m1, f in rows if h == horizon]))
        return float(np.mean(means))

    scores = plus_dev_scores(network(), data.dev, data.statistics[FINAL])
    assert scores["M@1"] == pytest.approx(max(value(t) for t in [NEVER, *(row[1] for row in rows)]))
    assert scores["M@1"] == pytest.approx(value(scores["threshold"]))
    assert scores["fallback M@1"] == pytest.approx(value(NEVER))
    assert scores["always open M@1"] == pytest.approx(value(-1.0))
    opened = [np.mean([gain >= scores["threshold"] for h, gain, _, _ in rows if h == horizon]) for horizon in (3, 4)]
    assert scores["open rate"] == pytest.approx(float(np.mean(opened)))
    assert 0 < scores["open rate"] < 1


def test_without_queries_the_weights_stay_and_the_gate_never_opens(tmp_path: Path) -> None:
    found = fitted(toy()._replace(train={}), tmp_path)
    assert all(torch.equal(found.state[name], value) for name, value in network().state_dict().items())
    assert (found.decision.threshold, found.decision.n_queries, found.decision.n_dev) == (NEVER, 0, 48)
    assert (found.decision.dev, found.curve) == ({}, [])


def test_without_dev_the_first_epoch_is_kept_and_the_gate_never_opens(tmp_path: Path) -> None:
    """Nothing tells epochs apart, so that patience ends the training."""
    data = toy(n_dev=0)
    found = fitted(data, tmp_path / "a", config=CONFIG.replace(train=CONFIG.train.replace(patience=1)))
    assert (found.decision.threshold, found.decision.n_queries, found.decision.n_dev) == (NEVER, 64, 0)
    assert found.decision.dev == {}
    assert max(p.epoch for p in found.curve) == 2
    longer = fitted(data, tmp_path / "b", config=CONFIG.replace(train=CONFIG.train.replace(patience=None)))
    assert max(p.epoch for p in longer.curve) == 3
    assert equal(found, longer)


def collected(data: PlanningData, folds: int = 1) -> Collected:
    with tempfile.TemporaryDirectory() as folder:
        return collect(data, model_files(data, folds), SCORER, 0, Path(folder), "cpu", quiet)


def test_queries_of_several_parts_read_as_they_did_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_queries, "WINDOWS_AT_ONCE", 4)
    data = corpus(3)
    found = collected(data, 3).plus
    assert list(found.train) == sorted(found.train)
    chains = {chain.name: chain for chain in chains_of(data)}
    drawn = draw_queries(data, chains_of(data), SCORER.max_queries, 0)
    for group, held in found.train.items():
        view = chain_view(data, model_files(data, 3), chains[group.chain], 0, "cpu")
        rows = drawn[group.chain][group.horizon]
        assert len(held) == len(rows) > 4, "planted: more than one part"
        bank = build_bank(view, group.horizon, SCORER.key)
        whole = plus_queries(plus_source(view, SCORER), find_candidates(view, bank, rows, SCORER))
        at = torch.tensor([3, 4, 5])
        one, other = (queries_at(queries, at, torch.device("cpu")) for queries in (held, whole))
        assert torch.equal(one.labels, whole.labels[at])
        assert torch.equal(one.fallback, other.fallback)
        for name, value in one.inputs._asdict().items():
            # parts of other sizes round otherwise
            assert_close(value, getattr(other.inputs, name), rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("folds", [1, 3])
def test_the_queries_of_the_corpus_are_those_of_the_papers_scorer(folds: int) -> None:
    data = corpus(folds)
    found = collected(data, folds)
    assert sum(len(held) for held in found.plus.train.values()) == len(found.train)
    assert sum(len(held) for held in found.plus.dev.values()) == len(found.dev.queries)
    assert {part.chain for part in found.plus.train} == {FINAL} if folds == 1 else {"fold0", "fold1", "fold2"}
    assert {part.chain for part in found.plus.dev} == {FINAL}
    assert {held.inputs.plans.shape[1] for held in found.plus.train.values()} == {3 if folds == 1 else 2}
    assert {part.horizon for part in found.plus.train} == {3, 4}


def test_a_corpus_without_dev_is_fitted(tmp_path: Path) -> None:
    data = without_dev(corpus())
    found = collected(data)
    assert (found.dev.queries, found.plus.dev) == (None, {})
    assert fitted(found.plus, tmp_path).decision.threshold == NEVER


def test_test_takes_decide_nothing(tmp_path: Path) -> None:
    data = corpus()
    of_test = data.take_split[data.segment_take] == 2
    labels = torch.where(of_test, (data.labels + 1) % len(data.bank), data.labels)
    motions = torch.where(of_test[:, None, None], -data.motions, data.motions)
    features = torch.where(of_test[:, None, None], -data.features, data.features)
    foreign = replace(data, labels=labels, motions=motions, features=features)
    one, other = (fitted(collected(d).plus, tmp_path / n) for n, d in (("a", data), ("b", foreign)))
    assert equal(one, other)
    assert one.decision == other.decision


def answers_of(data: PlanningData, threshold: float):
    """The row of Scorer+ on test windows of the corpus, its own answers, and its queries."""
    source = source_of(data)
    rows = (data.windows[4].split == 2).nonzero()[:, 0]
    found = candidates_of(source, rows)
    decision = fitted(PlusData({FINAL: source.fitted.statistics}, {}, {}), Path()).decision.replace(threshold=threshold)
    queries = plus_queries(source, found)
    (own,) = plus_answers(network(), queries, network().answering(source.fitted.statistics))
    return plus_answers_of(source.view, found, ready_plus(network(), decision, source)), own, queries


def test_a_row_whose_gate_never_opens_repeats_no_traj() -> None:
    row, own, queries = answers_of(corpus(), NEVER)
    assert not row.opened.any()
    assert torch.equal(row.decoded, queries.fallback)
    assert torch.equal(row.ids[:, :, 0], queries.fallback)
    assert torch.equal(row.gate, own.gain)


def test_a_row_opens_where_its_gain_reaches_the_threshold() -> None:
    threshold = float(answers_of(corpus(), NEVER)[1].gain.median())
    row, own, queries = answers_of(corpus(), threshold)
    assert torch.equal(row.opened, own.gain >= threshold)
    assert 0 < row.opened.float().mean() < 1
    ranked = best(own.probability.flatten(0, 1), row.ids.shape[2])[0].view(row.ids.shape)
    for n, is_open in enumerate(row.opened.tolist()):
        assert torch.equal(row.decoded[n], own.decoded[n] if is_open else queries.fallback[n])
        assert torch.equal(row.ids[n, :, 0], queries.fallback[n]) or is_open
        assert torch.equal(row.ids[n], ranked[n]) is is_open


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Models:
    data = corpus()
    config = SCORER.replace(ablations=())
    found = fit_scorers(data, model_files(data), config, 0, tmp_path_factory.mktemp("fit"), "cpu", quiet)
    return written_scorers({0: found}, config)


def test_scorer_plus_is_read_back(file: Models) -> None:
    scorer, decision = load_plus(file, SCORER.plus, 0, "cpu")
    assert not scorer.training
    assert not any(parameter.requires_grad for parameter in scorer.parameters())
    assert decision.n_queries > 0
    for name, value in scorer.state_dict().items():
        assert np.array_equal(value.numpy(), file.read("final/s0/scorer_plus")[name])


def changed(file: Models, **tensors: np.ndarray | None) -> Models:
    """The same file with parameters of Scorer+ replaced, or left out where None."""
    key = "final/s0/scorer_plus"
    new = {name: value for name, value in (dict(file.read(key)) | tensors).items() if value is not None}
    return models_of({key: new}, file.about)


@pytest.mark.parametrize(
    "fault",
    [
        {"look": None},
        {"plan": None},
        {"plan": np.zeros((2, 2), np.float32)},
        {"plan": np.zeros(6, np.float32)},
        {"look": np.zeros(3, np.float32)},
        {"look": np.zeros((1, 1), np.float32)},
        {"more": np.zeros(1, np.float32)},
    ],
)
def test_a_file_with_other_parameters_is_refused(file: Models, fault: dict[str, np.ndarray | None]) -> None:
    (name,) = fault
    with pytest.raises(StoreError, match=name):
        load_plus(changed(file, **fault), SCORER.plus, 0, "cpu")


def test_a_file_without_scorer_plus_is_refused(file: Models) -> None:
    without = {key: value for key, value in file.about.items() if key != "final/s0/scorer_plus"}
    for wrong, seed in ((replace(file, about=without), 0), (file, 1)):
        with pytest.raises(StoreError, match=f"final/s{seed}/scorer_plus"):
            load_plus(wrong, SCORER.plus, seed, "cpu")


def test_scorer_plus_that_is_off_is_in_no_file(tmp_path: Path) -> None:
    data = corpus()
    config = SCORER.replace(ablations=(), plus=None)
    found = fit_scorers(data, model_files(data), config, 0, tmp_path, "cpu", quiet)
    assert found.plus is None
    scorers = written_scorers({0: found}, config)
    assert not [name for name in (*scorers.keys, *scorers.about) if "plus" in name]


def test_statistics_are_fitted_once_for_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: without a place to keep them each seed fits its own; the scorers are the same."""
    fitted: list[int] = []
    kept = scorer_plus_statistics.fit_label_effects

    def noting(data: PlanningData, takes: Tensor, plus: ScorerPlusConfig) -> LabelEffects:
        fitted.append(len(takes))
        return kept(data, takes, plus)

    monkeypatch.setattr(scorer_plus_statistics, "fit_label_effects", noting)
    data, known = corpus(folds=2), scorer_plus_statistics.StatisticsByChain()
    config, files = SCORER.replace(ablations=()), model_files(data, folds=2)
    first = fit_scorers(data, files, config, 0, tmp_path / "a", "cpu", quiet, known)
    assert len(fitted) == len(chains_of(data)) == 3
    again = fit_scorers(data, files, config, 0, tmp_path / "b", "cpu", quiet, known)
    assert len(fitted) == 3
    alone = fit_scorers(data, files, config, 0, tmp_path / "c", "cpu", quiet)
    assert len(fitted) == 6
    for found in (again, alone):
        assert first.plus is not None
        assert found.plus is not None
        assert all(torch.equal(found.plus.state[name], value) for name, value in first.plus.state.items())
