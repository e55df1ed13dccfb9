"""Stage `features`: 16 frames of every segment through a frozen video encoder, or rows that the corpus publishes.

Released rows need no video, no encoder and no GPU: docs/decisions/released-features.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import ReleasedFeature, Take, features_schema
from schemas.arrow import rows_of
from schemas.config import FeatureConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.corpora.records.contents import INTERVAL, covered_s, intervals_by_take
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.corpora.released import RELEASED
from trajpilot_core.encoders.video.registry import video_encoder_files
from trajpilot_core.engine.stage import Output, Source, Stage, Work
from trajpilot_core.errors import TakeFault
from trajpilot_core.store.corpus_files import Corpus, open_corpus, read_whole, safe_path
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.encoders.released import SegmentRows
    from trajpilot_core.encoders.video.embed import Embedder
    from trajpilot_core.video.isolate import Event

NAME, VERSION = "features", 1
ROWS_VERSION, TOKENS_VERSION = 1, 1  # of released rows: raise when their numbers change; a golden test watches
SegmentSpans = list[tuple[str, float, float]]
"""Segments of a take: id, start and end in seconds."""
WAITING = 2
"""Maximum batches of decoded clips that wait for the encoder."""


def sources(inputs: Inputs, cfg: FeatureConfig, data_root: str) -> list[Source]:
    """Return one source per take: its video and the weights, or possible paths of its released file, and what else
    decides its rows: frame rate or length of the video, and the segment intervals (not their labels).

    Raises InputError: frames must be encoded, but the run has no videos.
    """
    segments = intervals_by_take(inputs.table("segments", INTERVAL))
    is_encoded = cfg.source == "encoded"
    weights = video_encoder_files(cfg) if is_encoded else ()
    version = {"rows_version": ROWS_VERSION}
    if not is_encoded and cfg.token_shape[1] > 1:  # the width of a plugin's encoder is unknown here
        version["tokens_version"] = TOKENS_VERSION
    listed = []
    for take in rows_of(Take, inputs.table("takes")):
        facts: dict[str, JsonValue] = {"segments": segments.get(take.take_id, [])}
        if is_encoded:
            files: tuple[str, ...] = (video_of(take, "features.source=encoded"), *weights)
            facts["fps"] = take.fps
        else:
            files = tuple(path for path in RELEASED[cfg.released].files(take) if safe_path(path))
            facts |= {"duration_s": take.duration_s, **version}
        listed.append(Source(take.take_id, files, facts))
    return listed


def on_gpu(cfg: FeatureConfig) -> bool:
    """Return whether an encoder runs; False for released features."""
    return cfg.source == "encoded"


@dataclass
class TakeClips:
    """State of one take while its clips arrive; dicts are keyed by the number of the segment."""

    take_id: str
    video: str
    segments: list[tuple[str, float, float]]
    waiting: int = 0
    """Clips that are decoded but not encoded yet."""
    ended: bool = False
    lost: Reject | None = None
    """Set if the whole take failed."""
    rejects: list[Reject] = field(default_factory=list)
    vectors: dict[int, NDArray[np.float16]] = field(default_factory=dict)
    times_s: dict[int, list[float]] = field(default_factory=dict)


WaitingClip = tuple[TakeClips, int, NDArray[np.uint8]]
"""Take, number of the segment, frames."""


def run(work: Work[FeatureConfig]) -> None:
    """Decode in child processes, encode here, and commit a shard as soon as its take is complete."""
    from trajpilot_core.encoders.video.embed import load_embedder, torch_threads

    cfg = work.config
    if not work.pending:
        return
    if cfg.source == "released":
        run_released(work)
        return
    states = []
    for source in sorted(work.pending, key=lambda source: source.shard):
        segments = [tuple(segment) for segment in cast(list[Any], source.facts["segments"])]
        states.append(TakeClips(source.shard, source.files[0], cast(list[tuple[str, float, float]], segments)))
    embedder = load_embedder(cfg, work.runtime.device, work.runtime.scratch)
    with torch_threads(cfg):
        for done, state in enumerate(_completed(states, work, embedder)):
            kept = [] if state.lost else sorted(state.vectors)
            columns: dict[str, list[Any]] = {
                "segment_id": [state.segments[row][0] for row in kept],
                "take_id": [state.take_id] * len(kept),
                "encoder": [embedder.digest] * len(kept),
                "frame_times_s": [state.times_s[row] for row in kept],
            }
            schema, vectors = features_schema(embedder.width, embedder.tokens), [state.vectors[row] for row in kept]
            table = features_table(schema, columns, vectors)
            rejects = [state.lost] if state.lost else sorted(state.rejects, key=lambda row: row.segment or "")
            work.runtime.progress(done, len(states), "takes")
            work.sink.shard(state.take_id, table, rejects, len(state.segments))


def _completed(states: list[TakeClips], work: Work[FeatureConfig], embedder: "Embedder") -> Iterator[TakeClips]:
    """Yield every take once all its clips are encoded; batches are filled across segments and takes."""
    from trajpilot_core.store.corpus_files import open_corpus
    from trajpilot_core.training.clip_stream import clip_job
    from trajpilot_core.video.decode import frame_times_s
    from trajpilot_core.video.isolate import local_copies, run_jobs

    cfg = embedder.config
    fps = {source.shard: cast(float, source.facts["fps"]) for source in work.pending}
    busy = [state for state in states if state.segments]
    yield from (state for state in states if not state.segments)
    jobs = []
    for state in busy:
        ends = ((start_s, end_s, fps[state.take_id], cfg.n_frames) for _, start_s, end_s in state.segments)
        jobs.append(clip_job(state.video, [frame_times_s(*of_clip).tolist() for of_clip in ends], cfg))
    batch: list[WaitingClip] = []
    events = run_jobs(
        jobs,
        workers=work.runtime.workers,
        timeout_s=cfg.decode_timeout_s,
        ahead=WAITING * cfg.batch,
        around=local_copies(open_corpus(work.runtime.data_root), work.runtime.scratch),
    )
    open_takes = set(range(len(busy)))
    for event in events:
        _note(busy[event.job], event, batch)
        over = len(jobs) == sum(state.ended for state in busy)
        if len(batch) == cfg.batch or (over and batch):
            _encode(batch, embedder)
            batch.clear()
        finished = sorted(at for at in open_takes if busy[at].ended and not busy[at].waiting)
        open_takes.difference_update(finished)
        yield from (busy[at] for at in finished)


def _note(state: TakeClips, event: "Event", batch: list[WaitingClip]) -> None:
    """Add one decoder event to the take's state and the batch."""
    if event.frames is not None:
        row = event.values["segment"]
        state.times_s[row] = event.values["pts_s"]
        state.waiting += 1
        batch.append((state, row, event.frames))
    elif event.kind == "fault":
        code, detail = RejectCode(event.values["code"]), event.values["detail"]
        state.rejects.append(_segment_reject(state, event.values["segment"], code, detail))
    else:
        state.ended = True
    if event.kind == "failed":
        code, n_units = RejectCode(event.values["code"]), len(state.segments)
        detail = event.values["detail"]
        state.lost = reject(NAME, code, state.take_id, detail, n_units=n_units, source_file=state.video)


