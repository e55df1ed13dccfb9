"""Frame accuracy: a number burnt into every picture says whether the frame of a time is the one that was asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from video_fixture import cut_copy, frames, needs_decord, numbers, with_matrix, write_video

from schemas.rejects import RejectCode
from trajpilot_core.video.decode import clips
from trajpilot_core.video.probe import probe
from trajpilot_core.video.table import VideoError

BACKENDS = ["pyav", pytest.param("decord", marks=needs_decord)]
N = 60
UNEVEN_MS = np.cumsum(np.random.default_rng(1).integers(20, 60, N))


@dataclass(frozen=True)
class Case:
    """A way to write a video of numbered frames, and what must come out."""

    write: Callable[[Path], Path]
    suffix: str = ".mp4"
    numbers: Sequence[int] = range(N)
    fps: float = 30.0
    times_s: Sequence[float] | None = None
    """Times of the frames from the first that is shown; None: evenly spaced."""
    is_shifted_by_decord: bool = False
    """Whether decord must refuse the file; otherwise it gives the same frames."""

    def shown_s(self) -> np.ndarray:
        return np.arange(len(self.numbers)) / self.fps if self.times_s is None else np.asarray(self.times_s)


def cut(start: int, **how: object) -> Callable[[Path], Path]:
    return lambda path: cut_copy(write_video(path.with_name(f"whole{path.suffix}"), N, **how), path, start)  # type: ignore[arg-type]


def made(**how: object) -> Callable[[Path], Path]:
    return lambda path: write_video(path, N, **how)  # type: ignore[arg-type]


OPEN = {"x264-params": "open-gop=1:keyint=12:bframes=3:b-adapt=0"}
EVEN_MS = np.round(np.arange(N) * 1000 / 30).astype(int)
CASES = {
    "B-frames": Case(made(keyframe=25, b_frames=3)),
    "one keyframe in the whole file": Case(made(keyframe=600, b_frames=3)),
    "open GOP": Case(made(encoder=OPEN), is_shifted_by_decord=True),
    "open GOP, Matroska": Case(made(encoder=OPEN), ".mkv", is_shifted_by_decord=True),
    "cut by copying at a keyframe": Case(cut(25), numbers=range(25, N)),
    "cut by copying between keyframes": Case(cut(37), numbers=range(37, N), is_shifted_by_decord=True),
    "cut by copying in an open GOP": Case(cut(17, encoder=OPEN), numbers=range(17, N), is_shifted_by_decord=True),
    "variable rate": Case(made(pts_ms=UNEVEN_MS), times_s=(UNEVEN_MS - UNEVEN_MS[0]) / 1000),
    "first frame at 7.3 s": Case(made(pts_ms=EVEN_MS + 7300)),
    "negative first times": Case(made(pts_ms=EVEN_MS - 1000), numbers=range(30, N), is_shifted_by_decord=True),
    "no edit list": Case(made(muxer={"use_editlist": "0"})),
    "negative composition offsets": Case(made(muxer={"movflags": "negative_cts_offsets"})),
    "sound next to the pictures": Case(made(audio_s=2.5)),
    "sound that starts earlier": Case(made(audio_s=2.5, pts_ms=EVEN_MS + 700)),
    "59.94 Hz, wide": Case(made(fps=Fraction(60000, 1001), width=456, height=256), fps=60000 / 1001),
    "23.976 Hz, upright": Case(made(fps=Fraction(24000, 1001), width=144, height=256), fps=24000 / 1001),
    "H.265, open GOP": Case(
        made(codec="libx265", encoder={"x265-params": "log-level=0:pools=1"}), is_shifted_by_decord=True
    ),
    "VP9": Case(made(codec="libvpx-vp9", b_frames=0, encoder={"cpu-used": "8"}), ".webm"),
    "MPEG-4": Case(made(codec="mpeg4", b_frames=0)),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Case -> its file."""
    folder = tmp_path_factory.mktemp("videos")
    return {name: str(case.write(folder / f"{at}{case.suffix}")) for at, (name, case) in enumerate(CASES.items())}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_frame_of_a_time_is_the_one_shown_nearest_to_it(written: dict[str, str], backend: str) -> None:
    """Any few frames of a file, at times up to 0.4 frames off, alone and all in one go."""
    for name, case in CASES.items():
        path, shown_s, rng = written[name], case.shown_s(), np.random.default_rng(7)
        if backend == "decord" and case.is_shifted_by_decord:
            with pytest.raises(VideoError, match="indices cannot be trusted") as caught:
                frames(path, shown_s[:1], 64, backend)
            assert caught.value.code is RejectCode.FRAME_MISMATCH, name
            continue
        found = probe(path)
        assert (found.n_frames, found.is_vfr) == (len(case.numbers), case.times_s is not None), name
        assert name != "sound that starts earlier" or found.start_s == pytest.approx(0.7, abs=1e-3)
        assert case.times_s is not None or found.fps == pytest.approx(case.fps, rel=2e-3), name
        wanted = np.stack([np.sort(rng.choice(len(shown_s), 6, replace=False)) for _ in range(6)])
        slack_s = 0.4 * np.diff(shown_s).min()
        times_s = shown_s[wanted] + rng.uniform(-slack_s, slack_s, wanted.shape)
        for row, clip in clips(path, np.maximum(times_s, 0), 64, backend=backend):
            assert numbers(clip) == [case.numbers[at] for at in wanted[row]], name
            np.testing.assert_allclose(clip.pts_s, shown_s[wanted[row]], atol=1e-3)  # type: ignore[union-attr]
        assert numbers(frames(path, shown_s, 64, backend)) == list(case.numbers), name


