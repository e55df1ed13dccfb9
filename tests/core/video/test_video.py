"""Probing and decoding: the right frames, or a named reason."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from video_fixture import frames, needs_decord, numbers, write_video

from schemas.rejects import RejectCode
from trajpilot_core.video import table as table_module
from trajpilot_core.video.decode import clips, frame_times_s
from trajpilot_core.video.probe import probe
from trajpilot_core.video.pyav_backend import PyavReader
from trajpilot_core.video.table import VideoError

N = 60


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "plain.mp4", N)


def code_of(path: Path | str) -> RejectCode:
    with pytest.raises(VideoError) as caught:
        probe(str(path))
    return caught.value.code


def test_a_probe_counts_the_packets(video: Path) -> None:
    found = probe(str(video))
    assert (found.n_frames, found.fps, found.width, found.height) == (N, 30.0, 128, 128)
    assert found.duration_s == pytest.approx(2.0)
    assert not found.is_vfr
    assert found.rotation_deg == 0


def test_a_missing_an_empty_and_a_headless_file_are_named(tmp_path: Path, video: Path) -> None:
    assert code_of(tmp_path / "none.mp4") is RejectCode.VIDEO_MISSING
    assert code_of("a\0b.mp4") is RejectCode.VIDEO_MISSING
    for content in (b"", video.read_bytes()[:40]):
        (tmp_path / "short.mp4").write_bytes(content)
        assert code_of(tmp_path / "short.mp4") is RejectCode.DECODE_FAILED


def test_limits_are_checked_before_anything_is_decoded(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"MAX_SIDE_PX": 100, "MAX_PX": 1000, "MAX_DURATION_S": 1.0, "MAX_STREAMS": 0}
    for limit, value in limits.items():
        with monkeypatch.context() as patch:
            patch.setattr(table_module, limit, value)
            assert code_of(video) is RejectCode.DECODE_FAILED, limit


@given(st.floats(0, 5000), st.floats(0.05, 60), st.sampled_from([10.0, 15.0, 29.97, 30.0, 60.0]))
def test_sampled_times_lie_inside_the_half_open_segment(start_s: float, length_s: float, fps: float) -> None:
    times_s = frame_times_s(start_s, start_s + length_s, fps, 16)
    assert times_s.shape == (16,)
    assert times_s[0] == start_s
    assert (np.diff(times_s) >= 0).all()
    assert times_s[-1] <= max(start_s, start_s + length_s - 1 / fps) + 1e-9


def test_skipping_frames_does_not_change_a_pixel(video: Path) -> None:
    """Frames that are left out inside the decoder must leave the others bit for bit as they are."""
    whole = frames(str(video), np.arange(N) / 30, 64).frames
    some = frames(str(video), np.arange(0, N, 7) / 30, 64).frames
    np.testing.assert_array_equal(some, whole[::7])


def test_a_time_outside_the_video_costs_its_segment_only(video: Path) -> None:
    got = dict(clips(str(video), np.array([[0.0, 0.5], [1.0, 2.5], [np.nan, 0.1], [1.0, 1.5]]), 64))
    assert [getattr(got[row], "code", None) for row in range(4)] == [
        None,
        RejectCode.FRAME_MISMATCH,
        RejectCode.FRAME_MISMATCH,
        None,
    ]


def test_left_out_frames_make_the_rate_variable_and_cost_the_segments_that_need_them(tmp_path: Path) -> None:
    path = write_video(tmp_path / "vfr.mp4", N, skip=(10, 11, 12, 40))
    found = probe(str(path))
    assert found.is_vfr
    assert (found.n_frames, found.fps) == (N - 4, pytest.approx(30.0))
    got = dict(clips(str(path), np.array([[0, 5, 9], [9, 11, 13], [13, 20, 39], [39, 40, 41]]) / 30, 64))
    assert numbers(got[0]) == [0, 5, 9]
    assert numbers(got[2]) == [13, 20, 39]
    assert {getattr(got[row], "code", None) for row in (1, 3)} == {RejectCode.FRAME_MISMATCH}


@pytest.mark.parametrize("backend", ["pyav", pytest.param("decord", marks=needs_decord)])
def test_a_zeroed_block_costs_segments_and_gives_no_wrong_frame(tmp_path: Path, video: Path, backend: str) -> None:
    raw = bytearray(video.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 3000] = bytes(3000)
    path = tmp_path / "zeroed.mp4"
    path.write_bytes(raw)
    wanted = np.arange(N).reshape(6, 10)
    got = dict(clips(str(path), wanted / 30, 64, backend=backend))
    lost = [row for row, clip in got.items() if isinstance(clip, VideoError)]
    assert lost
    assert all(got[row].code is RejectCode.DECODE_FAILED for row in lost)  # type: ignore[union-attr]
    assert all(numbers(got[row]) == wanted[row].tolist() for row in got if row not in lost)
    if backend == "pyav":
        assert len(lost) < 6, "segments before the damage and after the next keyframe are kept"


@needs_decord
def test_decord_gives_the_frames_of_pyav(tmp_path: Path, video: Path) -> None:
    skip = (10, 11, 40)
    for path, left_out in ((video, ()), (write_video(tmp_path / "v.mp4", N, skip=skip), skip)):
        wanted = np.array([n for n in range(0, N, 3) if n not in left_out])
        one, two = (frames(str(path), wanted / 30, 64, backend) for backend in ("pyav", "decord"))
        assert numbers(one) == numbers(two) == wanted.tolist()
        np.testing.assert_array_equal(one.pts_s, two.pts_s)
        difference = one.frames.astype(float) - two.frames.astype(float)
        assert np.abs(difference @ [0.299, 0.587, 0.114]).mean() < 1.0, "brightness agrees to a grey level"
        assert np.abs(difference).mean() < 6.0, "saturated 8 px blocks: decord upsamples colour before it shrinks"


@needs_decord
def test_decord_that_returns_a_neighbour_is_caught(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import decord

    stamp = decord.VideoReader.get_frame_timestamp
    monkeypatch.setattr(
        decord.VideoReader, "get_frame_timestamp", lambda self, index: stamp(self, index + (index == 7))
    )
    got = dict(clips(str(video), np.array([[5, 6], [6, 7], [8, 9]]) / 30, 64, backend="decord"))
    assert [getattr(got[row], "code", None) for row in range(3)] == [None, RejectCode.FRAME_MISMATCH, None]


def test_a_decoder_that_returns_another_frame_is_caught(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the frame that was asked for is swallowed, as a concealing decoder does."""
    kept = PyavReader._fed

    def swallow(self, start, wanted, spoiled):  # type: ignore[no-untyped-def]
        tick = int(self.table.shown[1])
        for at, out in kept(self, start, wanted, spoiled):
            yield at, [frame for frame in out if frame.pts != 7 * tick]

    monkeypatch.setattr(PyavReader, "_fed", swallow)
    got = dict(clips(str(video), np.array([[5, 6], [6, 7], [8, 9]]) / 30, 64))
    assert [getattr(got[row], "code", None) for row in range(3)] == [None, RejectCode.FRAME_MISMATCH, None]
