"""Queries of the scorers in files: their need, killed and damaged collections, memory, and what is kept of a seed."""

import logging
import multiprocessing
import os
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from planning_fixture import SCORER, World, collect_windows, model_files, on_cpu, planning_data
from torch.testing import assert_close

from trajpilot_core.data import row_files
from trajpilot_core.data.chains import ModelFiles, chains_of
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import ScorerShape
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.store.tensors import Tensors
from trajpilot_core.training import scorer_queries
from trajpilot_core.training.scorer import ROWS, inputs_at, queries_of
from trajpilot_core.training.scorer_fit import FittedScorer, fit_scorers
from trajpilot_core.training.scorer_queries import (
    Collected,
    collect,
    dev_rows,
    disk_need,
    draw_queries,
    fits,
    on_device,
    parts_of,
    query_bytes,
    split_rows,
)

FOLDED = World(folds=3)
FAST = SCORER.replace(ablations=("no_labels",), train=SCORER.train.replace(epochs=2))


class Whole(NamedTuple):
    """A collection, its folder, and of how many parts it is."""

    folder: Path
    found: Collected
    n_parts: int


def gathered(folder: Path, config=SCORER, seed: int = 0, world: World = FOLDED, threads: int = 1) -> Collected:
    data = planning_data(world)
    files = model_files(data, world.folds, (0, 1))
    return collect(data, files, config, seed, on_cpu(folder, workers=threads))


def fitted(folder: Path) -> dict[str, FittedScorer]:
    data = planning_data(FOLDED)
    return fit_scorers(data, model_files(data, 3), FAST, 0, on_cpu(folder))