def test_a_video_whose_rate_changes_keeps_its_segments_when_frames_may_lie_further_off(tmp_path: Path) -> None:
    """30 frames/s, then 20, as phones do in the dark: half a frame of the usual rate does not span the longer steps."""
    shown_ms = np.cumsum([0] + [33] * 39 + [50] * 20)
    path = str(write_video(tmp_path / "v.mp4", N, pts_ms=shown_ms))
    times_s = np.array([[0.1, 0.5, 1.0], [1.4, 1.56, 2.0], [1.31, 1.81, 2.12]])
    strict = dict(clips(path, times_s, 64))
    assert [getattr(strict[row], "code", None) for row in range(3)] == [
        None,
        RejectCode.FRAME_MISMATCH,
        RejectCode.FRAME_MISMATCH,
    ]
    for row, clip in clips(path, times_s, 64, max_off_s=0.03):
        assert numbers(clip) == [int(np.abs(shown_ms / 1000 - time_s).argmin()) for time_s in times_s[row]]


TURNS = {
    "as it is": ((1, 0, 0, 1), 0),
    "quarter turn": ((0, 1, -1, 0), 3),
    "upside down": ((-1, 0, 0, -1), 2),
    "three quarters": ((0, -1, 1, 0), 1),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_pictures_come_out_upright(tmp_path: Path, backend: str) -> None:
    """The display matrix (a, b, c, d) maps (x, y) to (a x + c y, b x + d y), y down."""
    plain, path = write_video(tmp_path / "plain.mp4", 10), str(tmp_path / "turned.mp4")
    stored = frames(str(plain), np.array([0.2]), 64, backend).frames[0].astype(int)
    for name, (matrix, quarters) in TURNS.items():
        with_matrix(plain, Path(path), matrix)
        shown = frames(path, np.array([0.2]), 64, backend).frames[0].astype(int)
        assert np.abs(shown - np.rot90(stored, quarters)).mean() < 2.0, name
        assert (probe(path).rotation_deg // 90 - quarters) % 4 == 0, name


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_picture_turned_by_45_degrees_or_mirrored_is_refused(tmp_path: Path, backend: str) -> None:
    plain = write_video(tmp_path / "plain.mp4", 10)
    for matrix in ((0.7071, 0.7071, -0.7071, 0.7071), (1, 0, 1, 1), (0, 0, 0, 0), (-1, 0, 0, 1), (0, 1, 1, 0)):
        with pytest.raises(VideoError, match="not a quarter turn"):
            frames(str(with_matrix(plain, tmp_path / "turned.mp4", matrix)), np.array([0.2]), 64, backend)
