"""Stage `features`: 16 frames of every segment through a frozen video encoder, or rows that the corpus publishes.

Released rows need no video, no encoder and no GPU: docs/decisions/released-features.md.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import Take, features_schema
from schemas.arrow import rows_of
from schemas.config import FeatureConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.corpora.records.contents import INTERVAL, covered_s, intervals_by_take
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.corpora.released import RELEASED
from trajpilot_core.encoders.video.base import SegmentVector, VideoEncoder
from trajpilot_core.encoders.video.registry import load_video_encoder, torch_threads, video_encoder_files
from trajpilot_core.engine.stage import Output, Runtime, Source, Stage, Work
from trajpilot_core.errors import TakeFault
from trajpilot_core.store.corpus_files import Corpus, open_corpus, read_whole, safe_path
from trajpilot_core.store.reading import Inputs

NAME, VERSION = "features", 1
ROWS_VERSION = 2  # of released rows: raise when their numbers change
SegmentSpans = list[tuple[str, float, float]]
"""Segments of a take: id, start and end in seconds."""
log = logging.getLogger("trajpilot")


def sources(inputs: Inputs, cfg: FeatureConfig, data_root: str) -> list[Source]:
    """Return one source per take: its video and the weights, or possible paths of its released file, and what else
    decides its rows: frame rate or length of the video, and the segment intervals (not their labels).

    Raises InputError: frames must be encoded, but the run has no videos.
    """
    segments = intervals_by_take(inputs.table("segments", INTERVAL))
    is_encoded = cfg.source == "encoded"
    weights = video_encoder_files(cfg) if is_encoded else ()
    listed = []
    for take in rows_of(Take, inputs.table("takes")):
        facts: dict[str, JsonValue] = {"segments": segments.get(take.take_id, [])}
        if is_encoded:
            files: tuple[str, ...] = (video_of(take, "features.source=encoded"), *weights)
            facts["fps"] = take.fps
        else:
            files = tuple(path for path in RELEASED[cfg.released].files(take) if safe_path(path))
            facts |= {"duration_s": take.duration_s, "rows_version": ROWS_VERSION}
        listed.append(Source(take.take_id, files, facts))
    return listed


def run(work: Work[FeatureConfig]) -> None:
    """Commit a shard of each take as soon as all its clips are encoded, or its released file is read."""
    cfg, runtime = work.config, work.runtime
    pending = sorted(work.pending, key=lambda source: source.shard)
    if cfg.source == "released":
        run_released(work, pending)
    elif pending:
        embedder = load_embedder(cfg, runtime.device, runtime.scratch)
        schema = features_schema(embedder.encoder.width, embedder.encoder.tokens)
        with torch_threads(cfg):
            for done, take in enumerate(encoded_takes(pending, embedder, runtime)):
                runtime.progress(done, len(pending), "takes")
                rows, rejects = take.result()
                table = features_table(schema, take.take_id, embedder.encoder.digest, rows)
                work.sink.shard(take.take_id, table, rejects, len(take.segments))


def features_table(schema: pa.Schema, take: str, encoder: str, rows: dict[str, SegmentVector]) -> pa.Table:
    """Return the features of one take in float16, by segment id."""
    vectors = [row.vector for row in rows.values()]
    flat = np.concatenate(vectors).astype(np.float16) if vectors else np.empty(0, np.float16)
    columns: dict[str, Any] = {
        "segment_id": [*rows],
        "take_id": [take] * len(rows),
        "encoder": [encoder] * len(rows),
        "frame_times_s": [row.times_s.ravel().tolist() for row in rows.values()],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(flat), schema.field("vector").type.list_size),
    }
    return pa.table(columns, schema=schema)


def not_finite(vector: NDArray[Any]) -> str | None:
    """Return the fault of a vector (D,) with NaN or numbers beyond float16; None: it has none."""
    with np.errstate(over="ignore"):
        n_bad = int((~np.isfinite(vector.astype(np.float16))).sum())
    return f"{n_bad} of {len(vector)} numbers of the vector are not finite in float16" if n_bad else None


@dataclass
class Embedder:
    """A loaded encoder and its batches; `batch` is halved when memory runs out."""

    encoder: VideoEncoder
    config: FeatureConfig
    batch: int

    def embed(self, clips: Sequence[NDArray[np.uint8]]) -> NDArray[np.float16]:
        """Encode clips (T, size, size, 3) of RGB; returns (B, width) float16.

        Incomplete batches are filled with black clips, so that all calls have one shape and a segment's vector does not
        depend on its neighbours. When memory runs out, the batch is halved permanently and the call repeated in parts.

        Raises InputError: one clip alone does not fit into memory.
        """
        from trajpilot_core.memory import in_parts

        def filled(rows: slice) -> NDArray[np.float16]:
            part = np.stack(clips[rows])
            full = np.zeros((self.batch, *part.shape[1:]), np.uint8)
            full[: len(part)] = part
            return self.encoder.embed(full)[: len(part)]

        def halved(batch: int) -> None:
            level = logging.WARNING if self.batch == self.config.batch else logging.DEBUG
            self.batch = batch
            log.log(level, "features: out of memory; continuing with batches of %d", batch)

        return np.concatenate(in_parts(len(clips), self.batch, filled, halved))


def load_embedder(cfg: FeatureConfig, device: str, scratch: Path) -> Embedder:
    """Load the encoder of a configuration; one that generates its weights writes them to `scratch`.

    Raises CheckpointError: no checkpoint is set, or it cannot be used.
    """
    return Embedder(load_video_encoder(cfg, device, scratch), cfg, cfg.batch)


@dataclass
class TakeClips:
    """State of one take while its clips arrive."""

    take_id: str
    video: str
    segments: SegmentSpans
    waiting: int = 0
    """Clips that are decoded but not encoded yet."""
    ended: bool = False
    lost: Reject | None = None
    """Set if the whole take failed."""
    rejects: list[Reject] = field(default_factory=list)
    rows: dict[int, SegmentVector] = field(default_factory=dict)
    """By the number of the segment."""

    def reject(self, row: int, code: RejectCode, detail: str) -> None:
        """Reject one segment."""
        segment = self.segments[row][0]
        self.rejects.append(reject(NAME, code, self.take_id, detail, segment=segment, source_file=self.video))

    def result(self) -> tuple[dict[str, SegmentVector], list[Reject]]:
        """Return the vectors by segment id and the rejects of the finished take."""
        if self.lost is not None:
            return {}, [self.lost]
        rows = {self.segments[row][0]: self.rows[row] for row in sorted(self.rows)}
        return rows, sorted(self.rejects, key=lambda one: one.segment or "")


WaitingClip = tuple[TakeClips, dict[str, Any], NDArray[np.uint8]]
"""Take, values of the decoder's event, frames."""


