"""What stages say that they need: checked before they begin, with figures; cached ones are not asked."""

import logging
import os
import sys
from pathlib import Path

import pytest
from measured_needs import anonymous
from needs_store import StoreShape, write_store
from toy_stages import INGEST, VECTOR, options, run_toys, toys_with, write_corpus

from deployments.recipes.simulated import demo
from schemas.config import PipelineConfig
from schemas.groups import ShardGroup
from schemas.planners import PLANNERS
from schemas.world import demo_world
from trajpilot_core.engine import capacity
from trajpilot_core.engine.execution import admission
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.execution.groups import compute_group
from trajpilot_core.engine.needs import GB, MachineFree, Need, Needs, NeedsMachine, lacks, needs_fit, require_needs
from trajpilot_core.engine.planning.stated import manifests_of, stated_needs
from trajpilot_core.engine.resolve import resolve_precision
from trajpilot_core.engine.sizes import PAPER_WINDOWS, CorpusSizes, paper_sizes, sizes_of, world_sizes
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES, planners, probe
from trajpilot_core.store.files import LocalFolder, open_folder

CONFIG = PipelineConfig()
HUGE = 10**18


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def stating(needs: Needs):
    """Declare the same needs whatever the sizes."""
    return lambda sizes, config, machine: needs


def test_a_stage_that_does_not_fit_is_refused_with_figures_and_what_to_change(tmp_path: Path, corpus: Path) -> None:
    run = options(tmp_path / "root", corpus)
    needs = Needs(Need(HUGE, ("ingest.max_horizon",)), disk=Need(1000))
    with pytest.raises(InputError) as refused:
        run_toys(run, toys_with(INGEST, needs=stating(needs)), until="toy_ingest")
    said = str(refused.value)
    assert "stage toy_ingest cannot begin here: it needs 1000000000.0 GB of memory, and" in said
    assert "ask for less with --set ingest.max_horizon, or end other programs" in said
    assert "--ignore-needs" in said
    assert not list((tmp_path / "root").rglob("manifest.json"))
    everything = toys_with(INGEST, needs=stating(Needs(Need(), disk=Need(HUGE), scratch=Need(1, ("a.b",)))))
    with pytest.raises(InputError, match=r"of disk, and .* is free: ask for less with --set a.b, or free some"):
        run_toys(run, everything, until="toy_ingest")


def test_needs_that_are_ignored_or_fit_or_of_a_cached_stage_refuse_nothing(tmp_path: Path, corpus: Path) -> None:
    run = options(tmp_path / "root", corpus)
    too_much = toys_with(INGEST, needs=stating(Needs(Need(HUGE))))
    assert not run_toys(run.replace(ignore_needs=True), too_much, until="toy_ingest")["toy_ingest"].cached
    assert run_toys(run, too_much, until="toy_ingest")["toy_ingest"].cached
    little = toys_with(INGEST, needs=stating(Needs(Need(1), disk=Need(1))))
    assert not run_toys(run.replace(force=("toy_ingest",)), little, until="toy_ingest")["toy_ingest"].cached


def test_fewer_processes_are_used_where_all_of_them_need_too_much(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)
    monkeypatch.setattr(admission, "free_memory", lambda: 10 * GB)
    seen: list[int] = []

    def noted(work: Work) -> None:
        seen.append(work.runtime.workers)
        INGEST.run(work)

    stages = toys_with(INGEST, run=noted, needs=lambda sizes, config, machine: Needs(Need(3 * GB * machine.workers)))
    with caplog.at_level(logging.INFO, "trajpilot"):
        execute(stages["toy_ingest"], CONFIG, options(tmp_path / "root", corpus, workers=8), stages)
    assert seen == [3]
    assert "3 at a time, not 8, which need 24.0 GB" in caplog.text
    assert "needs at most 9.0 GB of memory, 0 MB of disk" in caplog.text
    monkeypatch.setattr(admission, "free_memory", lambda: 2 * GB)
    with pytest.raises(InputError, match=r"needs 3\.0 GB of memory, and 2\.0 GB is free"):
        execute(stages["toy_ingest"], CONFIG, options(tmp_path / "other", corpus, workers=8), stages)


