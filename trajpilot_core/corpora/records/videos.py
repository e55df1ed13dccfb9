"""Videos of the candidates: probed, or replaced by their length according to the metadata.

Source for takes without videos: docs/decisions/released-features.md.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from schemas.annotation import Take
from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import Candidate, Fault
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import Corpus, stat
from trajpilot_core.video.isolate import local_copies
from trajpilot_core.video.probe import VideoProbe, probe_many
from trajpilot_core.video.table import VideoError

NO_VIDEO = "no video: ingest did without (ingest.video=none)"


def probe_videos(
    corpus: Corpus,
    candidates: Sequence[Candidate],
    *,
    workers: int,
    timeout_s: float,
    scratch: Path,
    progress: Callable[[int], None],
) -> list[VideoProbe | Fault]:
    """Return, for each candidate in order, what its video holds or why it cannot be used.

    Decoders run in child processes (`probe_many`), so one that crashes or hangs costs its own video. A file of a remote
    corpus is copied to `scratch` and removed again. A file that changes meanwhile is INPUT_UNSTABLE.
    `progress` is called with the number that is done.
    """
    videos = [c.take.video for c in candidates]
    before = [stat(corpus, video) for video in videos]
    probes = probe_many(videos, workers, timeout_s, progress, local_copies(corpus, scratch))
    changed = Fault(RejectCode.INPUT_UNSTABLE, "the video changed while its frames were counted")
    checked = [Fault(probe.code, str(probe)) if isinstance(probe, VideoError) else probe for probe in probes]
    rows = zip(videos, checked, before, strict=True)
    return [result if stat(corpus, video) == known else changed for video, result, known in rows]


def stated_video(candidate: Candidate) -> VideoProbe | Fault:
    """Return the facts that the metadata state about a take's video, in place of those counted in its file."""
    take = candidate.take
    if not take.stated_s or not take.stated_fps:
        detail = f"the metadata state {take.stated_s} s at {take.stated_fps} Hz as its length, and no video is read"
        return Fault(RejectCode.RECORD_MALFORMED, detail)
    n_frames = round(take.stated_s * take.stated_fps)
    return VideoProbe(
        n_frames, take.stated_fps, n_frames / take.stated_fps, width=0, height=0, rotation_deg=0, is_vfr=False
    )


def video_of(take: Take, whose: str) -> str:
    """Return the path of a take's video, which the setting `whose` reads.

    Raises InputError: the run does without videos.
    """
    if not take.video:
        raise InputError(
            f"{whose} reads frames, but the takes were ingested without videos (ingest.video=none); set ingest.video "
            "to downscaled_448 and fetch them, or take released features and poses that need no frames"
        )
    return take.video
