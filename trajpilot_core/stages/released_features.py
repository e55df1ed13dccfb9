"""The stage `features` on files that the corpus publishes: no video, no encoder, no GPU.

Source: docs/decisions/released-features.md.
"""

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from schemas.annotation import ReleasedFeature, Take, features_schema
from schemas.arrow import rows_of
from schemas.config import FeatureConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.corpora.records.contents import INTERVAL, intervals_by_take
from trajpilot_core.corpora.released import RELEASED
from trajpilot_core.engine.stage import Inputs, Source, Work
from trajpilot_core.errors import TakeFault
from trajpilot_core.store.corpus_files import Corpus, open_corpus, read_whole, safe_path

if TYPE_CHECKING:
    from trajpilot_core.encoders.released import SegmentRows

STAGE_NAME, VERSION = "features", 1  # raise when the numbers that this module writes change; a golden test watches
SegmentSpans = list[tuple[str, float, float]]
"""Segments of a take: id, start and end in seconds."""
TOKENS_VERSION = 1
"""Version of tokens from rows; in the keys of runs that keep tokens."""


def sources(inputs: Inputs, cfg: FeatureConfig) -> list[Source]:
    """Return one source per take: possible paths of its file, the length of its video, and its segment intervals."""
    released = RELEASED[cfg.released]
    version: dict[str, JsonValue] = {"rows_version": VERSION}
    if n_tokens(cfg) > 1:
        version["tokens_version"] = TOKENS_VERSION
    segments = intervals_by_take(inputs.table("segments", INTERVAL))
    takes = sorted(rows_of(Take, inputs.table("takes")), key=lambda take: take.take_id)
    return [
        Source(
            take.take_id,
            tuple(path for path in released.files(take) if safe_path(path)),
            {"duration_s": take.duration_s, "segments": segments.get(take.take_id, []), **version},
        )
        for take in takes
    ]


def n_tokens(cfg: FeatureConfig) -> int:
    """Return how many rows of a file are kept per segment as tokens; 1: their mean."""
    return cfg.token_shape[1]


def run(work: Work[FeatureConfig]) -> None:
    """Read the file of each take and commit its shard; a take without a usable file is one reject."""
    corpus = open_corpus(work.runtime.data_root)
    pending = sorted(work.pending, key=lambda source: source.shard)
    for done, source in enumerate(pending):
        segments = cast(SegmentSpans, [tuple(span) for span in cast(list[Any], source.facts["segments"])])
        take, n = source.shard, len(segments)
        try:
            rows = segment_vectors(corpus, source, segments, work.config) if segments else []
        except TakeFault as fault:
            lost = reject(STAGE_NAME, fault.code, take, fault.detail, n_units=n, source_file=fault.source_file)
            work.sink.shard(take, shard_table(take, [], [], work.config), [lost], n)
            continue
        table, rejects = finite_shard(take, segments, rows, work.config)
        work.sink.shard(take, table, rejects, n)
        work.runtime.progress(done, len(pending), "takes; released features, nothing is encoded")


def segment_vectors(
    corpus: Corpus, source: Source, segments: SegmentSpans, cfg: FeatureConfig
) -> "list[SegmentRows | None]":
    """Return the rows of each segment of a take; None where tokens are kept and no row is inside a segment.

    Raises TakeFault: its file is missing, damaged, or of another length than its video.
    """
    from trajpilot_core.encoders.released import read_rows, refuse_length, segment_rows, segment_tokens

    released, tokens = RELEASED[cfg.released], n_tokens(cfg)
    path, content = first_there(corpus, source.files)
    rows_ND = read_rows(content, path, released.width)
    duration_s = cast(float, source.facts["duration_s"])
    refuse_length(len(rows_ND), duration_s, cfg.released_off_s, released, path)
    spans_s = released.clock.spans_s(len(rows_ND), released.clock.n_frames(duration_s))
    if tokens > 1:
        return [segment_tokens(rows_ND, spans_s, start_s, end_s, tokens) for _, start_s, end_s in segments]
    return [segment_rows(rows_ND, spans_s, start_s, end_s) for _, start_s, end_s in segments]


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


def finite_shard(
    take: str, segments: SegmentSpans, of_segments: "list[SegmentRows | None]", cfg: FeatureConfig
) -> tuple[pa.Table, list[Reject]]:
    """Return the features of a take, and a reject for each segment without a row or with values beyond float16."""
    kept: list[tuple[str, SegmentRows]] = []
    rejects, clock = [], RELEASED[cfg.released].clock
    for (segment, start_s, end_s), rows in zip(segments, of_segments, strict=True):
        if rows is None:
            row_s = clock.window / clock.rate_hz
            detail = f"no row of the file is inside {start_s:.2f} to {end_s:.2f} s; one is {row_s:.2f} s long"
            rejects.append(reject(STAGE_NAME, RejectCode.FEATURES_OUTSIDE, take, detail, segment=segment))
            continue
        with np.errstate(over="ignore"):
            n_bad = int((~np.isfinite(rows.vector.astype(np.float16))).sum())
        if not n_bad:
            kept.append((segment, rows))
            continue
        detail = f"{n_bad} of {len(rows.vector)} numbers of the released rows are not finite in float16"
        rejects.append(reject(STAGE_NAME, RejectCode.FEATURE_NOT_FINITE, take, detail, segment=segment))
    return shard_table(take, [segment for segment, _ in kept], [rows for _, rows in kept], cfg), rejects


def shard_table(take: str, ids: list[str], of_segments: "list[SegmentRows]", cfg: FeatureConfig) -> pa.Table:
    """Return the features table of one take; `frame_times_s` has start and end of each averaged row."""
    tokens = n_tokens(cfg)
    width = tokens * RELEASED[cfg.released].width
    schema = features_schema(width, tokens, ReleasedFeature)
    flat = np.concatenate([rows.vector for rows in of_segments]) if of_segments else np.empty(0, np.float32)
    columns = {
        "segment_id": ids,
        "take_id": [take] * len(ids),
        "encoder": [f"released:{cfg.released}"] * len(ids),
        "frame_times_s": [rows.spans_s.ravel().tolist() for rows in of_segments],
        "overhang_s": [rows.overhang_s for rows in of_segments],
    }
    arrays = [pa.array(columns[name], schema.field(name).type) for name in columns]
    arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(flat.astype(np.float16), pa.float16()), width))
    return pa.Table.from_arrays(arrays, names=[*columns, "vector"]).select(schema.names).cast(schema)
