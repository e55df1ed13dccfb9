"""Queries of the scorers in files: what they read, the room and the memory that they need, and where they go."""

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from planning_fixture import SCORER, World, model_files, on_cpu, planning_data
from torch.testing import assert_close

from trajpilot_core.data.chains import chains_of
from trajpilot_core.errors import StoreError
from trajpilot_core.retrieval.bank import build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates
from trajpilot_core.training import scorer_queries
from trajpilot_core.training.scorer import ROWS, inputs_at, queries_of
from trajpilot_core.training.scorer_queries import (
    Collected,
    collect,
    draw_queries,
    fits,
    on_device,
)

FOLDED = World(folds=3)


def gathered(folder: Path, config=SCORER, seed: int = 0, world: World = FOLDED, threads: int = 1) -> Collected:
    data = planning_data(world)
    files = model_files(data, world.folds, (0, 1))
    return collect(data, files, config, seed, on_cpu(folder, workers=threads))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """A collection in small parts, which no test changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer_queries, "WINDOWS_AT_ONCE", 7)
        return gathered(tmp_path_factory.mktemp("whole"))


def test_queries_of_every_chain_read_as_they_did_alone(whole: Collected) -> None:
    data = planning_data(FOLDED)
    train = whole.train
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
    assert train.latents is whole.dev.latents, "shared by both splits"


def test_neither_threads_nor_what_a_killed_collection_left_change_a_query(
    whole: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer_queries, "WINDOWS_AT_ONCE", 7)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "plans").write_bytes(b"torn")
    again = gathered(tmp_path, threads=3)
    for split in ("train", "dev"):
        one, other = getattr(whole, split), getattr(again, split)
        assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in ROWS), split
    assert torch.equal(whole.knn_m1, again.knn_m1)
    assert torch.equal(whole.pool_m1, again.pool_m1)


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    needed = r"117 queries of 5 candidates .* needs .* GB .*0\.00 GB"
    with pytest.raises(StoreError, match=rf"(?s){needed}.*lower scorer\.max_queries or scorer\.candidates"):
        gathered(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=200_000))
    gathered(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 200_000


def growth_of_collecting(folder: str, in_memory: bool) -> int:
    """Return by how many bytes anonymous memory grows from part to part; `in_memory` plants a join of all parts."""
    torch.set_num_threads(1)
    scorer_queries.WINDOWS_AT_ONCE = 32
    append, seen, joined = scorer_queries.QueryCollector._append, [0], []

    def watched(self, split, columns):
        if in_memory:
            joined.append([values.clone() for values in columns.values()])
        status = Path("/proc/self/status").read_text(encoding="utf-8").split("RssAnon:")[1]
        seen.append(1024 * int(status.split()[0]))
        append(self, split, columns)

    scorer_queries.QueryCollector._append = watched
    config = SCORER.replace(candidates=48, max_queries=1000)
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


def test_queries_move_to_a_device_only_where_they_fit_it(whole: Collected, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (fits(50, 100), fits(51, 100), fits(1, 0)) == (True, False, False)
    assert on_device(whole, "cpu") is whole
    monkeypatch.setattr(scorer_queries, "free_bytes", lambda device: 1 << 40)
    moved = on_device(whole._replace(train=None), "meta")
    assert moved.train is None
    assert moved.dev is not None
    assert moved.dev.plans.is_meta
    assert moved.dev.utility.is_meta
    assert moved.knn_m1.is_meta
