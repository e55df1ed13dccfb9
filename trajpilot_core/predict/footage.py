"""The video of a query: its content, whether the intervals lie in it, and whether it is a take of the corpus."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

from schemas.annotation import Take
from schemas.config import IngestConfig
from schemas.predict import PlanQuery
from trajpilot_core.engine.provenance import read_notes
from trajpilot_core.errors import InputError
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.video.probe import VideoError, VideoProbe, probe_many

ClipTimes = tuple[float, float]


@dataclass(frozen=True)
class Footage:
    """A video that can be predicted from."""

    path: Path
    """Absolute, as given: links are not followed, because files are searched for next to it."""
    probe: VideoProbe
    sha256: str
    start_s: ClipTimes
    goal_s: ClipTimes
    own: Take | None
    """The take of the corpus that it is."""
    matched: str
    """How that was found: `path`, `content` or empty."""


def open_footage(query: PlanQuery, root: TrainedRoot) -> Footage:
    """Probe the video of a query in a process of its own, check the intervals, and find its take.

    Raises:
        InputError: there is no such file, it is no video, or an interval cannot be used.
    """
    path = local_file(query.video, "video")
    (found,) = probe_many([str(path)], 1, root.ingest.probe_timeout_s)
    if isinstance(found, VideoError):
        raise InputError(f"{found}; give a video that plays")
    check_spans(query.start_s, query.goal_s, found, root.ingest)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    own, matched = own_take(path, digest, root)
    return Footage(path, found, digest, query.start_s, query.goal_s, own, matched)


def local_file(place: str, what: str) -> Path:
    """Return a file of this machine that a query names.

    Raises:
        InputError: it is an address, or there is no such file.
    """
    if "://" in place:
        raise InputError(f"{what} {place} is an address; copy the file to this machine and give its path")
    path = Path(place).absolute()
    if not path.is_file():
        raise InputError(f"{what} {place} is {'a folder' if path.is_dir() else 'not there'}; give the path of a file")
    return path


def check_spans(start_s: ClipTimes, goal_s: ClipTimes, video: VideoProbe, config: IngestConfig) -> None:
    """Refuse intervals that are reversed, too short, overlap, or lie outside the video.

    Raises:
        InputError: which, and what was allowed.
    """
    for name, (begin, end) in (("start", start_s), ("goal", goal_s)):
        given = f"--{name} {begin:g}-{end:g}"
        if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
            raise InputError(f"{given} ends before it begins; write the earlier second first")
        if end - begin < config.min_segment_s:
            raise InputError(f"{given} lasts {end - begin:.2f} s; at least {config.min_segment_s:g} s are needed")
        if end > video.duration_s + 0.5 / video.fps:
            raise InputError(f"{given} reaches past the end of the video, which lasts {video.duration_s:.2f} s")
    if goal_s[0] < start_s[1]:
        raise InputError(
            f"--goal begins at {goal_s[0]:g} s, before --start ends at {start_s[1]:g} s; the Goal must come after "
            "the Start, and the steps between them lie between the two"
        )


def own_take(path: Path, sha256: str, root: TrainedRoot) -> tuple[Take | None, str]:
    """Return the take of the corpus whose video this is, and by what it was known: its path or its content.

    A copy that was cut or encoded again is not known by either.
    """
    notes = read_notes(root.folder, "features", root.manifests["features"].key)
    digests = {take: unit.files for take, unit in notes.items()}
    by_path, by_content = None, None
    for take in root.takes:
        if root.data_root is not None and "://" not in root.data_root:
            there = Path(root.data_root, take.video)
            by_path = take if there.exists() and there.samefile(path) else by_path
        if digests.get(take.take_id, {}).get(take.video) == sha256:
            by_content = take
    return (by_path, "path") if by_path is not None else (by_content, "content" if by_content is not None else "")
