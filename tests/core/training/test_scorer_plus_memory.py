"""Scorer+ at many labels: its tables are counted, and it refuses with figures before anything is made."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from planning_fixture import SCORER, World, model_files, planning_data
from pretend_device import pretend_cuda

from deployments.cli.options import configure
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.errors import InputError
from trajpilot_core.models.scorer_plus import PlusInputs, ScorerPlus
from trajpilot_core.retrieval.bank import chain_view
from trajpilot_core.training import scorer_plus_memory, scorer_queries
from trajpilot_core.training.scorer_fit import fit_scorers
from trajpilot_core.training.scorer_plus_memory import plus_bytes
from trajpilot_core.training.scorer_plus_statistics import StatisticsByChain, fit_statistics, plus_source

FOLDED = World(folds=3)


def quiet(done: int, total: int, what: str) -> None:
    """Ignore progress."""


def test_the_papers_labels_need_9_gb_and_60_000_need_280() -> None:
    assert plus_bytes(8472, 1700, 6, 256, 8) / 1e9 == pytest.approx(8.6, abs=0.1)
    assert plus_bytes(60_000, 1700, 6, 256, 8) / 1e9 == pytest.approx(284, abs=1)
    assert plus_bytes(60_000, 1700, 1) / 1e9 == pytest.approx(118, abs=1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scorer_plus_refuses_before_anything_is_made(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer_plus_memory, "usable_memory", lambda: 100_000)
    monkeypatch.setattr(scorer_plus_memory, "free_bytes", lambda device: 100_000)
    monkeypatch.setattr(scorer_queries, "chain_view", None)
    data = planning_data(FOLDED)
    said = (
        r"every pair of 12 labels: a table of them takes 0\.00 GB, the statistics of 4 chains and a step of the "
        rf"training need 0\.0 GB, and 0\.0 GB are free on {device}; .*--set scorer\.plus=null"
    )
    with pytest.raises(InputError, match=said):
        fit_scorers(data, model_files(data, 3), SCORER, 0, tmp_path, device, quiet)
    assert not any(tmp_path.iterdir())
    assert configure("atomic", ["scorer.plus=null"]).scorer.plus is None


def test_answers_refuse_too_where_the_statistics_are_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data()
    view = chain_view(data, model_files(data), chains_of(data)[0], 0, "cpu")
    known = StatisticsByChain()
    plus_source(view, SCORER, known)
    monkeypatch.setattr(scorer_plus_memory, "usable_memory", lambda: 1000)
    plus_source(view, SCORER, known)
    with pytest.raises(InputError, match="the statistics of one chain need"):
        plus_source(view, SCORER, StatisticsByChain())
    monkeypatch.setattr(scorer_plus_memory, "usable_memory", lambda: 0)
    plus_source(view, SCORER, StatisticsByChain())


def test_a_gpu_is_asked_for_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_plus_memory, "usable_memory", lambda: 1)
    with pretend_cuda():
        data = planning_data().to("cuda")
        view = chain_view(data, model_files(planning_data()), chains_of(data)[0], 0, "cuda")
        assert plus_source(view, SCORER).fitted.statistics.look.is_cuda


def test_nothing_is_asked_without_scorer_plus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_plus_memory, "usable_memory", lambda: 1)
    data, config = planning_data(), SCORER.replace(plus=None, train=SCORER.train.replace(epochs=1))
    assert fit_scorers(data, model_files(data), config, 0, tmp_path, "cpu", quiet).plus is None


def peak_of_learning(labels: int, queries: int) -> int:
    """Return the most anonymous memory, in bytes, that statistics and a step of the training add."""
    torch.set_num_threads(1)
    data = planning_data(World(train=20, labels=labels, segments=30))
    plus = SCORER.plus.replace(look_directions=4, motion_directions=4, recognition_directions=4)
    ended, seen = threading.Event(), []

    def watch() -> None:
        while not ended.wait(0.002):
            status = Path("/proc/self/status").read_text(encoding="utf-8").split("RssAnon:")[1]
            seen.append(1024 * int(status.split()[0]))

    def step(n: int) -> None:
        takes = fit_takes(data, chains_of(data)[0])[:n]
        statistics = fit_statistics(data, takes, plus).statistics
        inputs = PlusInputs(torch.randn(queries, 2, 4, 16), torch.randn(queries, 2, labels), torch.randn(queries, n))
        probability = ScorerPlus(plus)(inputs, statistics)
        probability[:, 1, 0].clamp_min(1e-9).log().mean().neg().backward()

    watcher = threading.Thread(target=watch)
    watcher.start()
    before = 1024 * int(Path("/proc/self/status").read_text(encoding="utf-8").split("RssAnon:")[1].split()[0])
    step(10)
    ended.set()
    watcher.join()
    return max(seen) - before


def test_the_count_is_what_learning_takes() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        peak = pool.submit(peak_of_learning, 3000, 16).result(240)
    need = plus_bytes(3000, 10, 1, 16, 4)
    assert 0.6 * need < peak < 1.1 * need
