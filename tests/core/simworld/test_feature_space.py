"""A simulated world that enters by frames gives what the one with video gives, without the files."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, RunOptions
from schemas.trajectories import TrajectoryConfig
from schemas.world import WorldConfig, tiny_world
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.execution import admission
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.needs import MB, NeedsMachine
from trajpilot_core.engine.sizes import paper_sizes
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.simworld.feature_space import (
    by_take,
    describe_world,
    exact_motions,
    still_frames,
    still_world,
    world_tables,
)
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages import FEATURE_SPACE_STAGES, features
from trajpilot_core.stages.feature_space import FEATURES, TABLES, feature_sources, motions_table, world_of

INGEST = IngestConfig(video="full", central_share=0.6, dev_min=1)


def clean(**changes: object) -> WorldConfig:
    """A world without habits and faults of annotators, so that both entries see the same time points."""
    shares = {name: 0.0 for name in tiny_world().model_dump() if name.endswith("_share") and name != "rejected_share"}
    base = tiny_world().replace(**shares, rejected_share=0.0, broken="none", dense_takes=0, size_px=64)
    return base.replace(train_takes=4, test_takes=2, segments=6, **changes)


def test_the_motion_is_that_of_the_pose_files(tmp_path: Path) -> None:
    """The files hold 100 poses a second, which are interpolated: a tenth of a millimetre and of a degree a motion."""
    from trajpilot_core.poses.sources.take import capture_motions

    config = clean()
    write_world(config, tmp_path, 1, no_progress)
    world = sample_world(config)
    tables = world_tables(world, INGEST)
    truth = {take_id(take.uid): take for take in world.takes}
    spans = by_take(tables.segments)
    released = {row.take_id: row for row in files_of(tmp_path, tables.takes)}
    for name, (ids, start_s, end_s) in spans.items():
        segments = [list(row) for row in zip(ids, start_s.tolist(), end_s.tolist(), strict=True)]
        (done,) = capture_motions(str(tmp_path), [(released[name], segments)], TrajectoryConfig())
        assert done.table["segment_id"].to_pylist() == ids
        measured = np.stack(done.table["motions"].to_numpy(zero_copy_only=False)).reshape(-1, 16, 6)
        exact = exact_motions(world, truth[name], start_s, end_s)
        assert np.abs(measured[..., :3] - exact[..., :3]).max() < 1e-3
        assert np.abs(measured[..., 3:] - exact[..., 3:]).max() < 2e-3
        assert np.abs(exact).max() > 0.01


def files_of(folder: Path, takes: object) -> list[Take]:
    """The takes as ingest would find them: their files' places from the corpus, the rest as drawn."""
    from trajpilot_core.store.corpus_files import open_corpus

    places = {c.take.take_id: c.take for c in spec_of(INGEST.corpus).read(open_corpus(str(folder)), INGEST).candidates}
    names = ("video", "trajectory", "timesync", "calibration", "camera", "timesync_start", "timesync_end")
    return [
        row.replace(**{name: getattr(places[row.take_id], name) for name in names})
        for row in rows_of(Take, takes)  # type: ignore[arg-type]
    ]


def test_segments_and_labels_are_those_that_the_annotations_give(tmp_path: Path) -> None:
    from trajpilot_core.store.corpus_files import open_corpus

    config = clean()
    write_world(config, tmp_path, 1, no_progress)
    points = {c.take.take_id: c for c in spec_of(INGEST.corpus).read(open_corpus(str(tmp_path)), INGEST).candidates}
    tables = world_tables(sample_world(config), INGEST)
    drawn = tables.segments.to_pylist()
    assert {row["take_id"] for row in drawn} == set(points)
    for take, candidate in points.items():
        mine = [row for row in drawn if row["take_id"] == take]
        assert [row["anchor_s"] for row in mine] == [point.time_s for point in candidate.points]
    assert {row["split"] for row in drawn} == {"train", "dev", "test"}


