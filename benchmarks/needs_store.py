"""A root of any size whose first stages were only written, not computed: what the stages of `needs.py` read.

Tables of the true kind and shape with random content, committed by the real declarations with another `run`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.annotation import CorpusCount, Label, LabelClass, ScenarioLabel, Segment, SegmentDetails, Take, Window
from schemas.arrow import arrow_schema, table_of
from schemas.config import PipelineConfig, RunOptions
from schemas.observation import DOF, MOTIONS, descriptions_schema, features_schema, motions_schema, text_bank_schema
from trajpilot_core.corpora.records.contents import contents_of
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import Inputs, Source, Work
from trajpilot_core.stages import STAGES

WRITTEN = ("ingest", "trajectories", "features", "text_bank")
SPLITS = np.array(["train", "dev", "test"])
SHARES = (0.83, 0.10, 0.07)
"""Of the takes, as of the paper's windows."""
EXTRAS = {
    "label_classes": LabelClass,
    "details": SegmentDetails,
    "scenario_labels": ScenarioLabel,
    "counts": CorpusCount,
}
FLAT_LABELS = 0.9
"""Exponent by which labels become rarer."""


@dataclass(frozen=True)
class StoreShape:
    """How large the corpus is."""

    takes: int
    segments: int
    """Of each take."""
    labels: int
    feature_width: int
    text_width: int
    horizons: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    tokens: int = 1

    @property
    def n_segments(self) -> int:
        return self.takes * self.segments


def write_store(shape: StoreShape, config: PipelineConfig, run: RunOptions) -> None:
    """Commit the stages before the first training."""
    runs = {"ingest": _ingest, "trajectories": _motions, "features": _features, "text_bank": _bank}
    stages = dict(STAGES)
    for name in WRITTEN:
        stage, sources = STAGES[name], partial(_sources, is_sharded=STAGES[name].shard_by is not None)
        stages[name] = replace(stage, run=partial(runs[name], shape=shape), sources=sources)
        execute(stages[name], config, run, stages)


def _sources(inputs: Inputs, config: Any, data_root: str, is_sharded: bool) -> list[Source]:
    takes = inputs.table("takes", ["take_id"])["take_id"].to_pylist() if is_sharded else [""]
    return [Source(take) for take in takes]


def _take_ids(shape: StoreShape) -> NDArray[np.str_]:
    return np.array([f"egoexo4d:{number:08x}-0000-4000-8000-000000000000" for number in range(shape.takes)])


def _splits(shape: StoreShape) -> NDArray[np.str_]:
    """Return the split of every take."""
    bounds = np.cumsum(np.array(SHARES) * shape.takes).round()[:2]
    names: NDArray[np.str_] = SPLITS[np.searchsorted(bounds, np.arange(shape.takes), side="right")]
    return names


def _label_ids(shape: StoreShape) -> NDArray[np.str_]:
    return np.array([f"label{number:08d}" for number in range(shape.labels)])


def _segment_ids(shape: StoreShape) -> NDArray[np.str_]:
    number, place = np.divmod(np.arange(shape.n_segments), shape.segments)
    ids: NDArray[np.str_] = np.char.add(np.char.add(_take_ids(shape)[number], ":"), np.char.zfill(place.astype(str), 4))
    return ids


def _ingest(work: Work[Any], shape: StoreShape) -> None:
    number, place = np.divmod(np.arange(shape.n_segments), shape.segments)
    share = 1 / np.arange(1, shape.labels + 1) ** FLAT_LABELS
    labels = _label_ids(shape)
    own = labels[np.random.default_rng(0).choice(shape.labels, shape.n_segments, p=share / share.sum())]
    takes, split, ids = _take_ids(shape)[number], _splits(shape)[number], _segment_ids(shape)
    columns: dict[str, Any] = {"segment_id": ids, "take_id": takes, "split": split, "position": place}
    columns |= {"run": np.zeros_like(place), "start_s": 4.0 * place, "end_s": 4.0 * place + 4, "anchor_s": 4.0 * place}
    columns |= {"raw_text": own, "label": own, "label_id": own, "annotation_uid": takes, "annotator": split}
    table_of_takes, segments = _takes(shape), pa.table(columns).cast(arrow_schema(Segment))
    windows = pa.concat_tables([_windows(shape, horizon, ids) for horizon in shape.horizons])
    work.sink.table("takes", table_of_takes)
    work.sink.table("segments", segments)
    rows = [Label(label_id=i, label=i, paraphrases=(i,), n_train=1, n_dev=0, n_test=0) for i in labels.tolist()]
    work.sink.table("labels", table_of(Label, rows))
    work.sink.table("windows", windows)
    work.sink.table("take_contents", contents_of(table_of_takes, segments, windows))
    for name, record in EXTRAS.items():
        work.sink.table(name, arrow_schema(record).empty_table())
    work.sink.count(shape.n_segments, shape.n_segments)


