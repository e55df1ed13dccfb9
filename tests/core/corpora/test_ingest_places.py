"""Where a corpus may lie, and what the metadata state where `ingest.video=none` reads no video."""

from pathlib import Path

import pytest
from egoexo_fixture import SMALL, healthy, ingest, list_sources

from schemas.annotation import Take
from schemas.config import PipelineConfig
from schemas.poses import TrajectoryConfig
from schemas.rejects import RejectCode
from schemas.world import laptop_world, tiny_world
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.doctor.checks import check_corpus
from trajpilot_core.doctor.weights import check_weights
from trajpilot_core.errors import InputError
from trajpilot_core.poses.sources import odometry, pi3
from trajpilot_core.simworld.sample import sample_world


def test_folders_and_files_behind_links_are_found(tmp_path: Path) -> None:
    corpus = healthy(tmp_path / "disk")
    corpus.write()
    root = tmp_path / "root"
    root.mkdir()
    for name in ("takes", "captures", "annotations", "takes.json"):
        (root / name).symlink_to(tmp_path / "disk" / name)
    video = corpus.video("train_0")
    video.rename(tmp_path / "elsewhere.mp4")
    video.symlink_to(tmp_path / "elsewhere.mp4")
    assert ingest(root).codes() == {}
    (tmp_path / "elsewhere.mp4").unlink()
    assert ingest(root).codes() == {"VIDEO_MISSING": 6}


NONE = SMALL.replace(video="none")


def test_without_videos_the_tables_are_those_of_the_videos_but_for_their_paths(tmp_path: Path) -> None:
    root = healthy(tmp_path).write()
    counted = ingest(root)
    videos = sorted(root.rglob("*.mp4"))
    for path in videos:
        path.unlink()
    stated = ingest(root, NONE)
    assert [row | {"video": ""} for row in counted.rows("takes")] == stated.rows("takes")
    for name in ("segments", "labels", "windows", "details"):
        assert counted.tables[name].equals(stated.tables[name])
    assert counted.codes() == stated.codes()
    with pytest.raises(InputError, match=f"no take of the released split.*VIDEO_MISSING: {len(videos) - 1} takes"):
        ingest(root)


def test_a_video_that_lies_there_all_the_same_is_neither_read_nor_part_of_the_key(tmp_path: Path) -> None:
    root = healthy(tmp_path).write()
    before, video = ingest(root, NONE).rows("takes"), next(root.rglob("*.mp4"))
    assert not [path for path in list_sources(root, NONE).files if path.endswith(".mp4")]
    video.write_bytes(b"no video")
    assert ingest(root, NONE).rows("takes") == before
    assert ingest(root).rows("takes") != before  # counted, it costs its take


def test_a_take_whose_length_is_not_stated_is_lost_with_a_reason(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    for stated in (None, "12", 0, -1.0, True):
        corpus.takes[0]["duration_sec"] = stated  # type: ignore[index]
        found = ingest(corpus.write(), NONE)
        (lost,) = found.of(RejectCode.RECORD_MALFORMED)
        assert (lost.take, lost.n_units) == ("egoexo4d:uid-train_0", 6), stated
        assert "no video is read" in lost.detail
        assert len(found.rows("takes")) == 3
    assert {name for name, spec in CORPORA.items() if spec.download.without_videos} >= {"egoexo4d_atomic"}


def test_whoever_needs_frames_is_refused_before_and_while_the_run_is(tmp_path: Path) -> None:
    rows = ingest(healthy(tmp_path).write(), NONE).rows("takes")
    take, cfg = Take.model_validate(rows[0]), TrajectoryConfig(source="odometry")
    for source in (odometry, pi3):
        with pytest.raises(InputError, match="reads frames, but the takes were ingested without videos"):
            source.files(take, cfg)
    assert video_of(take.replace(video="a.mp4"), "") == "a.mp4"
    config = PipelineConfig(ingest=NONE)
    bad = [row for row in check_weights(config, ["features", "trajectories"]) if row.what == "videos"]
    assert [(row.verdict, row.found) for row in bad] == [("bad", "read for features.source=encoded")]
    moving = config.replace(trajectories=cfg)
    assert "poses of odometry" in check_weights(moving, ["trajectories"])[0].found
    quiet = config.replace(features=config.features.replace(source="released"))
    assert "videos" not in {row.what for row in check_weights(quiet)}


def test_doctor_asks_for_no_video_and_still_for_poses_and_annotations(tmp_path: Path) -> None:
    root = healthy(tmp_path).write()
    for path in (*root.rglob("*.mp4"), *root.rglob("test_0/trajectory/*.csv")):
        path.unlink()
    found = {row.what: row for row in check_corpus(str(root), NONE)}
    assert {name: row.verdict for name, row in found.items()} == {
        "annotations": "ok",
        "videos": "ok",
        "pose files": "note",
    }
    assert found["videos"].found == "4 takes by their metadata alone"
    assert {row.what: row.verdict for row in check_corpus(str(root), SMALL)}["videos"] == "bad"
    (command,) = CORPORA["egoexo4d_atomic"].download.commands_for("DATA", with_videos=False)
    assert command.endswith(" take_trajectory features/omnivore_video")


def test_a_simulated_world_without_videos_has_no_fault_of_videos() -> None:
    faults = {take.fault for take in sample_world(laptop_world()).takes}
    assert not [fault for fault in faults if fault and fault.startswith("video_")]
    assert "trajectory_gap" in faults
    with pytest.raises(ValueError, match="without videos a world has released features"):
        tiny_world().replace(videos=False)