def test_shards_that_are_all_there_are_put_together_whatever_computing_them_needs(tmp_path: Path, corpus: Path) -> None:
    run = options(tmp_path / "root", corpus)
    done = run_toys(run, until="toy_vectors")["toy_vectors"]
    manifests = list((tmp_path / "root").rglob("toy_vectors/**/manifest.json"))
    assert len(manifests) == 1
    manifests[0].unlink()
    too_much = toys_with(VECTOR, needs=stating(Needs(Need(HUGE))))
    again = run_toys(run, too_much, until="toy_vectors")["toy_vectors"]
    assert (again.computed, again.ref) == (0, done.ref)
    with pytest.raises(InputError, match="stage toy_vectors cannot begin here"):
        run_toys(run.replace(force=("toy_vectors",)), too_much, until="toy_vectors")


def test_a_group_of_takes_is_checked_on_the_machine_that_computes_it(tmp_path: Path, corpus: Path) -> None:
    run = options(tmp_path / "root", corpus)
    run_toys(run, until="toy_ingest")
    named = {"stage": "toy_vectors", "version": 1, "key": "0" * 32, "unit": "take", "shards": {"take0": "x"}}
    group = ShardGroup.model_validate({**named, "number": 1, "of": 2, "video_s": 1.0})
    with pytest.raises(InputError, match="stage toy_vectors cannot begin here"):
        compute_group(CONFIG, run, toys_with(VECTOR, needs=stating(Needs(Need(HUGE)))), group)


def test_what_the_system_does_not_say_refuses_nothing() -> None:
    needs = Needs(Need(HUGE), Need(HUGE), Need(HUGE), Need(HUGE))
    assert lacks(needs, MachineFree()) == []
    require_needs("any", needs, MachineFree())
    assert len(lacks(needs, MachineFree(1, 1, 1, 1))) == 4
    assert len(lacks(needs, MachineFree(disk=2 * HUGE - 1))) == 1
    assert lacks(needs, MachineFree(disk=2 * HUGE, device=HUGE, host=HUGE)) == []
    assert needs_fit(lambda n: Needs(Need(n)), 4, MachineFree()) == 4
    assert needs_fit(lambda n: Needs(Need(n)), 4, MachineFree(host=2)) == 2
    assert needs_fit(lambda n: Needs(Need(n)), 4, MachineFree(host=0)) == 1


def test_free_memory_of_a_container_is_its_limit_less_what_its_processes_hold(tmp_path: Path) -> None:
    listing = tmp_path / "meminfo"
    listing.write_text("MemTotal: 64000000 kB\nMemAvailable: 50000000 kB\n")
    assert capacity.free_memory(listing, tmp_path) == 50_000_000 * 1024
    (tmp_path / "memory.max").write_text(f"{8 * GB}\n")
    assert capacity.free_memory(listing, tmp_path) == 8 * GB
    (tmp_path / "memory.stat").write_text(f"anon {3 * GB}\nfile {4 * GB}\n")
    assert capacity.free_memory(listing, tmp_path) == 5 * GB
    (tmp_path / "memory.max").write_text("max\n")
    assert capacity.free_memory(listing, tmp_path) == 50_000_000 * 1024
    assert capacity.free_memory(tmp_path / "none", tmp_path) is None


def test_every_stage_states_its_needs_and_at_the_papers_size_they_keep_the_bounds() -> None:
    """With a GPU and the defaults: 16 GB of memory on the host and 22 GB on the GPU; docs/operations.md."""
    sizes = paper_sizes(CONFIG)
    assert (sizes.feature_width, sizes.text_width, sizes.windows) == (1664, 768, PAPER_WINDOWS)
    for stage in STAGES.values():
        own = resolve_precision(stage.settings(CONFIG), "cuda")
        assert stage.needs is not None
        needs = stage.needs(sizes, own, NeedsMachine("cuda" if stage.on_gpu(own) else "cpu", 2))
        assert 0 < needs.host.bytes <= 16 * GB, stage.name
        assert needs.device.bytes <= 22 * GB, stage.name
        assert bool(needs.device.bytes) == stage.on_gpu(own)
        assert needs.disk.bytes


