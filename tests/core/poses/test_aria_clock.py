"""Video time -> device clock, and the pose of the camera on the device."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from trajectory_fixture import (
    CALIBRATION,
    CLOCK_NS,
    FIRST_ROW,
    FPS,
    N_FRAMES,
    SYNC,
    T_DEVICE_CAMERA,
    calibration_line,
    codes,
    compute,
    good_take,
    motions,
    timesync_text,
    write_take,
)

from schemas.annotation import Take
from schemas.poses import TrajectoryConfig
from schemas.rejects import RejectCode
from trajpilot_core.errors import TakeFault
from trajpilot_core.poses.aria.device import Clock, device_times, nearest_extrinsics, read_column, take_clock


def clock_of(root: Path, text: str, **changes: object) -> Clock:
    (root / SYNC).write_text(text)
    take = good_take(**changes)
    return take_clock(read_column(str(root), SYNC, take.camera), take, SYNC)


def code_of(root: Path, text: str, **changes: object) -> RejectCode:
    with pytest.raises(TakeFault) as caught:
        clock_of(root, text, **changes)
    return caught.value.code


def at(clock: Clock, time_s: float) -> int:
    return int(device_times(clock, np.array([time_s]), 0.1)[0][0])


def test_frame_zero_is_the_start_row_or_the_one_after_it_where_the_video_has_one_frame_less(tmp_path: Path) -> None:
    whole = clock_of(tmp_path, timesync_text(), timesync_start=FIRST_ROW, timesync_end=FIRST_ROW + N_FRAMES)
    assert at(whole, 0.0) == CLOCK_NS
    clock = clock_of(tmp_path, timesync_text())
    assert at(clock, 0.0) == CLOCK_NS
    assert at(clock, 7.0) == CLOCK_NS + 7_000_000_000
    assert at(clock, 0.5 / FPS) == pytest.approx(CLOCK_NS + 0.5e9 / FPS, abs=1)


def test_another_number_of_frames_too_few_rows_an_index_below_zero_and_a_clock_that_stands_are_mismatches(
    tmp_path: Path,
) -> None:
    for n_frames in (N_FRAMES - 1, N_FRAMES + 2, 0):
        assert code_of(tmp_path, timesync_text(), n_frames=n_frames) == RejectCode.TIMESYNC_MISMATCH
    short = "".join(timesync_text().splitlines(keepends=True)[:100])
    assert code_of(tmp_path, short) == RejectCode.TIMESYNC_MISMATCH
    shifted = {"timesync_start": -2, "timesync_end": N_FRAMES - 1}
    assert code_of(tmp_path, timesync_text(), **shifted) == RejectCode.TIMESYNC_MISMATCH
    standing = timesync_text({FIRST_ROW + 9: str(CLOCK_NS)})
    assert code_of(tmp_path, standing) == RejectCode.TIMESYNC_MISMATCH
    no_times = timesync_text(dict.fromkeys(range(FIRST_ROW + N_FRAMES + 5), "nan"))
    assert code_of(tmp_path, no_times) == RejectCode.TIMESYNC_MISMATCH


def test_absent_file_column_or_indices_are_missing_timesync(tmp_path: Path) -> None:
    assert code_of(tmp_path, timesync_text(), camera="aria01_214-1") == RejectCode.TIMESYNC_MISSING
    assert code_of(tmp_path, timesync_text(), timesync_start=None) == RejectCode.TIMESYNC_MISSING
    assert code_of(tmp_path, "") == RejectCode.TIMESYNC_MISSING
    take = write_take(tmp_path)
    (tmp_path / SYNC).unlink()
    assert codes(compute(tmp_path, take)) == {None: "TIMESYNC_MISSING"}
    assert codes(compute(tmp_path, take.replace(timesync=None))) == {None: "TIMESYNC_MISSING"}


def test_nanoseconds_near_1e18_are_exact_and_empty_cells_and_floats_do_not_matter(tmp_path: Path) -> None:
    epoch = 1_686_767_222_002_923_697
    clock = clock_of(tmp_path, timesync_text({0: "nan", 1: "", 2: "NaN", FIRST_ROW + 50: "NaN"}, first_ns=epoch))
    assert at(clock, 0.0) == epoch
    assert at(clock, 3.0) == epoch + 3_000_000_000
    floats = {FIRST_ROW + k: f"{CLOCK_NS + round(k * 1e9 / FPS)}.0" for k in range(N_FRAMES)}
    assert at(clock_of(tmp_path, timesync_text(floats)), 1.0) == CLOCK_NS + 1_000_000_000


def test_the_clock_runs_through_two_empty_cells_but_a_longer_hole_costs_its_segments(tmp_path: Path) -> None:
    take = write_take(tmp_path)
    good = motions(compute(tmp_path, take))
    hole = range(FIRST_ROW + 93, FIRST_ROW + 93 + 2)  # 3.1 s
    (tmp_path / SYNC).write_text(timesync_text(dict.fromkeys(hole, "")))
    assert_allclose(motions(compute(tmp_path, take)), good, atol=1e-6)
    hole = range(FIRST_ROW + 93, FIRST_ROW + 93 + 6)
    (tmp_path / SYNC).write_text(timesync_text(dict.fromkeys(hole, "")))
    done = compute(tmp_path, take)
    assert codes(done) == {"0002": "TIMESYNC_MISMATCH"}
    assert done.rejects[0].source_file == SYNC


def test_the_clock_goes_on_for_the_last_frame_and_no_further(tmp_path: Path) -> None:
    text = "".join(timesync_text().splitlines(keepends=True)[: 1 + FIRST_ROW + N_FRAMES])
    clock = clock_of(tmp_path, text)
    end_s = N_FRAMES / FPS
    times, known = device_times(clock, np.array([end_s - 0.5 / FPS, end_s, end_s + 1 / FPS, -0.1]), 0.1)
    assert known.tolist() == [True, True, False, False]
    assert abs(times[1] - (CLOCK_NS + end_s * 1e9)) <= N_FRAMES


@settings(max_examples=200)
@given(st.lists(st.integers(1, 50_000_000), min_size=2, max_size=40), st.integers(0, 2**60))
def test_device_time_rises_with_video_time_and_passes_through_every_frame(steps: list[int], first_ns: int) -> None:
    ns = first_ns + np.cumsum([0, *steps])
    clock = Clock(np.arange(len(ns)), ns, 30.0)
    found, known = device_times(clock, np.arange(len(ns)) / 30.0, 0.1)
    assert known.all()
    assert (np.abs(found - ns) <= 1).all()
    between, _ = device_times(clock, np.linspace(0, (len(ns) - 1) / 30.0, 301), 0.1)
    assert (np.diff(between) >= 0).all()


def extrinsics_at(content: str, *times_us: int) -> np.ndarray:
    return nearest_extrinsics(content.encode(), np.array(times_us), 1e-3, "c.jsonl").t_m


def shifted_line(us: int, x_m: float) -> str:
    return calibration_line(us).replace(str(T_DEVICE_CAMERA[1][0]), str(x_m))


def test_the_nearest_calibration_line_is_taken_whatever_the_order() -> None:
    content = shifted_line(300, 3.0) + shifted_line(100, 1.0) + shifted_line(200, 2.0)
    assert extrinsics_at(content, 0, 149, 150, 151, 251, 9999)[:, 0].tolist() == [1, 1, 1, 2, 3, 3]
    assert extrinsics_at(shifted_line(100, 1.0), 0, 500)[:, 0].tolist() == [1, 1]


def test_an_unreadable_calibration_line_gives_way_to_the_next_nearest() -> None:
    cut = shifted_line(200, 2.0)[:-30] + "\n"
    other = calibration_line(210, label="camera-slam-right")
    scaled = shifted_line(205, 9.0).replace("[0.", "[7.", 1)
    for bad in (cut, other, scaled.replace('"UnitQuaternion": [', '"UnitQuaternion": [4, ['), "\n"):
        assert extrinsics_at(shifted_line(100, 1.0) + bad + shifted_line(400, 4.0), 205)[0, 0] == 1.0


def test_a_missing_calibration_or_one_without_the_camera_costs_the_take(tmp_path: Path) -> None:
    take: Take = write_take(tmp_path)
    other = calibration_line(5, label="camera-slam-right")
    for content in ("", "<html></html>", other, "[1]\n", '{"tracking_timestamp_us":1}\n'):
        (tmp_path / CALIBRATION).write_text(content)
        assert codes(compute(tmp_path, take)) == {None: "CALIBRATION_MISSING"}, content
    assert codes(compute(tmp_path, take, TrajectoryConfig(frame="device"))) == {}
    (tmp_path / CALIBRATION).unlink()
    for gone in (take, take.replace(calibration=None)):
        assert codes(compute(tmp_path, gone)) == {None: "CALIBRATION_MISSING"}


def test_a_segment_takes_the_calibration_nearest_to_its_middle(tmp_path: Path) -> None:
    take, us = write_take(tmp_path), CLOCK_NS // 1000
    segments: list[list[object]] = [["egoexo4d:u:0000", 0.5, 2.0]]
    middle = shifted_line(us + 1_250_000, 0.5)
    (tmp_path / CALIBRATION).write_text(middle)
    expected = motions(compute(tmp_path, take, None, segments))
    (tmp_path / CALIBRATION).write_text(shifted_line(us + 500_000, 3.0) + middle + shifted_line(us + 2_000_000, 4.0))
    assert np.array_equal(motions(compute(tmp_path, take, None, segments)), expected)