def encoded_takes(pending: Sequence[Source], embedder: Embedder, runtime: Runtime) -> Iterator[TakeClips]:
    """Decode in child processes, encode here; yield each take once all its clips are encoded.

    Batches are filled across segments and takes.
    """
    from trajpilot_core.training.clip_stream import clip_job
    from trajpilot_core.video.decode import frame_times_s
    from trajpilot_core.video.isolate import local_copies, run_jobs

    cfg, busy, jobs = embedder.config, list[TakeClips](), []
    for source in pending:
        take, fps = TakeClips(source.shard, source.files[0], segments_of(source)), cast(float, source.facts["fps"])
        if take.segments:
            ends = [(start_s, end_s, fps, cfg.n_frames) for _, start_s, end_s in take.segments]
            times_s = [frame_times_s(*of_clip).tolist() for of_clip in ends]
            jobs.append(clip_job(take.video, times_s, cfg))
            busy.append(take)
        else:
            yield take
    batch: list[WaitingClip] = []
    events = run_jobs(
        jobs,
        workers=runtime.workers,
        timeout_s=cfg.decode_timeout_s,
        ahead=2 * cfg.batch,  # decoded clips that wait for the encoder
        around=local_copies(open_corpus(runtime.data_root), runtime.scratch),
    )
    open_takes = set(range(len(busy)))
    for event in events:
        take = busy[event.job]
        if event.frames is not None:
            take.waiting += 1
            batch.append((take, event.values, event.frames))
        elif event.kind == "fault":
            take.reject(event.values["segment"], RejectCode(event.values["code"]), event.values["detail"])
        else:
            take.ended = True
        if event.kind == "failed":
            code, detail, n_units = RejectCode(event.values["code"]), event.values["detail"], len(take.segments)
            take.lost = reject(NAME, code, take.take_id, detail, n_units=n_units, source_file=take.video)
        over = all(take.ended for take in busy)
        if len(batch) == cfg.batch or (over and batch):
            _encode(batch, embedder)
            batch.clear()
        finished = sorted(at for at in open_takes if busy[at].ended and not busy[at].waiting)
        open_takes.difference_update(finished)
        yield from (busy[at] for at in finished)


