"""The video of a query: its checks, its take of the corpus where it is one, and the features of its two clips."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import Take
from schemas.config import RunOptions
from schemas.predict import PlanQuery
from trajpilot_core.encoders.video.registry import torch_threads
from trajpilot_core.engine.key import read_notes
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import Runtime, Source
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.stages.features import encoded_takes, load_embedder
from trajpilot_core.video.probe import VideoProbe, probe_many
from trajpilot_core.video.table import VideoError

CLIPS = ("query:start", "query:goal")
"""Segment ids of the two clips."""


@dataclass(frozen=True)
class Footage:
    """A video to predict from."""

    path: Path
    """Absolute, as given: links are not followed, because files are searched for next to it."""
    probe: VideoProbe
    sha256: str
    segments: JsonValue
    """The two clips, as stages read segments."""
    own: Take | None
    """The take of the corpus that it is, if any."""


def open_footage(query: PlanQuery, root: TrainedRoot) -> Footage:
    """Probe the video of a query in a separate process, check the intervals, and find its take.

    Raises InputError: there is no such file, it is not a video, or an interval is reversed, too short, overlaps the
    other one or is outside the video.
    """
    path = local_file(query.video, "video")
    (probe,) = probe_many([str(path)], 1, root.ingest.probe_timeout_s)
    if isinstance(probe, VideoError):
        raise InputError(f"{probe}; give a video that plays")
    least_s = root.ingest.min_segment_s
    for name, (begin, end) in (("start", query.start_s), ("goal", query.goal_s)):
        given = f"--{name} {begin:g}-{end:g}"
        if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
            raise InputError(f"{given} ends before it begins; give the earlier time first")
        if end - begin < least_s:
            raise InputError(f"{given} lasts {end - begin:.2f} s; at least {least_s:g} s are needed")
        if end > probe.duration_s + 0.5 / probe.fps:
            raise InputError(f"{given} reaches past the end of the video, which lasts {probe.duration_s:.2f} s")
    if query.goal_s[0] < query.start_s[1]:
        raise InputError(
            f"--goal begins at {query.goal_s[0]:g} s, before --start ends at {query.start_s[1]:g} s; the Goal must "
            "come after the Start, with the predicted steps between them"
        )
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    segments: JsonValue = [[name, *span] for name, span in zip(CLIPS, (query.start_s, query.goal_s), strict=True)]
    return Footage(path, probe, digest, segments, own_take(digest, root))


def local_file(place: str, what: str) -> Path:
    """Return a file of this machine that a query names.

    Raises InputError: it is an address, or there is no such file.
    """
    if "://" in place:
        raise InputError(f"{what} {place} is an address; copy the file to this machine and give its path")
    path = Path(place).absolute()
    if not path.is_file():
        fault = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{what} {place} {fault}; give the path of a file")
    return path


def own_take(sha256: str, root: TrainedRoot) -> Take | None:
    """Return the take of the corpus whose video has this content; one that was cut or encoded again has none."""
    notes = read_notes(root.folder, "features", root.manifests["features"].key)
    known = (take for take in root.takes.values() if take.take_id in notes)
    return next((take for take in known if notes[take.take_id].get(take.video) == sha256), None)


def clip_features(
    footage: Footage, root: TrainedRoot, run: RunOptions, scratch: Path
) -> tuple[NDArray[np.float16], str]:
    """Return the (2, width) features of the Start and the Goal clip, as the stage `features` computes them, and the
    encoder's digest.

    Raises:
        InputError: the frames of a clip cannot be decoded.
        CheckpointError: the models were trained with another encoder.
    """
    runtime = Runtime(str(footage.path.parent), resolve_device(run.device), run.workers, scratch)
    embedder = load_embedder(root.features, runtime.device, scratch)
    digest = embedder.encoder.digest
    known = set(root.inputs.table("features", ("encoder",))["encoder"].to_pylist())
    if known != {digest}:
        raise CheckpointError(
            f"the video encoder here is {digest[:12]}, but the models under {root.folder.url} were trained on features "
            f"of {', '.join(sorted(name[:12] for name in known))}: other weights or another preprocessing; restore "
            f"the checkpoint of the root ({root.features.checkpoint or 'that of the demo'})"
        )
    source = Source("query", (footage.path.name,), {"fps": footage.probe.fps, "segments": footage.segments})
    with torch_threads(root.features):
        rows, rejects = next(encoded_takes((source,), embedder, runtime)).result()
    if len(rows) != len(CLIPS):
        why = "; ".join(f"{row.code}: {row.detail}" for row in rejects)
        raise InputError(f"the clips of {footage.path} cannot be encoded: {why}")
    return np.stack([rows[name].vector for name in CLIPS]), digest