def test_a_still_head_shows_nothing_of_the_motion() -> None:
    """Worlds that differ in motion alone look the same by frames, and share one key."""
    one, other = (sample_world(clean(kappa=kappa, style=style)) for kappa, style in ((3.0, 2.0), (0.0, 0.0)))
    times_s = np.linspace(1.0, 4.0, 5)
    frames = [still_frames(world, world.takes[0], times_s) for world in (one, other)]
    assert np.array_equal(*frames)
    assert frames[0].std() > 10
    assert still_world(one.config, 64) == still_world(other.config, 64)
    assert still_world(clean(label_appearance=0.0), 64) != still_world(one.config, 64)


def test_the_key_of_the_features_knows_the_look_and_not_the_motion(tmp_path: Path) -> None:
    def facts(name: str, **changes: object) -> object:
        describe_world(clean(entry="frames", **changes), tmp_path / name)
        (source,) = feature_sources(None, FeatureConfig(model="tiny", size_px=64), str(tmp_path / name))  # type: ignore[arg-type]
        return source.facts

    assert facts("a", kappa=3.0) == facts("b", kappa=0.0, style=0.0)
    assert facts("c", label_appearance=0.0) != facts("a", kappa=3.0)


def test_features_by_latents_need_no_encoder_and_frames_do(tmp_path: Path) -> None:
    """Planted: a corpus whose place is not known, of which the encoder's memory is stated."""
    cfg, needs = FeatureConfig(), FEATURES.needs
    assert needs is not None
    sizes, gpu = paper_sizes(PipelineConfig()), NeedsMachine("cuda", 2)
    encoding = features.needs(sizes, cfg, gpu)
    stated = {}
    for entry in ("frames", "latents"):
        describe_world(clean(entry=entry), tmp_path / entry)
        stated[entry] = needs(replace(sizes, data_root=str(tmp_path / entry)), cfg, gpu)
    assert stated["frames"] == encoding == needs(sizes, cfg, gpu)
    assert encoding.device.bytes > 0 == stated["latents"].device.bytes
    on_cpu = needs(replace(sizes, data_root=str(tmp_path / "latents")), cfg, NeedsMachine("cpu", 2))
    assert on_cpu == stated["latents"]
    assert on_cpu.host.bytes < features.needs(sizes, cfg, NeedsMachine("cpu", 2)).host.bytes


def test_a_stage_that_begins_knows_where_its_corpus_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By latents the features begin on a machine that has no room for an encoder; planted: by frames they do not."""
    cfg = PipelineConfig().replace(features=FeatureConfig(model="tiny", n_frames=4, size_px=64))
    monkeypatch.setattr(features, "TORCH", 0)
    monkeypatch.setattr(admission, "free_memory", lambda: 20 * MB)
    for entry in ("latents", "frames"):
        describe_world(clean(entry=entry), tmp_path / entry)
        run = RunOptions(root=str(tmp_path / f"root {entry}"), data_root=str(tmp_path / entry), device="cpu", workers=1)
        execute(TABLES, cfg, run.replace(ignore_needs=True), FEATURE_SPACE_STAGES)
        room = nullcontext() if entry == "latents" else pytest.raises(InputError, match="features cannot begin here")
        with room:
            execute(FEATURES, cfg, run, FEATURE_SPACE_STAGES)


def test_motions_have_one_row_per_segment() -> None:
    world = sample_world(clean(entry="frames"))
    tables = world_tables(world, INGEST)
    table = motions_table(world, tables.segments)
    assert sorted(table["segment_id"].to_pylist()) == sorted(tables.segments["segment_id"].to_pylist())


def test_a_world_with_broken_takes_cannot_enter_by_features() -> None:
    with pytest.raises(WorldError, match='broken to "none"'):
        world_tables(sample_world(tiny_world()), INGEST)


def test_only_a_world_of_that_door_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="does not describe"):
        world_of(str(tmp_path))
    describe_world(clean(), tmp_path)
    with pytest.raises(WorldError, match="entry 'video'"):
        world_of(str(tmp_path))
    with pytest.raises(WorldError, match="describes another world"):
        describe_world(clean(seed=1), tmp_path)


def test_the_door_writes_what_the_stages_behind_it_read() -> None:
    written: set[str] = set()
    for stage in FEATURE_SPACE_STAGES.values():
        assert set(stage.reads) <= written, stage.name
        written |= set(stage.writes)
    assert FEATURES.name in FEATURE_SPACE_STAGES