def _takes(shape: StoreShape) -> pa.Table:
    fixed = {"corpus": "egoexo4d", "name": "n", "scenario": "Cooking", "participant": "7", "video": "v"}
    fixed |= {"trajectory": "t", "timesync": "s", "calibration": "c", "camera": "a"}
    times = {"timesync_start": 4, "timesync_end": 365, "duration_s": 240.0, "fps": 30.0, "n_frames": 7200}
    rows = zip(_take_ids(shape).tolist(), _splits(shape).tolist(), strict=True)
    records = [
        Take.model_validate({**fixed, **times, "take_id": take, "split": split, "capture": take})
        for take, split in rows
    ]
    return table_of(Take, records)


def _windows(shape: StoreShape, horizon: int, ids: NDArray[np.str_]) -> pa.Table:
    """Return every window of one horizon."""
    first = np.arange(shape.n_segments)
    first = first[first % shape.segments <= shape.segments - horizon]
    at = (first[:, None] + np.arange(horizon)).ravel()
    offsets = pa.array(np.arange(len(first) + 1, dtype=np.int32) * horizon)
    takes = first // shape.segments
    columns = {
        "window_id": np.char.add(ids[first], f":h{horizon}"),
        "take_id": _take_ids(shape)[takes],
        "split": _splits(shape)[takes],
        "horizon": np.full(len(first), horizon),
        "segment_ids": pa.ListArray.from_arrays(offsets, pa.array(ids.tolist()).take(pa.array(at))),
    }
    return pa.table(columns).cast(arrow_schema(Window))


def _vectors(rows: int, width: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, width), dtype=np.float32)


def _motions(work: Work[Any], shape: StoreShape) -> None:
    ids = _segment_ids(shape).reshape(shape.takes, -1)
    exact = {"source": "aria", "frame": "camera", "scale": "metric", "coverage": 1.0, "quality": 1.0, "max_gap_s": 0.0}
    for number, source in enumerate(work.pending):
        columns: dict[str, Any] = {"segment_id": ids[number], "take_id": [source.shard] * shape.segments}
        columns |= {name: [value] * shape.segments for name, value in exact.items()}
        flat = pa.array(_vectors(shape.segments, MOTIONS * DOF, number).ravel())
        columns["motions"] = pa.FixedSizeListArray.from_arrays(flat, MOTIONS * DOF)
        work.sink.shard(source.shard, pa.table(columns, schema=motions_schema()), [], shape.segments)


def _features(work: Work[Any], shape: StoreShape) -> None:
    ids, schema = _segment_ids(shape).reshape(shape.takes, -1), features_schema(shape.feature_width, shape.tokens)
    numbers = shape.feature_width * shape.tokens
    for number, source in enumerate(work.pending):
        flat = pa.array(_vectors(shape.segments, numbers, number).astype(np.float16).ravel())
        vectors = pa.FixedSizeListArray.from_arrays(flat, schema.field("vector").type.list_size)
        columns: dict[str, Any] = {"segment_id": ids[number], "take_id": [source.shard] * shape.segments}
        columns |= {"encoder": ["random"] * shape.segments, "frame_times_s": [[0.0] * 16] * shape.segments}
        table = pa.table({name: {**columns, "vector": vectors}[name] for name in schema.names}, schema=schema)
        work.sink.shard(source.shard, table, [], shape.segments)


def _bank(work: Work[Any], shape: StoreShape) -> None:
    vectors = _vectors(shape.labels, shape.text_width, 0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = pa.array(_label_ids(shape).tolist(), pa.string())
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), shape.text_width)
    names = pa.array(["random"] * shape.labels, pa.string())
    work.sink.table("text_bank", pa.table([labels, labels, names, column], schema=text_bank_schema(shape.text_width)))
    work.sink.table("descriptions", descriptions_schema(shape.text_width).empty_table())
    work.sink.count(shape.labels, shape.labels)
