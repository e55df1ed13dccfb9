"""Videos that are not what they should be: right frames or a reject with a reason, within limits of time and memory."""

import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from video_fixture import burnt_in, patched, without_packets, write_silence, write_video

from schemas.rejects import RejectCode
from trajpilot_core.video import decode, table
from trajpilot_core.video.decode import DecodedClip, clips
from trajpilot_core.video.isolate import Event, run_jobs
from trajpilot_core.video.probe import probe
from trajpilot_core.video.pyav_backend import DecodedFrame, PyavReader
from trajpilot_core.video.table import VideoError

N = 60
LIMIT_S, LIMIT_MIB = 30.0, 400
MEASURED = """
import re, sys
from trajpilot_core.video import child
child.main()
kib = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
open(sys.argv[1], "w").write(kib)
"""
DECODE, TYPE, MISMATCH = RejectCode.DECODE_FAILED, RejectCode.WRONG_TYPE, RejectCode.FRAME_MISMATCH


@dataclass(frozen=True)
class Fault:
    """A file, and how it ends: a reject of the whole file with this code and text, or frames that are right."""

    make: Callable[[Path], Path]
    code: RejectCode | None
    said: str = ""


def plain(folder: Path, **how: object) -> Path:
    return write_video(folder / "plain.mp4", N, **how)  # type: ignore[arg-type]


def cut_short(share: float, suffix: str = ".mp4", **how: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        whole = write_video(folder / f"whole{suffix}", N, **how)  # type: ignore[arg-type]
        return content(whole.read_bytes()[: int(whole.stat().st_size * share)], suffix)(folder)

    return make


def content(raw: bytes, suffix: str = ".mp4") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / f"fault{suffix}").write_bytes(raw)
        return folder / f"fault{suffix}"

    return make


def box(name: bytes, inside: bytes) -> bytes:
    return struct.pack(">I", 8 + len(inside)) + name + inside


def only_sound(folder: Path) -> Path:
    with av.open(str(folder / "sound.mp4"), "w") as container:
        write_silence(container, 2.0)
    return folder / "sound.mp4"


def sound_and_a_cover(folder: Path) -> Path:
    with av.open(str(folder / "cover.mp4"), "w") as container:
        cover = container.add_stream("mjpeg", rate=1)
        cover.width = cover.height = 64
        cover.pix_fmt = "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        write_silence(container, 2.0)
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        frame.pts = 0
        container.mux([*cover.encode(frame), *cover.encode(None)])
    return folder / "cover.mp4"


def no_frames(folder: Path) -> Path:
    """The sample table of a good file, set to zero samples."""
    path = plain(folder)
    for name, offset in ((b"stsz", 8), (b"stts", 4), (b"stsc", 4), (b"stco", 4), (b"ctts", 4), (b"stss", 4)):
        path = patched(path, folder / "none.mp4", name, offset, bytes(4))
    return path


def four_hours_said(folder: Path) -> Path:
    """4 h in every header, 2 s of frames."""
    path = plain(folder)
    for name in (b"mvhd", b"mdhd"):
        clock = path.read_bytes()[path.read_bytes().index(name) + 4 :][12:16]
        path = patched(path, folder / "long.mp4", name, 16, struct.pack(">I", 4 * 3600 * struct.unpack(">I", clock)[0]))
    return patched(path, folder / "long.mp4", b"tkhd", 20, struct.pack(">I", 4 * 3600 * 1000))


def four_hours_between_frames(folder: Path) -> Path:
    return patched(plain(folder), folder / "slow.mp4", b"stts", 12, struct.pack(">I", 512 * 7200))


def slow_show(folder: Path) -> Path:
    return write_video(folder / "show.mkv", 5, pts_ms=range(0, 5 * 240_000, 240_000))


def giant(folder: Path, side_px: int) -> Path:
    """Motion JPEG whose pictures say a size that the container does not."""
    path = folder / "giant.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=30)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuvj420p"
        for number in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), number * 20, np.uint8))
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    raw = re.sub(
        rb"(?s)\xff\xc0(...)....",
        lambda m: b"\xff\xc0" + m[1] + struct.pack(">HH", side_px, side_px),
        path.read_bytes(),
    )
    path.write_bytes(raw)
    return path


def packed_index(folder: Path) -> Path:
    """A QuickTime index of 3 GiB, compressed into a few bytes."""
    packed = struct.pack(">I", 3 << 30) + zlib.compress(bytes(1 << 20), 9)
    index = box(b"moov", box(b"cmov", box(b"dcom", b"zlib") + box(b"cmvd", packed)))
    return content(box(b"ftyp", b"qt  \0\0\0\0qt  ") + index, ".mov")(folder)


def many_streams(folder: Path) -> Path:
    """A good file whose one track stands there 40 times."""
    raw = plain(folder).read_bytes()
    at = raw.index(b"trak") - 4
    track = raw[at : at + int.from_bytes(raw[at : at + 4], "big")]
    moov = raw.index(b"moov") - 4
    size = int.from_bytes(raw[moov : moov + 4], "big") + 39 * len(track)
    whole = raw[:moov] + struct.pack(">I", size) + raw[moov + 4 : at] + track * 39 + raw[at:]
    return content(whole)(folder)


