"""Probe the videos of the candidates, a copy of them where the corpus is remote."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import Candidate, Fault
from trajpilot_core.store.corpus_files import Corpus, Stat, stat
from trajpilot_core.video.probe import VideoError, VideoProbe, probe_many


def probe_videos(
    corpus: Corpus,
    candidates: Sequence[Candidate],
    *,
    workers: int,
    timeout_s: float,
    scratch: Path,
    told: Callable[[int], None] = lambda n_done: None,
) -> list[VideoProbe | Fault]:
    """Return, for each candidate in order, what its video holds or why it cannot be used.

    Decoders run in child processes (`probe_many`), so one that crashes or hangs costs its own video. A file of a remote
    corpus is copied to `scratch` and removed again. A file that changes meanwhile is INPUT_UNSTABLE.
    `told` is called with the number that is done.
    """
    before = [stat(corpus, c.take.video) for c in candidates]
    videos = [c.take.video for c in candidates]
    with _local_copies(corpus, videos, scratch) as paths:
        found = probe_many(paths, workers, timeout_s, told)
    return [_checked(corpus, *row) for row in zip(videos, paths, found, before, strict=True)]


def _checked(
    corpus: Corpus, video: str, path: str, found: VideoProbe | VideoError, was: Stat | None
) -> VideoProbe | Fault:
    if stat(corpus, video) != was:
        return Fault(RejectCode.INPUT_UNSTABLE, "the video changed while its frames were counted")
    if isinstance(found, VideoError):
        return Fault(found.code, str(found).replace(path, video))  # where the corpus lies is nothing of its content
    return found


@contextmanager
def _local_copies(corpus: Corpus, videos: Sequence[str], scratch: Path) -> Iterator[list[str]]:
    """Give the paths of the videos on this machine; copies of a remote corpus last as long as the block.

    A video that is gone meanwhile stays absent, and the probe says so.
    """
    if corpus.is_local:
        yield [corpus.path(video) for video in videos]
        return
    folder = scratch / "videos"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index}{Path(video).suffix}" for index, video in enumerate(videos)]
    try:
        for video, path in zip(videos, paths, strict=True):
            with suppress(FileNotFoundError):
                corpus.fs.get_file(corpus.path(video), str(path))
        yield [str(path) for path in paths]
    finally:
        shutil.rmtree(folder)
