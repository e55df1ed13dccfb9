"""Which stages may start: each after those that it reads, as many as the machine has room for, one model at a time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import PipelineConfig, TextConfig
from trajpilot_core.engine import order
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.order import free_memory, stages_at_once, startable, upstream, usable_cores, usable_memory
from trajpilot_core.stages import STAGES

GB = 10**9


def test_a_stage_waits_for_exactly_those_whose_entries_it_reads() -> None:
    found = upstream(STAGES, list(STAGES))
    for name, stage in STAGES.items():
        written = {other: {*s.writes, rejects_entry(other)} for other, s in STAGES.items()}
        assert set(found[name]) == {other for other in STAGES if written[other] & set(stage.reads)}, name
    assert found["trajectories"] == found["features"] == found["text_bank"] == ("ingest",)
    ended = list[str]()
    for name in STAGES:  # one at a time is the declared order
        assert startable([n for n in STAGES if n not in ended], found, ended, (), 1, lambda name: False) == [name]
        ended.append(name)
    assert STAGES["text_bank"].on_gpu(PipelineConfig().text_bank)
    assert not STAGES["text_bank"].on_gpu(TextConfig(encoder="bag_of_words")), "words are hashed without a model"
    asked = {"features": (), "scorer": ("features",)}
    assert upstream(STAGES, list(asked)) == asked, "what a run does not ask for is not waited for"


@given(data=st.data(), limit=st.integers(1, 4))
def test_whatever_ends_first_no_stage_is_early_lost_or_beside_another_model(data: st.DataObject, limit: int) -> None:
    names = [f"s{k}" for k in range(7)]
    after = {n: tuple(o for o in names[:k] if data.draw(st.booleans())) for k, n in enumerate(names)}
    models = {n for n in names if data.draw(st.booleans())}
    ended: list[str] = []
    running: list[str] = []
    while len(ended) < len(names):
        waiting = [n for n in names if n not in ended and n not in running]
        running += startable(waiting, after, ended, running, limit, models.__contains__)
        assert 1 <= len(running) <= limit
        assert len(models & set(running)) <= 1
        assert all(set(after[n]) <= set(ended) for n in running)
        ended.append(running.pop(data.draw(st.integers(0, len(running) - 1))))
    assert sorted(ended) == names


@pytest.mark.parametrize(
    ("cores", "memory", "workers", "room"),
    [(2, 64, 2, 1), (2, 64, 1, 1), (16, 20, 2, 1), (16, 120, 2, 5), (16, 40, 2, 2), (64, 0, 2, 1)],
)
def test_cores_and_memory_decide_unless_the_run_says_otherwise(
    cores: int, memory: int, workers: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "usable_cores", lambda: cores)
    monkeypatch.setattr(order, "usable_memory", lambda: memory * GB)
    assert stages_at_once(None, workers) == room
    assert stages_at_once(3, workers) == 3


def test_a_container_that_may_use_less_than_the_machine_has_less(tmp_path: Path) -> None:
    listing, none = tmp_path / "meminfo", tmp_path / "none"
    listing.write_text("MemTotal: 64000000 kB\nMemAvailable:   50000000 kB\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path) == usable_cores(none)
    assert usable_memory(listing, tmp_path) == free_memory(listing, tmp_path) == 50_000_000 * 1024
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("8000000000\n")
    assert usable_cores(tmp_path) == 1
    assert usable_memory(listing, tmp_path) == free_memory(listing, tmp_path) == 8 * GB
    (tmp_path / "memory.stat").write_text("anon 3000000000\nfile 4000000000\n")
    assert free_memory(listing, tmp_path) == 5 * GB
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(listing, tmp_path) == 50_000_000 * 1024
    assert (usable_memory(none, none), free_memory(none, tmp_path)) == (0, None)
