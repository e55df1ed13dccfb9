"""Frames of segments for prompts, decoded in the same way as for features, and named by their content."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from schemas.rejects import Reject, RejectCode, reject
from schemas.vlm import VlmConfig
from trajpilot_core.arrays import Image
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.video.decode import frame_times_s
from trajpilot_core.video.isolate import run_jobs
from trajpilot_core.video.local import local_copies

NAME = "vlm"


@dataclass(frozen=True)
class TakeFrames:
    """Frames of the segments of one take."""

    of_segment: Mapping[str, tuple[str, ...]]
    """Segment -> digests of its frames, in order of time; without the segments that could not be decoded."""
    images: Mapping[str, Image]
    """Digest -> (S, S, 3) RGB."""
    rejects: tuple[Reject, ...]
    """Segments that could not be decoded, with zero units each."""


def digest_of(frame: Image) -> str:
    """Return the sha256 of a frame's size and RGB bytes."""
    return hashlib.sha256(f"{frame.shape}:".encode() + np.ascontiguousarray(frame).tobytes()).hexdigest()


def take_frames(
    video: str, fps: float, segments: Sequence[tuple[str, float, float]], cfg: VlmConfig, data_root: str, scratch: Path
) -> TakeFrames:
    """Decode the frames of segments of one take in a child process.

    Args:
        video: video of the take, relative to the data root.
        segments: id, start and end in seconds.
    """
    job = {
        "kind": "clips",
        "video": video,
        "path": video,
        "times_s": [frame_times_s(start, end, fps, cfg.n_frames).tolist() for _, start, end in segments],
        "size_px": cfg.size_px,
        "backend": "pyav",
        "resize": "antialiased",
        "max_off_s": None,
    }
    around = local_copies(open_corpus(data_root), scratch)
    of_segment: dict[str, tuple[str, ...]] = {}
    images: dict[str, Image] = {}
    rejects = []
    for event in run_jobs([job], workers=1, timeout_s=cfg.decode_timeout_s, ahead=4, around=around):
        if event.frames is not None:
            named = tuple(digest_of(frame) for frame in event.frames)
            of_segment[segments[event.values["segment"]][0]] = named
            images.update(zip(named, event.frames, strict=True))
        elif event.kind in ("fault", "failed"):
            at = event.values.get("segment")
            name = None if at is None else segments[at][0]
            code, detail = RejectCode(event.values["code"]), event.values["detail"]
            rejects.append(reject(NAME, code, "", detail, n_units=0, segment=name, source_file=video))
    return TakeFrames(of_segment, images, tuple(rejects))
