"""Thumbnails of the gallery as JPEG data URIs; a missing frame is replaced by its reason."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.video.isolate import run_jobs

JPEG_QUALITY = 82
TIMEOUT_S = 30.0
"""A decoder without output for longer is stopped; the report is built without its frames."""


@dataclass(frozen=True)
class Thumbnail:
    """A picture, or the reason why there is none."""

    uri: str | None
    reason: str


@dataclass(frozen=True)
class Wanted:
    """The frames to decode of one video."""

    take_id: str
    path: str
    """Local file."""
    times_s: tuple[float, ...]


def thumbnails(
    wanted: Sequence[Wanted], size_px: int, workers: int
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode frames in child processes, so that no video can crash the report.

    Returns:
        (take id, time) -> thumbnail, for every requested frame; and the faults as rejects that lose no row.
    """
    jobs = [
        {"kind": "clips", "path": w.path, "times_s": [[t] for t in w.times_s], "size_px": size_px, "backend": "pyav"}
        for w in wanted
    ]
    made: dict[tuple[str, float], Thumbnail] = {}
    rejects: list[Reject] = []
    for event in run_jobs(jobs, workers=workers, timeout_s=TIMEOUT_S, ahead=4) if jobs else ():
        video = wanted[event.job]
        if event.kind == "clip" and event.frames is not None:
            made[video.take_id, video.times_s[event.values["segment"]]] = Thumbnail(_jpeg(event.frames[0]), "")
        elif event.kind in ("fault", "failed"):
            lost = [video.times_s[event.values["segment"]]] if event.kind == "fault" else video.times_s
            code, detail = event.values["code"], event.values["detail"]
            absent = Thumbnail(None, f"no frame ({code})")  # the detail is in the rejects table
            made |= {(video.take_id, time): absent for time in lost if (video.take_id, time) not in made}
            rejects.append(reject("report", RejectCode(code), video.take_id, detail, n_units=0))
    none = {(w.take_id, t): Thumbnail(None, "the frame could not be decoded") for w in wanted for t in w.times_s}
    return none | made, sorted(rejects, key=lambda row: (row.take, row.detail))


def frames_of(
    times_s: Mapping[str, Iterable[float]], files: Mapping[str, str], data_root: str, size_px: int, workers: int
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode frames of takes, one job per video; takes without a file are left out.

    Args:
        times_s: take id -> times of its frames.
        files: take id -> video, relative to the data root; empty for a take without a video.
    """
    wanted = [
        Wanted(take, f"{data_root}/{file}", tuple(sorted(set(times_s[take]))))
        for take, file in sorted(files.items())
        if take in times_s and file
    ]
    return thumbnails(wanted, size_px, workers)


def _jpeg(image: NDArray[np.uint8]) -> str:
    """Encode an RGB image (size, size, 3) as a data URI."""
    made, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not made:
        raise ValueError(f"an image of shape {image.shape} could not be encoded as JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()