def test_needs_grow_with_what_there_is_to_do() -> None:
    small = paper_sizes(CONFIG)
    large = CorpusSizes(
        CONFIG, 5098, 303_676, {k: 2 * n for k, n in PAPER_WINDOWS.items()}, small.horizons, 16_944, 8, 1664, 1024
    )
    for stage in STAGES.values():
        assert stage.needs is not None
        own, machine = stage.settings(CONFIG), NeedsMachine("cpu", 2)
        if stage is planners.STAGE:
            own = own.replace(methods=PLANNERS)  # by default there is nothing to do
        if stage is probe.STAGE:
            own = own.replace(tokens="temporal")  # the same
        assert stage.needs(large, own, machine).largest > stage.needs(small, own, machine).largest, stage.name


def test_a_corpus_without_windows_has_needs_too() -> None:
    none = CorpusSizes(CONFIG, 24, 180, dict.fromkeys(PAPER_WINDOWS, 0), (), 72, 8, 256, 128)
    for stage in STAGES.values():
        assert stage.needs is not None
        assert stage.needs(none, stage.settings(CONFIG), NeedsMachine("cpu", 2)).largest > 0, stage.name


def test_a_root_without_outputs_counts_as_the_papers_corpus_and_says_so(tmp_path: Path, corpus: Path) -> None:
    run, folder = options(tmp_path / "root", corpus), open_folder(str(tmp_path / "root"))
    stated = stated_needs(STAGES, CONFIG, run, manifests_of(folder, STAGES), folder)
    assert stated.sizes == paper_sizes(CONFIG)
    assert "all of it as in the paper's corpus" in stated.basis()
    assert stated.at() == ", at the paper's sizes"
    stage, most = stated.most("host")
    assert (
        most.bytes == max(needs.host.bytes for needs in stated.by_stage.values()) == stated.by_stage[stage].host.bytes
    )
    assert stated.most("device") == ("", Need())
    assert stated.disk() > stated.by_stage["scorer"].scratch.bytes


def test_a_simulated_world_is_known_before_it_is_written(tmp_path: Path, corpus: Path) -> None:
    config, world = demo(), demo_world()
    run, folder = options(tmp_path / "root", corpus), open_folder(str(tmp_path / "root"))
    stated = stated_needs(STAGES, config, run, manifests_of(folder, STAGES), folder, world_sizes(config, world))
    assert stated.sizes.takes == world.train_takes + world.test_takes
    assert stated.at() == ""
    assert stated.most("host")[1].bytes < 3 * GB
    assert stated.disk() < GB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_heaps_that_earlier_stages_left_are_given_back_before_the_memory_is_looked_at() -> None:
    """Every other small block is freed: the heap keeps its pages until it is trimmed, which happens in whole pages."""
    many = [bytearray(64_000) for _ in range(2_000)]
    kept = many[::10]
    del many
    before = anonymous(os.getpid())
    admission.release_heap()
    assert anonymous(os.getpid()) < before - 40_000_000
    assert len(kept) == 200


class Elsewhere(LocalFolder):
    """A root that does not lie on this machine."""

    def local(self, path: str) -> None:
        return None


def test_sizes_are_those_of_manifests_windows_and_schemas(tmp_path: Path) -> None:
    shape = StoreShape(takes=20, segments=10, labels=30, feature_width=24, text_width=16, horizons=(3, 5))
    config = CONFIG.replace(text_bank=CONFIG.text_bank.replace(encoder="bag_of_words"))
    run = options(tmp_path / "root", tmp_path)
    write_store(shape, config, run)
    folder = open_folder(run.root)
    stated = stated_needs(STAGES, config, run, manifests_of(folder, STAGES), folder)
    sizes, by_split = stated.sizes, {"train": 17 * 14, "dev": 2 * 14, "test": 14}
    assert (sizes.takes, sizes.segments, sizes.labels) == (20, 200, 30)
    assert (sizes.feature_width, sizes.tokens, sizes.text_width) == (24, 1, 16)
    assert (sizes.windows, sizes.horizons, sizes.assumed) == (by_split, (3, 5), ())
    assert sizes.positions == 4 * sizes.all_windows
    entries = {name: (m.stage, e) for m in manifests_of(folder, STAGES).values() if m for name, e in m.entries.items()}
    remote = sizes_of(Elsewhere(run.root), entries, config)
    assert (remote.feature_width, remote.text_width, remote.assumed) == (24, 16, ())
    assert sizes.all_windows <= remote.all_windows <= sizes.all_windows + 3
    assert remote.windows["train"] == -(-sizes.all_windows * PAPER_WINDOWS["train"] // sum(PAPER_WINDOWS.values()))