def _segment_reject(state: TakeClips, row: int, code: RejectCode, detail: str) -> Reject:
    return reject(NAME, code, state.take_id, detail, segment=state.segments[row][0], source_file=state.video)


def _encode(batch: list[WaitingClip], embedder: "Embedder") -> None:
    """Enter the vectors of a batch in the states of its takes; a vector with NaN or infinity becomes a reject."""
    vectors = embedder.embed([frames for *_, frames in batch])
    for (state, row, _), vector in zip(batch, vectors, strict=True):
        state.waiting -= 1
        if np.isfinite(vector).all():
            state.vectors[row] = vector
        else:
            detail = f"{int((~np.isfinite(vector)).sum())} of {len(vector)} numbers of the vector are not finite"
            state.rejects.append(_segment_reject(state, row, RejectCode.FEATURE_NOT_FINITE, detail))


def run_released(work: Work[FeatureConfig]) -> None:
    """Read the file of each take and commit its shard; a take without a usable file is one reject."""
    corpus = open_corpus(work.runtime.data_root)
    pending = sorted(work.pending, key=lambda source: source.shard)
    for done, source in enumerate(pending):
        segments = cast(SegmentSpans, [tuple(span) for span in cast(list[Any], source.facts["segments"])])
        take, n, tokens = source.shard, len(segments), work.config.token_shape[1]
        try:
            kept, rejects = finite_rows(take, segments, segment_vectors(corpus, source, segments, work.config))
        except TakeFault as fault:
            lost = reject(NAME, fault.code, take, fault.detail, n_units=n, source_file=fault.source_file)
            kept, rejects = {}, [lost]
        columns: dict[str, list[Any]] = {
            "segment_id": [*kept],
            "take_id": [take] * len(kept),
            "encoder": [f"released:{work.config.released}"] * len(kept),
            "frame_times_s": [rows.spans_s.ravel().tolist() for rows in kept.values()],  # start and end of each row
            "overhang_s": [rows.overhang_s for rows in kept.values()],
        }
        schema = features_schema(tokens * RELEASED[work.config.released].width, tokens, ReleasedFeature)
        table = features_table(schema, columns, [rows.vector for rows in kept.values()])
        work.sink.shard(take, table, rejects, n)
        work.runtime.progress(done, len(pending), "takes; released features, nothing is encoded")


def features_table(schema: pa.Schema, columns: Mapping[str, list[Any]], vectors: Sequence[NDArray[Any]]) -> pa.Table:
    """Return the features of one take in float16, from the columns of their segments and their vectors (D,)."""
    flat = np.concatenate(vectors).astype(np.float16) if vectors else np.empty(0, np.float16)
    arrays = [pa.array(values, schema.field(name).type) for name, values in columns.items()]
    arrays.append(
        pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float16()), schema.field("vector").type.list_size)
    )
    return pa.Table.from_arrays(arrays, names=[*columns, "vector"]).select(schema.names).cast(schema)


def segment_vectors(
    corpus: Corpus, source: Source, segments: SegmentSpans, cfg: FeatureConfig
) -> "list[SegmentRows | str]":
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


def finite_rows(
    take: str, segments: SegmentSpans, of_segments: "list[SegmentRows | str]"
) -> "tuple[dict[str, SegmentRows], list[Reject]]":
    """Return the rows by segment, and a reject for each segment without a row or with values beyond float16."""
    kept: dict[str, SegmentRows] = {}
    rejects = []
    for (segment, *_), rows in zip(segments, of_segments, strict=True):
        if isinstance(rows, str):
            rejects.append(reject(NAME, RejectCode.FEATURES_OUTSIDE, take, rows, segment=segment))
            continue
        with np.errstate(over="ignore"):
            n_bad = int((~np.isfinite(rows.vector.astype(np.float16))).sum())
        if n_bad:
            detail = f"{n_bad} of {len(rows.vector)} numbers of the released rows are not finite in float16"
            rejects.append(reject(NAME, RejectCode.FEATURE_NOT_FINITE, take, detail, segment=segment))
        else:
            kept[segment] = rows
    return kept, rejects


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
    uses_gpu=on_gpu,
    video_s=covered_s,
    output=Output("segments", "features", ("segment_id",)),
)
