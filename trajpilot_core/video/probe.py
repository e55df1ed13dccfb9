"""Facts of a video file: counted, not read from its header, and checked by decoding at three places."""

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass

from schemas.rejects import RejectCode
from trajpilot_core.video.isolate import Around, DecodeJob, run_jobs
from trajpilot_core.video.table import VideoError

PROBE_PX = 32


@dataclass(frozen=True)
class VideoProbe:
    """Counted facts of one video."""

    n_frames: int
    """Shown packets of the video stream, without the pre-roll of a cut stream."""
    fps: float
    """Nominal rate, from the usual distance of two frames."""
    duration_s: float
    """From the first frame's start to the last frame's end."""
    width: int
    height: int
    """Pixels as stored, before `rotation_deg`."""
    rotation_deg: int
    """Counter-clockwise rotation that makes the picture upright; the frame readers apply it."""
    is_vfr: bool
    """Whether the frames are unevenly spaced."""
    start_s: float = 0.0
    """Time of the first picture in the clock of the file; all times of the pipeline count from that picture."""


def probe(path: str) -> VideoProbe:
    """Count the frames of a video and decode the first, the last, and the keyframe before the middle.

    Raises:
        VideoError: VIDEO_MISSING, WRONG_TYPE or DECODE_FAILED in its `code`.
    """
    from trajpilot_core.video.pyav_backend import PyavReader  # loads the decoders, which only child processes need

    with closing(PyavReader(path)) as reader:
        table, shown = reader.table, reader.table.shown
        places = {int(shown[0]), reader.keyframe_at(int(shown[len(shown) // 2])), int(shown[-1])}
        for _, image in reader.decode(sorted(places & set(shown.tolist())), PROBE_PX):
            if isinstance(image, VideoError):
                raise VideoError(RejectCode.DECODE_FAILED, str(image))
        context = reader.stream.codec_context
        return VideoProbe(
            n_frames=len(shown),
            fps=table.fps,
            duration_s=table.time_s(int(shown[-1])) + 1.0 / table.fps,
            width=context.width,
            height=context.height,
            rotation_deg=reader.rotation_deg,
            is_vfr=table.is_vfr,
            start_s=float(int(shown[0]) * table.tick_s),
        )


def probe_many(
    paths: Sequence[str],
    workers: int,
    timeout_s: float,
    progress: Callable[[int], None] = lambda n_done: None,
    around: Around = nullcontext,
) -> list[VideoProbe | VideoError]:
    """Probe videos in `workers` child processes; a decoder that crashes or hangs costs only its video.

    Returns one result per path, in order: a child that dies gives DECODE_FAILED with the signal's number. `progress` is
    called with the number of finished videos; the other arguments are those of `isolate.run_jobs`.
    """
    results: dict[int, VideoProbe | VideoError] = {}
    jobs: list[DecodeJob] = [{"kind": "probe", "path": path, "video": path} for path in paths]
    for event in run_jobs(jobs, workers=workers, timeout_s=timeout_s, ahead=len(jobs) + 1, around=around):
        if event.kind == "probe":
            results[event.job] = VideoProbe(**event.values)
        elif event.kind == "failed":
            results[event.job] = VideoError(RejectCode(event.values["code"]), event.values["detail"])
        progress(len(results))
    return [results[index] for index in range(len(paths))]
