"""Odometry on a real head's path: a recording whose frames are rendered at the real poses."""

import json
from pathlib import Path

import numpy as np
import pytest
from checkout import DATA
from pose_errors import clip_error, joined
from test_poses_sources import of_video, run_stage
from trajectory_fixture import good_take

from schemas.poses import TrajectoryConfig
from trajpilot_core.poses.sources.take import capture_motions

MPS = DATA / "aria_mps_sample"
FOLDER = "takes/aria_mps_sample_1"
SPANS = [(float(at), float(at) + 2.0) for at in np.arange(0.2, 9.2, 2.0)]
"""Clips of two seconds; docs/decisions/poses.md has one every half second."""


@pytest.mark.slow
def test_odometry_follows_a_real_head_through_its_fisheye(capsys: pytest.CaptureFixture[str]) -> None:
    """Run with `-s` to see the figures."""
    assert json.loads((MPS / "takes.json").read_text())
    poses = f"{FOLDER}/trajectory/closed_loop_trajectory.csv"
    lens = f"{FOLDER}/trajectory/online_calibration.jsonl"
    take = good_take(
        video=f"{FOLDER}/frame_aligned_videos/downscaled/448/aria01_214-1.mp4",
        camera="aria01_214-1",
        fps=30.0,
        timesync="captures/aria_mps_sample/timesync.csv",
        timesync_start=4,
        timesync_end=345,
        n_frames=340,
        duration_s=340 / 30,
        trajectory=poses,
        calibration=lens,
    )
    cfg = TrajectoryConfig(source="odometry", scale="raw")
    kept = run_stage(Path(MPS), of_video(take, SPANS), cfg)
    table, rejects, _ = kept.shards[take.take_id]
    assert rejects == []
    # an estimate ends with the last frame of its segment
    spans = [[f"s{at}", start_s, end_s - 1 / take.fps] for at, (start_s, end_s) in enumerate(SPANS)]
    (true,) = capture_motions(str(MPS), [(take, spans)], TrajectoryConfig())
    both = (np.array(motions["motions"].to_pylist()).reshape(-1, 16, 6) for motions in (table, true.table))
    errors = [clip_error(joined(clip), joined(of_files)) for clip, of_files in zip(*both, strict=True)]
    rotation, position = ([getattr(e, name) for e in errors] for name in ("rotation_deg", "position_m"))
    share = [e.position_m / e.spread_m for e in errors]
    with capsys.disabled():
        for name, values in (("rotation, deg", rotation), ("position, m", position), ("of the spread", share)):
            print(f"\n{name}: median {np.median(values):.3f}, 90 % {np.percentile(values, 90):.3f}", end="")  # noqa: T201
    assert len(errors) == len(SPANS)
    assert np.median(rotation) < 1.0
    assert np.median(share) < 0.05