def same(one: dict[str, FittedScorer], other: dict[str, FittedScorer]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name].state[k]) for name, scorer in one.items() for k, value in scorer.state.items()
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A collection in small parts, which no test changes."""
    folder, parts = tmp_path_factory.mktemp("whole"), list[int]()
    with pytest.MonkeyPatch.context() as patch:
        count_searches(patch, parts)
        return Whole(folder, gathered(folder), len(parts))


@pytest.fixture
def copied(whole: Whole, tmp_path: Path) -> Path:
    """A copy of its files."""
    return shutil.copytree(whole.folder, tmp_path / "copied")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_queries, "WINDOWS_AT_ONCE", 7)


def count_searches(patch: pytest.MonkeyPatch, found: list[int]) -> None:
    """Note the numbers of the windows whose candidates are searched, one for each part; the parts are small."""

    def counted(view, bank, rows, config):
        found.append(len(rows))
        return find_candidates(view, bank, rows, config)

    patch.setattr(scorer_queries, "WINDOWS_AT_ONCE", 7)
    patch.setattr(scorer_queries, "find_candidates", counted)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    count_searches(monkeypatch, found)
    return found


def test_queries_of_every_chain_read_as_they_did_alone(whole: Whole) -> None:
    data = planning_data(FOLDED)
    train = whole.found.train
    drawn, at = draw_queries(data, chains_of(data), SCORER.max_queries, 0), 0
    for chain in chains_of(data):
        view = chain_view(data, model_files(data, 3, (0, 1)), chain, 0, "cpu")
        for horizon, rows in drawn[chain.name].items():
            found = find_candidates(view, build_bank(view, horizon, SCORER.key), rows, SCORER)
            alone = queries_of(view, found, SCORER)
            own = torch.arange(at, at + len(rows))
            for name, value in inputs_at(train, own)._asdict().items():
                kept = getattr(inputs_at(alone, torch.arange(len(rows))), name)
                # plans are kept in float16: where a kernel rounds parts of another size otherwise, by its last digit
                assert_close(value, kept, rtol=2**-10, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
            assert_close(train.utility[own], alone.utility)
            at += len(rows)
    assert at == len(train)
    assert len(train.latents) == 1 + 4 * len(data.labels), "one table a chain, and one zero row"
    assert train.latents is whole.found.dev.latents, "shared by both splits"


def test_the_number_of_threads_changes_no_byte_of_the_queries(whole: Whole, tmp_path: Path, small_parts: None) -> None:
    gathered(tmp_path, threads=3)
    one, three = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (whole.folder, tmp_path)
    )
    assert one == three
    assert len(one) > 10


def test_a_collection_that_was_interrupted_goes_on(
    tmp_path: Path, searched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted(tmp_path / "whole")
    n_parts = len(searched)
    searched.clear()
    write = scorer_queries.write_part

    def dying(folder, name, key, rows):
        if len(searched) > 1:
            raise KeyboardInterrupt
        return write(folder, name, key, rows)

    with monkeypatch.context() as planted:
        planted.setattr(scorer_queries, "write_part", dying)
        with pytest.raises(KeyboardInterrupt):
            fitted(tmp_path / "cut")
    assert len(searched) == 2
    searched.clear()
    again = fitted(tmp_path / "cut")
    assert len(searched) == n_parts - 1
    assert same(whole, again)
    assert whole["scorer"].decision == again["scorer"].decision
    searched.clear()
    assert same(whole, fitted(tmp_path / "cut"))
    assert searched == []


def die_while_writing(folder: str, writes: int) -> None:
    """Collect and be killed at the n-th write, when half of its bytes are on disk."""
    torch.set_num_threads(1)  # as in the process of the tests: with more, sums have other last bits
    scorer_queries.WINDOWS_AT_ONCE = 7
    write, left = os.pwrite, [writes]

    def torn(handle, content, at):
        left[0] -= 1
        if not left[0]:
            write(handle, content[: len(content) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)
        return write(handle, content, at)

    row_files.os.pwrite = torn
    gathered(Path(folder))


@pytest.mark.campaign
def test_a_process_that_is_killed_in_the_middle_of_a_part_repeats_that_part_only(
    tmp_path: Path, searched: list[int]
) -> None:
    whole = gathered(tmp_path / "whole")
    n_parts = len(searched)
    searched.clear()
    process = multiprocessing.get_context("spawn").Process(target=die_while_writing, args=(str(tmp_path / "cut"), 60))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    done = len(list((tmp_path / "cut").glob("*.json")))
    assert 1 <= done < n_parts - 1
    again = gathered(tmp_path / "cut")
    assert len(searched) == n_parts - done
    assert all(torch.equal(getattr(whole.train, name), getattr(again.train, name)) for name in ROWS)
    assert all(torch.equal(getattr(whole.dev, name), getattr(again.dev, name)) for name in ROWS)
    assert torch.equal(whole.knn_m1, again.knn_m1)
    assert torch.equal(whole.pool_m1, again.pool_m1)


def test_a_damaged_part_is_seen_and_made_again(
    copied: Path, searched: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    for path in (copied / "train/plans.rows", copied / "dev/m1.rows"):
        sound = path.read_bytes()
        path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        searched.clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "trajpilot"):
            gathered(copied)
        assert len(searched) == 1, path
        assert "damaged" in caplog.text
        assert path.read_bytes() == sound


def with_other_weights(files: ModelFiles, model: str) -> ModelFiles:
    """The same models but for one weight of one predictor."""

    def changed(key: str) -> Tensors:
        tensors = files.predictors.read(key)
        if key != model:
            return tensors
        name = next(name for name in sorted(tensors) if name.endswith("weight"))
        return tensors | {name: tensors[name] + (np.arange(tensors[name].size) == 0).reshape(tensors[name].shape)}

    return files._replace(predictors=replace(files.predictors, open=changed))


def test_parts_of_something_else_are_made_again(whole: Whole, copied: Path, searched: list[int]) -> None:
    gathered(copied, SCORER.replace(margin=0.2))
    assert len(searched) == whole.n_parts


def test_parts_of_another_predictor_are_made_again(whole: Whole, tmp_path: Path, searched: list[int]) -> None:
    data = planning_data(FOLDED)
    drawn = draw_queries(data, chains_of(data), SCORER.max_queries, 0)
    parts = [*parts_of("dev", {"final": dev_rows(data, SCORER.max_queries)}), *parts_of("train", drawn)]
    for model in ("final/s0/traj", "final/s0/no_traj", "fold1/s0/traj"):
        folder = shutil.copytree(whole.folder, tmp_path / model)
        searched.clear()
        collect(data, with_other_weights(model_files(data, 3, (0, 1)), model), SCORER, 0, on_cpu(folder))
        own = [len(part.rows) for part in parts if part.chain == model.partition("/")[0]]
        assert sorted(searched) == sorted(own), model
        assert len(own) < len(parts)


def test_the_papers_queries_need_67_gb() -> None:
    shape = ScorerShape(query=2 * 1664 + 2 * 768, embed=768, max_mids=6)
    n = 65_536 + 41_757
    assert query_bytes(shape, 64) == pytest.approx(625e3, rel=0.001)
    assert n * query_bytes(shape, 64) / 1e9 == pytest.approx(67.1, abs=0.1)


def test_the_need_is_what_the_files_take(whole: Whole, small_parts: None) -> None:
    data = planning_data(FOLDED)
    drawn = draw_queries(data, chains_of(data), SCORER.max_queries, 0)
    parts = [*parts_of("dev", {"final": dev_rows(data, SCORER.max_queries)}), *parts_of("train", drawn)]
    shape = ScorerShape(2 * 10 + 2 * 16, 16, 2)
    assert sum(path.stat().st_size for path in whole.folder.rglob("*.rows")) == disk_need(parts, shape, SCORER)


def test_a_disk_without_room_is_refused_before_anything_is_searched(
    tmp_path: Path, searched: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as planted:
        planted.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
        planted.setattr(scorer_queries, "chain_view", None)
        needed = r"90 train and 27 dev queries of 5 candidates .* needs .* GB .*0\.00 GB"
        with pytest.raises(StoreError, match=rf"(?s){needed}.*lower scorer\.max_queries or scorer\.candidates"):
            gathered(tmp_path)
    assert searched == []
    for worth_saying, said in ((10**9, 0), (0, 1)):
        monkeypatch.setattr(scorer_queries, "WORTH_SAYING", worth_saying)
        caplog.clear()
        with caplog.at_level(logging.INFO, "trajpilot"):
            gathered(tmp_path)
        assert len([line for line in caplog.messages if "needs" in line]) == said
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    gathered(tmp_path)


def test_the_room_of_other_splits_is_not_counted(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data(FOLDED)
    view = chain_view(data, model_files(data, 3, (0, 1)), chains_of(data)[0], 0, "cpu")
    usage = shutil.disk_usage(copied)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StoreError, match="36 test queries"):
        collect_windows(view, "test", split_rows(data, "test"), SCORER, copied)


def growth_of_collecting(folder: str, in_memory: bool) -> int:
    """Return by how many bytes anonymous memory grows from part to part; `in_memory` plants a join of all parts."""
    torch.set_num_threads(1)
    scorer_queries.WINDOWS_AT_ONCE = 32
    write, seen, joined = scorer_queries.write_part, [0], []

    def watched(place, name, key, rows):
        if in_memory:
            joined.append([own.values.clone() for own in rows])
        status = Path("/proc/self/status").read_text(encoding="utf-8").split("RssAnon:")[1]
        seen.append(1024 * int(status.split()[0]))
        return write(place, name, key, rows)

    scorer_queries.write_part = watched
    config = SCORER.replace(candidates=48, prefetch=64, max_queries=1000)
    found = gathered(Path(folder), config, world=World(train=30, dev=1, segments=60, embed=256))
    assert len(found.train) == 1000
    return max(seen[8:]) - max(seen[4:8])


@pytest.mark.campaign
def test_the_memory_of_collecting_does_not_grow_with_the_queries(tmp_path: Path) -> None:
    """A query needs 50 KB: 800 of them are 40 MB, which the planted join holds."""
    grown = []
    for in_memory in (False, True):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            grown.append(pool.submit(growth_of_collecting, str(tmp_path / str(in_memory)), in_memory).result(240))
    assert grown[0] < 12e6
    assert grown[1] > 30e6


def test_queries_move_to_a_device_only_where_they_fit_it(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (fits(50, 100), fits(51, 100), fits(1, 0)) == (True, False, False)
    found = whole.found
    assert on_device(found, "cpu") is found
    monkeypatch.setattr(scorer_queries, "free_bytes", lambda device: 1 << 40)
    moved = on_device(found._replace(train=None), "meta")
    assert moved.train is None
    assert moved.dev is not None
    assert moved.dev.plans.is_meta
    assert moved.dev.utility.is_meta
    assert moved.knn_m1.is_meta
