"""Stage `features`: 16 frames of every segment through a frozen video encoder."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.annotation import Take, features_schema
from schemas.arrow import rows_of
from schemas.config import FeatureConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.corpora.records.contents import INTERVAL, covered_s, intervals_by_take
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.encoders.video.registry import video_encoder_files
from trajpilot_core.engine.stage import Inputs, Output, Source, Stage, Work
from trajpilot_core.stages import released_features

if TYPE_CHECKING:
    from trajpilot_core.encoders.video.embed import Embedder
    from trajpilot_core.video.isolate import Event

NAME, VERSION = "features", 1
WAITING = 2
"""Maximum batches of decoded clips that wait for the encoder."""


def sources(inputs: Inputs, cfg: FeatureConfig, data_root: str) -> list[Source]:
    """Return one source per take: its video, the weights, its frame rate and segment intervals (not their labels).

    Raises InputError: frames must be encoded, but the run has no videos.
    """
    if cfg.source == "released":
        return released_features.sources(inputs, cfg)
    segments = intervals_by_take(inputs.table("segments", INTERVAL))
    weights = video_encoder_files(cfg)
    takes = sorted(rows_of(Take, inputs.table("takes")), key=lambda take: take.take_id)
    return [
        Source(
            take.take_id,
            (video_of(take, "features.source=encoded"), *weights),
            {"fps": take.fps, "segments": segments.get(take.take_id, [])},
        )
        for take in takes
    ]


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
BatchUnderWay = tuple[list[tuple[TakeClips, int]], Callable[[], NDArray[np.float16]]]
"""Takes and segments of the clips in the encoder, and a function that waits for their vectors."""


def run(work: Work[FeatureConfig]) -> None:
    """Decode in child processes, encode here, and commit a shard as soon as its take is complete."""
    from trajpilot_core.encoders.video.embed import load_embedder, torch_threads

    cfg = work.config
    if not work.pending:
        return
    if cfg.source == "released":
        released_features.run(work)
        return
    states = []
    for source in sorted(work.pending, key=lambda source: source.shard):
        segments = [tuple(segment) for segment in cast(list[Any], source.facts["segments"])]
        states.append(TakeClips(source.shard, source.files[0], cast(list[tuple[str, float, float]], segments)))
    embedder = load_embedder(cfg, work.runtime.device, work.runtime.scratch)
    with torch_threads(cfg):
        clips, began = 0, time.monotonic()
        for done, state in enumerate(_completed(states, work, embedder)):
            table, rejects = _shard(state, embedder)
            clips += table.num_rows
            rate = clips / max(1e-9, time.monotonic() - began)
            work.runtime.progress(done, len(states), f"takes; {rate:.1f} clips a second")
            work.sink.shard(state.take_id, table, rejects, len(state.segments))


def _completed(states: list[TakeClips], work: Work[FeatureConfig], embedder: "Embedder") -> Iterator[TakeClips]:
    """Yield every take once all its clips are encoded; batches are filled across segments and takes."""
    from trajpilot_core.store.corpus_files import open_corpus
    from trajpilot_core.video.isolate import local_copies, run_jobs

    cfg = embedder.config
    fps = {source.shard: cast(float, source.facts["fps"]) for source in work.pending}
    busy = [state for state in states if state.segments]
    yield from (state for state in states if not state.segments)
    jobs = [_job(state, fps[state.take_id], cfg) for state in busy]
    batch: list[WaitingClip] = []
    under_way: list[BatchUnderWay] = []
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
            _encode(batch, embedder, under_way)
        if over:
            _enter(under_way, 0)
        finished = sorted(at for at in open_takes if busy[at].ended and not busy[at].waiting)
        open_takes.difference_update(finished)
        yield from (busy[at] for at in finished)


def _job(state: TakeClips, fps: float, cfg: FeatureConfig) -> dict[str, Any]:
    """Return the job of a decoder process for one take."""
    from trajpilot_core.video.decode import frame_times_s

    times = [frame_times_s(start_s, end_s, fps, cfg.n_frames).tolist() for _, start_s, end_s in state.segments]
    return {
        "kind": "clips",
        "video": state.video,
        "path": state.video,
        "times_s": times,
        "size_px": cfg.size_px,
        "backend": cfg.backend,
        "resize": cfg.resize,
        "max_off_s": cfg.max_off_s,
    }


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


def _encode(batch: list[WaitingClip], embedder: "Embedder", under_way: list[BatchUnderWay]) -> None:
    """Pass the waiting clips to the encoder, empty the batch, and enter the vectors that are due."""
    under_way.append(([(state, row) for state, row, _ in batch], embedder.begin([frames for *_, frames in batch])))
    batch.clear()
    _enter(under_way, embedder.late)


def _enter(under_way: list[BatchUnderWay], left: int) -> None:
    """Enter the vectors of all batches except the last `left`; a vector with NaN or infinity becomes a reject."""
    due = under_way[: len(under_way) - left]
    del under_way[: len(due)]
    arrived = (pair for clips, wait in due for pair in zip(clips, wait(), strict=True))
    for (state, row), vector in arrived:
        state.waiting -= 1
        if np.isfinite(vector).all():
            state.vectors[row] = vector
        else:
            detail = f"{int((~np.isfinite(vector)).sum())} of {len(vector)} numbers of the vector are not finite"
            state.rejects.append(_segment_reject(state, row, RejectCode.FEATURE_NOT_FINITE, detail))


def _shard(state: TakeClips, embedder: "Embedder") -> tuple[pa.Table, list[Reject]]:
    """Return the features table and the rejects of one take; a take that failed has no rows."""
    kept = [] if state.lost else sorted(state.vectors)
    schema = features_schema(embedder.width, embedder.tokens)
    flat = np.concatenate([state.vectors[row] for row in kept]) if kept else np.empty(0, np.float16)
    columns = {
        "segment_id": [state.segments[row][0] for row in kept],
        "take_id": [state.take_id] * len(kept),
        "encoder": [embedder.digest] * len(kept),
        "frame_times_s": [state.times_s[row] for row in kept],
    }
    arrays = [pa.array(columns[name], schema.field(name).type) for name in columns]
    arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float16()), embedder.width))
    table = pa.Table.from_arrays(arrays, names=[*columns, "vector"]).select(schema.names).cast(schema)
    rejects = [state.lost] if state.lost else sorted(state.rejects, key=lambda row: row.segment or "")
    return table, rejects


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
    pure_sources=True,
    lowers=("features.batch", "features.model"),
    uses_gpu=on_gpu,
    video_s=covered_s,
    output=Output("segments", "features", ("segment_id",)),
)
