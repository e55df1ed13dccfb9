"""The stage as a whole: sources, shards, processes, and real recordings, also through ingest and features."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from checkout import DATA
from egoexo_fixture import annotate, describe, write_json
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation
from trajectory_fixture import (
    CALIBRATION,
    POSES,
    SEGMENTS,
    SYNC,
    calibration_line,
    codes,
    compute,
    corpus,
    good_take,
    motions,
    run_stage,
    write_take,
)
from video_fixture import decoded_here

from deployments.recipes.simulated import demo
from schemas.annotation import Take
from schemas.config import RunOptions
from schemas.poses import TrajectoryConfig
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.opened import open_run
from trajpilot_core.poses import files
from trajpilot_core.poses.aria import sparse
from trajpilot_core.poses.sources.take import capture_motions
from trajpilot_core.stages import STAGES, trajectories


def test_sources_hold_what_decides_the_motions_and_nothing_else(tmp_path: Path) -> None:
    take = good_take()
    source = trajectories.sources(corpus([take]), TrajectoryConfig(), "")[0]  # type: ignore[arg-type]
    assert source.shard == take.take_id
    assert source.files == (POSES, SYNC, CALIBRATION)
    assert source.facts["segments"] == [[f"{take.take_id}:{k:04d}", a, b] for k, (_, a, b) in enumerate(SEGMENTS)]
    same = trajectories.sources(corpus([take.replace(split="train", scenario="x")]), TrajectoryConfig(), "")  # type: ignore[arg-type]
    assert same[0] == source
    device = TrajectoryConfig(frame="device")
    assert trajectories.sources(corpus([take]), device, "")[0].files == (POSES, SYNC)  # type: ignore[arg-type]
    json.dumps(dict(source.facts))


def test_one_bad_take_costs_one_take_and_one_without_segments_gets_an_empty_shard(tmp_path: Path) -> None:
    write_take(tmp_path)
    (tmp_path / "page.csv").write_text("<html>404</html>")
    takes = [good_take(take_id=f"egoexo4d:{k}", trajectory="page.csv" if k == 1 else POSES) for k in range(4)]
    kept = corpus(takes)
    kept.tables["segments"] = kept.tables["segments"].slice(0, 3 * len(SEGMENTS))
    run_stage(tmp_path, kept, TrajectoryConfig())
    rows = {shard: table.num_rows for shard, (table, _, _) in kept.shards.items()}
    assert rows == {"egoexo4d:0": 6, "egoexo4d:1": 0, "egoexo4d:2": 6, "egoexo4d:3": 0}
    (lost,) = kept.shards["egoexo4d:1"][1]
    assert (lost.code, lost.n_units, lost.source_file) == ("TRAJ_MALFORMED", 6, "page.csv")


def test_a_remote_root_gives_the_same_motions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = write_take(tmp_path)
    expected = motions(compute(tmp_path, take))

    def from_disk(path: str) -> bytes:
        assert path.startswith("bucket/corpus/")
        return (tmp_path / path.removeprefix("bucket/corpus/")).read_bytes()

    monkeypatch.setattr(files, "open_system", lambda _: SimpleNamespace(cat_file=from_disk))
    (done,) = capture_motions("s3://bucket/corpus", [(take, SEGMENTS)], TrajectoryConfig())
    assert np.array_equal(motions(done), expected)
    (tmp_path / POSES).unlink()
    (done,) = capture_motions("s3://bucket/corpus", [(take, SEGMENTS)], TrajectoryConfig())
    assert codes(done) == {None: "NO_TRAJECTORY"}


# --- real recordings, see tests/data -------------------------------------------------------------------------------

MPS = DATA / "aria_mps_sample"
ADT = DATA / "adt_mini"


def real_take() -> Take:
    folder = "takes/aria_mps_sample_1/trajectory"
    return good_take(
        trajectory=f"{folder}/closed_loop_trajectory.csv",
        calibration=f"{folder}/online_calibration.jsonl",
        timesync="captures/aria_mps_sample/timesync.csv",
        camera="aria01_214-1",
        timesync_start=4,
        timesync_end=345,
        n_frames=340,
        duration_s=340 / 30,
    )


def real_segments(n: int = 11) -> list[list[object]]:
    return [[f"egoexo4d:u:{k:04d}", float(k), min(k + 1.5, 340 / 30)] for k in range(n)]


def test_a_real_recording_gives_motions_that_agree_with_its_own_velocities() -> None:
    cfg = TrajectoryConfig(frame="device")
    done = compute(MPS, real_take(), cfg, real_segments())
    assert codes(done) == {}
    found = motions(done)
    rows = np.genfromtxt(MPS / real_take().trajectory, delimiter=",", names=True, usecols=range(1, 20))  # type: ignore[operator]
    time_s = (rows["tracking_timestamp_us"] - rows["tracking_timestamp_us"][0] - 30_000) * 1e-6
    for at, (_, start_s, end_s) in enumerate(real_segments()):
        middle_s = start_s + (end_s - start_s) * (np.arange(16) + 0.5) / 16  # type: ignore[operator]
        rates = [f"device_linear_velocity_{a}_device" for a in "xyz"] + [f"angular_velocity_{a}_device" for a in "xyz"]
        mean = np.stack([np.interp(middle_s, time_s, rows[name]) for name in rates], axis=1)
        step_s = (end_s - start_s) / 16  # type: ignore[operator]
        assert np.abs(found[at] / step_s - mean).max() < 0.25  # m/s and rad/s; other frames are off by over 0.6
        assert np.abs(found[at] / step_s - mean).mean() < 0.04


def test_both_ways_to_read_give_equal_bytes_and_the_camera_frame_turns_the_device_motions_by_the_rig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, of_device = (
        compute(MPS, real_take(), TrajectoryConfig.model_validate({"frame": frame}), real_segments())
        for frame in ("camera", "device")
    )
    monkeypatch.setattr(sparse, "thin", lambda *_: None)
    assert few.table.equals(compute(MPS, real_take(), TrajectoryConfig(), real_segments()).table)
    assert few.table.num_rows == 11
    camera, device = motions(few), motions(of_device)
    w, (x, y, z) = 0.941575995616059, (0.332483969508643, 0.03396860324855, 0.041655593774964)
    turned = Rotation.from_quat([x, y, z, w]).inv().apply(device[..., 3:].reshape(-1, 3))
    assert_allclose(camera[..., 3:].reshape(-1, 3), turned, atol=1e-6)
    assert np.abs(camera[..., 3:] - device[..., 3:]).max() > 0.05


def test_a_30_hz_recording_is_refused_by_default_and_read_with_a_wider_limit(tmp_path: Path) -> None:
    frames = (ADT / "frame_timestamps.csv").read_text().split("\n")
    stamps = [line.split(",")[-1] for line in frames[1:] if line]
    (tmp_path / SYNC).write_text("aria01_214-1_capture_timestamp_ns\n" + "\n".join(stamps) + "\n")
    (tmp_path / POSES).write_bytes((ADT / "aria_trajectory.csv").read_bytes())
    (tmp_path / CALIBRATION).write_text(calibration_line(int(stamps[0]) // 1000))
    take = good_take(camera="aria01_214-1", timesync_start=0, timesync_end=3, n_frames=3, duration_s=0.1)
    segments: list[list[object]] = [["egoexo4d:u:0000", 0.005, 0.095], ["egoexo4d:u:0001", 0.0, 0.05]]
    assert codes(compute(tmp_path, take, None, segments)) == {"0000": "TRAJ_GAP", "0001": "TRAJ_TRUNCATED"}
    done = compute(tmp_path, take, TrajectoryConfig(max_bracket_gap_s=0.04), segments)
    assert codes(done) == {"0001": "TRAJ_TRUNCATED"}  # its first frame is 97 us older than the first pose
    assert_allclose(np.linalg.norm(motions(done)[0, :, :3], axis=1).sum(), 0.006, atol=0.006)
    assert done.table["quality"][0].as_py() == pytest.approx(0.8113, abs=1e-4)  # the lowest of the rows used


def test_a_real_aria_recording_goes_through_ingest_trajectories_and_features(tmp_path: Path) -> None:
    corpus, root = tmp_path / "corpus", tmp_path / "root"
    corpus.mkdir()
    for name in ("takes", "captures", "takes.json"):
        (corpus / name).symlink_to(MPS / name)
    uid = json.loads((MPS / "takes.json").read_text())[0]["take_uid"]
    given = annotate([describe(f"C takes step {n}.", 1.5 + 2 * n) for n in range(5)])
    write_json(corpus / "annotations/splits.json", {"take_uid_to_split": {uid: "val"}})
    write_json(corpus / "annotations/atomic_descriptions_val.json", {"annotations": {uid: [given]}})

    base, run = demo(), RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1)
    ingest = base.ingest.replace(video="downscaled_448", paraphrase_table=None, min_segment_s=0.0)
    config, names = base.replace(ingest=ingest), ("ingest", "trajectories", "features")
    with decoded_here():
        done = {name: execute(STAGES[name], config, run, STAGES) for name in names}
    assert {name: (o.n_in, o.n_out) for name, o in done.items()} == {
        "ingest": (5, 5),
        "trajectories": (5, 5),
        "features": (5, 5),
    }
    (take,) = open_run(str(root)).table("takes").to_dicts()
    assert (take["n_frames"], take["fps"], take["camera"]) == (340, 30.0, "aria01_214-1")
    assert take["duration_s"] == pytest.approx(340 / 30)
    assert (take["timesync_start"], take["timesync_end"]) == (4, 345)
    assert None not in (take["trajectory"], take["timesync"], take["calibration"])
    segments = open_run(str(root)).table("segments")
    assert segments["start_s"].to_list() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert segments["split"].unique().to_list() == ["test"]
    motions = open_run(str(root)).table("motions")
    motion = np.stack(motions["motions"].to_list()).reshape(5, 16, 6)
    path_m = np.linalg.norm(motion[..., :3], axis=-1).sum()
    assert 4.0 < path_m < 7.7, "the whole recording walks 7.67 m in 11.4 s; ten of them are covered"
    assert motions["quality"].min() >= 0.5
    assert motions["scale"].unique().to_list() == ["metric"]
    features = open_run(str(root)).table("features")
    vectors = np.stack(features["vector"].to_list()).astype(np.float32)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors[0] - vectors[-1]) > 0
