"""Probe the videos of the candidates."""

from collections.abc import Callable, Sequence
from pathlib import Path

from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import Candidate, Fault
from trajpilot_core.store.corpus_files import Corpus, Stat, stat
from trajpilot_core.video.local import local_copies
from trajpilot_core.video.probe import VideoError, VideoProbe, probe_many


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
    return [_checked(corpus, *row) for row in zip(videos, probes, before, strict=True)]


def _checked(corpus: Corpus, video: str, result: VideoProbe | VideoError, before: Stat | None) -> VideoProbe | Fault:
    if stat(corpus, video) != before:
        return Fault(RejectCode.INPUT_UNSTABLE, "the video changed while its frames were counted")
    if isinstance(result, VideoError):
        return Fault(result.code, str(result))
    return result
