"""Which stages each reads, and the memory that is free."""

from pathlib import Path

from schemas.config import PipelineConfig, TextConfig
from trajpilot_core.engine.key import rejects_entry, upstream
from trajpilot_core.engine.needs import free_memory
from trajpilot_core.stages import STAGES

GB = 10**9


def test_a_stage_waits_for_exactly_those_whose_entries_it_reads() -> None:
    found = upstream(STAGES, list(STAGES))
    for name, stage in STAGES.items():
        written = {other: {*s.writes, rejects_entry(other)} for other, s in STAGES.items()}
        assert set(found[name]) == {other for other in STAGES if written[other] & set(stage.reads)}, name
    assert found["trajectories"] == found["features"] == found["text_bank"] == ("ingest",)
    names = list(STAGES)
    assert all(names.index(before) < names.index(name) for name in names for before in found[name]), "declared order"
    assert STAGES["text_bank"].on_gpu(PipelineConfig().text_bank)
    assert not STAGES["text_bank"].on_gpu(TextConfig(encoder="bag_of_words")), "words are hashed without a model"
    asked = {"features": (), "scorer": ("features",)}
    assert upstream(STAGES, list(asked)) == asked, "what a run does not ask for is not waited for"


def test_a_container_that_may_use_less_than_the_machine_has_less(tmp_path: Path) -> None:
    listing, none = tmp_path / "meminfo", tmp_path / "none"
    listing.write_text("MemTotal: 64000000 kB\nMemAvailable:   50000000 kB\n")
    assert free_memory(listing, tmp_path) == 50_000_000 * 1024
    (tmp_path / "memory.max").write_text("8000000000\n")
    assert free_memory(listing, tmp_path) == 8 * GB
    (tmp_path / "memory.stat").write_text("anon 3000000000\nfile 4000000000\n")
    assert free_memory(listing, tmp_path) == 5 * GB
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(listing, tmp_path) == 50_000_000 * 1024
    assert free_memory(none, tmp_path) is None