def stored_size(folder: Path) -> Path:
    return patched(plain(folder), folder / "size.mp4", b"avc1", 24, struct.pack(">HH", 30000, 30000))


def renamed(suffix: str, name: str) -> Callable[[Path], Path]:
    return lambda folder: write_video(folder / f"v{suffix}", N, muxer={"fflags": "+bitexact"}).rename(folder / name)


FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}
FAULTS = {
    "no index": Fault(lambda folder: patched(plain(folder), folder / "none.mp4", b"moov", -4, b"junk"), DECODE, ""),
    "index at the end": Fault(lambda folder: plain(folder, faststart=False), None),
    "index in fragments": Fault(lambda folder: plain(folder, faststart=False, muxer=FRAGMENTS), None),
    "cut short, index first": Fault(cut_short(0.6), DECODE, "its index lists 60 frames"),
    "cut short, index last": Fault(cut_short(0.6, faststart=False), DECODE, "does not open"),
    "cut short, fragments": Fault(cut_short(0.6, faststart=False, muxer=FRAGMENTS), DECODE, "its index lists"),
    "AVI": Fault(lambda folder: write_video(folder / "v.avi", N, codec="mpeg4", b_frames=0), TYPE, "not an MP4"),
    "a table called mp4": Fault(content(b"graph_uid,tracking_timestamp_us\n" * 50), TYPE, "not an MP4"),
    "a page called mp4": Fault(content(b"<!DOCTYPE html><html>403 Forbidden</html>"), TYPE, "not an MP4"),
    "a picture called mp4": Fault(content(b"\x89PNG\r\n\x1a\n" + bytes(100)), TYPE, "not an MP4"),
    "a playlist called mp4": Fault(content(b"#EXTM3U\n/etc/passwd\n"), TYPE, "not an MP4"),
    "Matroska called mp4": Fault(renamed(".mkv", "v.mp4"), None),
    "MP4 called avi": Fault(renamed(".mp4", "v.avi"), None),
    "only sound": Fault(only_sound, TYPE, "but ['audio']"),
    "sound and a cover picture": Fault(sound_and_a_cover, TYPE, "no video stream"),
    "no frames": Fault(no_frames, DECODE, "has 0 frames"),
    "one frame": Fault(lambda folder: write_video(folder / "one.mp4", 1), DECODE, "has 1 frames"),
    "4 h in the header": Fault(four_hours_said, None),
    "4 h between frames": Fault(four_hours_between_frames, DECODE, "has 1 frames"),
    "a frame every 4 min": Fault(slow_show, DECODE, "240 s apart"),
    "30,000 px in the container": Fault(stored_size, None),
    "30,000 px in the pictures": Fault(lambda folder: giant(folder, 30000), DECODE, "Invalid data"),
    "16,000 px in the pictures": Fault(lambda folder: giant(folder, 16000), DECODE, "Invalid data"),
    "an index of 3 GiB": Fault(packed_index, DECODE, "fault.mov"),
    "40 streams": Fault(many_streams, DECODE, "fault.mp4"),
}