def _encode(batch: list[WaitingClip], embedder: Embedder) -> None:
    """Enter the vectors of a batch in the states of its takes; a vector with NaN or infinity becomes a reject."""
    vectors = embedder.embed([frames for *_, frames in batch])
    for (take, clip, _), vector in zip(batch, vectors, strict=True):
        take.waiting -= 1
        if fault := not_finite(vector):
            take.reject(clip["segment"], RejectCode.FEATURE_NOT_FINITE, fault)
        else:
            take.rows[clip["segment"]] = SegmentVector(vector, np.array(clip["pts_s"]))


def segments_of(source: Source) -> SegmentSpans:
    """Return the segments in the facts of a source."""
    return [tuple(span) for span in cast(list[Any], source.facts["segments"])]


def run_released(work: Work[FeatureConfig], pending: Sequence[Source]) -> None:
    """Read the file of each take and commit its shard; a take without a usable file is one reject."""
    released, tokens = RELEASED[work.config.released], work.config.token_shape[1]
    corpus, schema = open_corpus(work.runtime.data_root), features_schema(tokens * released.width, tokens)
    for done, source in enumerate(pending):
        take, segments, rejects = source.shard, segments_of(source), list[Reject]()
        kept: dict[str, SegmentVector] = {}
        try:
            of_segments = segment_vectors(corpus, source, segments, work.config)
        except TakeFault as fault:
            n_units, of_segments = len(segments), []
            rejects.append(reject(NAME, fault.code, take, fault.detail, n_units=n_units, source_file=fault.source_file))
        for (segment, *_), row in zip(segments, of_segments, strict=False):
            if isinstance(row, str):
                rejects.append(reject(NAME, RejectCode.FEATURES_OUTSIDE, take, row, segment=segment))
            elif bad := not_finite(row.vector):
                rejects.append(reject(NAME, RejectCode.FEATURE_NOT_FINITE, take, bad, segment=segment))
            else:
                kept[segment] = row
        table = features_table(schema, take, f"released:{released.name}", kept)
        work.sink.shard(take, table, rejects, len(segments))
        work.runtime.progress(done, len(pending), "takes; released features, nothing is encoded")


def segment_vectors(
    corpus: Corpus, source: Source, segments: SegmentSpans, cfg: FeatureConfig
) -> list[SegmentVector | str]:
    """Return the rows of each segment of a take, or where tokens are kept and no row is inside it, what is wrong.

    Raises TakeFault: its file is missing, damaged, or of another length than its video.
    """
    from trajpilot_core.encoders.released import read_rows, refuse_length, segment_rows, segment_tokens

    if not segments:
        return []
    released, tokens = RELEASED[cfg.released], cfg.token_shape[1]
    path, content = first_there(corpus, source.files)
    rows_ND = read_rows(content, path, released.width)
    duration_s = cast(float, source.facts["duration_s"])
    refuse_length(len(rows_ND), duration_s, cfg.released_off_s, released, path)
    spans_s = released.clock.spans_s(len(rows_ND), released.clock.n_frames(duration_s))
    if tokens == 1:
        return [segment_rows(rows_ND, spans_s, start_s, end_s) for _, start_s, end_s in segments]
    row_s = released.clock.window / released.clock.rate_hz
    return [
        segment_tokens(rows_ND, spans_s, start_s, end_s, tokens)
        or f"no row of the file is inside {start_s:.2f} to {end_s:.2f} s; one is {row_s:.2f} s long"
        for _, start_s, end_s in segments
    ]


def first_there(corpus: Corpus, paths: tuple[str, ...]) -> tuple[str, bytes]:
    """Return the first existing file, and its content.

    Raises TakeFault: none exists, or it changed while it was read.
    """
    for path in paths:
        try:
            return path, read_whole(corpus, path)
        except (FileNotFoundError, NotADirectoryError):
            continue
    names = " and ".join(paths) or "a file of features, whose name cannot be made of the take's,"
    raise TakeFault(RejectCode.FEATURES_MISSING, f"not there: {names}", paths[0] if paths else None)


STAGE = Stage(
    name=NAME,
    reads=("takes", "segments"),
    writes=("features",),
    config=FeatureConfig,
    run=run,
    version=VERSION,
    summary="Videos -> one frozen V-JEPA 2.1 vector a segment",
    shard_by="take",
    sources=sources,
    lowers=("features.batch", "features.model"),
    uses_gpu=lambda cfg: cfg.source == "encoded",
    video_s=covered_s,
    output=Output("segments", "features", ("segment_id",)),
)