def jobs_of(path: Path) -> list[dict[str, object]]:
    times_s = (np.arange(N).reshape(6, 10) / 30).tolist()
    clip_job = {"kind": "clips", "path": str(path), "times_s": times_s, "size_px": 64}
    return [{"kind": "probe", "path": str(path)}, clip_job]


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_broken_video_gives_right_frames_or_a_reason(tmp_path: Path) -> None:
    """One decoder process reads all of them, so its peak memory is that of the worst."""
    jobs: list[dict[str, object]] = []
    for number, fault in enumerate(FAULTS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        jobs += jobs_of(fault.make(folder))
    peak = tmp_path / "peak"
    command = (sys.executable, "-P", "-c", MEASURED, str(peak))
    events: list[list[Event]] = [[] for _ in jobs]
    for event in run_jobs(jobs, workers=1, timeout_s=LIMIT_S, ahead=20, command=command):
        events[event.job].append(event)
    assert int(peak.read_text()) / 1024 < LIMIT_MIB
    for number, (name, fault) in enumerate(FAULTS.items()):
        probed, decoded = events[2 * number], events[2 * number + 1]
        ended = [probed[-1], decoded[-1]]
        detail = [event.values.get("detail", "") for event in ended]
        assert not any(word in text for text in detail for word in ("process died", "was silent")), name
        shown = {event.values["segment"]: event.frames for event in decoded if event.frames is not None}
        if fault.code is None:
            assert [event.kind for event in ended] == ["done", "done"], name
            assert [burnt_in(image) for row in range(6) for image in shown[row]] == list(range(N)), name
            continue
        assert (ended[0].kind, ended[0].values["code"]) == ("failed", fault.code), name
        assert fault.said in detail[0], name
        assert not shown, f"{name}: what is refused by the probe gives no clip either"


def test_a_file_of_too_many_frames_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain(tmp_path)
    for suffix, said in ((".mp4", "60 frames, allowed are 50"), (".mkv", "more than 50 frames")):
        monkeypatch.setattr(table, "MAX_FRAMES", 50)
        with pytest.raises(VideoError, match=said):
            probe(str(path if suffix == ".mp4" else write_video(tmp_path / "v.mkv", N)))


def test_a_packet_that_is_lost_costs_its_segment_and_is_warned_of(tmp_path: Path) -> None:
    """What a lost keyframe does to the frames behind it stands in docs/decisions/video-backend.md."""
    whole = plain(tmp_path, keyframe=20, b_frames=0)
    for lost, kept in ((25, {0, 1, 4, 5}), (3, {2, 3, 4, 5})):
        path = without_packets(whole, tmp_path / f"{lost}.mp4", {lost})
        assert probe(str(path)).is_vfr, "the hole is warned of"
        got = dict(clips(str(path), np.arange(N).reshape(6, 10) / 30, 64))
        assert set(got) == set(range(6))
        seen = {row: clip.frames for row, clip in got.items() if isinstance(clip, DecodedClip)}
        assert set(seen) >= kept
        for row, frames in seen.items():
            assert [burnt_in(image) for image in frames] == list(range(row * 10, row * 10 + 10))


def test_a_refresh_without_keyframes_gives_no_half_built_picture(tmp_path: Path) -> None:
    """x264's intra refresh marks packets as keyframes at which no picture is whole."""
    refresh = {"x264-params": "intra-refresh=1:keyint=20"}
    path = str(write_video(tmp_path / "v.mp4", 2 * N, keyframe=20, b_frames=0, encoder=refresh))
    whole = dict(clips(path, np.arange(2 * N)[None] / 30, 64))[0]
    got = dict(clips(path, np.array([[0.5], [0.9], [1.6], [3.0]]), 64))
    for row, at in ((0, 15), (1, 27), (2, 48), (3, 90)):
        clip = got[row]
        if isinstance(clip, DecodedClip):
            np.testing.assert_array_equal(clip.frames[0], whole.frames[at])
        else:
            assert clip.code is DECODE
    assert isinstance(got[0], DecodedClip)
    assert isinstance(got[3], VideoError)


def test_a_frame_that_the_decoder_marks_spoils_what_is_built_on_it_and_what_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: one reference frame comes out marked as corrupt; nobody wants that frame itself."""

    class Marked:
        def __init__(self, frame: av.VideoFrame) -> None:
            self.pts, self.is_corrupt = frame.pts, True

    path, kept = plain(tmp_path, keyframe=20, b_frames=3), PyavReader._fed
    tick = int(PyavReader(str(path)).table.shown[1])
    anchors = {int(pts) // tick for pts in PyavReader(str(path)).table.pts[20:24]}

    def marking(self, start, wanted, spoiled):  # type: ignore[no-untyped-def]
        for at, out in kept(self, start, wanted, spoiled):
            yield at, [Marked(frame) if frame.pts == max(anchors) * tick else frame for frame in out]

    monkeypatch.setattr(PyavReader, "_fed", marking)
    first, last = 20, max(anchors)
    wanted = np.array([[5, 6], [first + 1, last - 1], [last + 3, last + 4], [45, 46]]) / 30
    got = dict(clips(str(path), wanted, 64))
    assert [getattr(got[row], "code", None) for row in range(4)] == [None, DECODE, DECODE, None]


def test_a_backend_that_returns_a_neighbour_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plain(tmp_path)

    class Shifted(PyavReader):
        def decode(self, wanted, size_px) -> Iterator[DecodedFrame]:  # type: ignore[no-untyped-def]
            shown = self.table.shown.tolist()
            beside = [shown[min(shown.index(pts) + (pts == shown[7]), N - 1)] for pts in wanted]
            return super().decode(beside, size_px)

    class Short(PyavReader):
        def decode(self, wanted, size_px) -> Iterator[DecodedFrame]:  # type: ignore[no-untyped-def]
            return super().decode(wanted[:-1], size_px)

    times_s = np.array([[5, 6], [7, 9], [11, 12]]) / 30
    for reader, expected in ((Shifted, [None, MISMATCH, None]), (Short, [None, None, MISMATCH])):
        monkeypatch.setattr(decode, "PyavReader", reader)
        got = dict(clips(str(path), times_s, 64))
        assert [getattr(got[row], "code", None) for row in range(3)] == expected


def test_a_hole_of_one_frame_is_a_mismatch_where_a_clock_tick_is_a_frame() -> None:
    every = np.arange(10)
    found = table.FrameTable(every, every, every >= 0, np.array([0, 1, 2, 4, 5]), Fraction(1, 30), 30.0, is_vfr=True)
    _, faults = decode.match_frames(found, np.array([[2 / 30], [3 / 30], [4 / 30]]), "hole.mkv")
    assert {row: fault.code for row, fault in faults.items()} == {1: MISMATCH}
