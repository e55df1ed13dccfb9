"""Write what ingest, trajectories and features would leave, of true shape and random content.

The stages are the project's own declarations with another `run`: the executor makes their keys, shards and manifests,
so that what comes after them cannot tell. Sampled per take, in columns; nothing is decoded or encoded.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.rehearsal.sizes import SHORTEST_TAKE, TAKES_OF_CAPTURE, TEST_SHARE, Sizes
from schemas.annotation import CorpusCount, Label, ScenarioLabel, Segment, SegmentDetails, Take, Window
from schemas.arrow import arrow_schema, table_of
from schemas.config import FeatureConfig, IngestConfig
from schemas.observation import DOF, MOTIONS, features_schema, motions_schema, released_features_schema
from schemas.trajectories import TrajectoryConfig
from trajpilot_core.corpora.records.closed_vocabulary import label_classes
from trajpilot_core.corpora.records.contents import contents_of
from trajpilot_core.corpora.records.labels import label_rows
from trajpilot_core.corpora.records.windows import window_rows
from trajpilot_core.engine.sizes import feature_shape
from trajpilot_core.engine.stage import AnyStage, Inputs, Source, Work

SEED = 20_260_520
CORPUS = "egoexo4d"
STEP_S = 4.0
"""Between two segments of a take; each is seen in full."""
LABEL_SHARE, TAKE_SHARE, NOISE = 0.6, 0.4, 0.7
"""Standard deviations of what label, take and segment add to a feature: ends are recognised at times, not always."""
METRES = 0.02
Numbers = NDArray[np.int64]


def planted(stages: Mapping[str, AnyStage], sizes: Sizes) -> dict[str, AnyStage]:
    """Return the same stages, of which the first three sample their output."""
    found = dict(stages)
    found["ingest"] = replace(
        found["ingest"], run=partial(write_tables, sizes=sizes), sources=partial(facts, sizes), needs=None
    )
    found["trajectories"] = replace(found["trajectories"], run=write_motions, needs=None)
    found["features"] = replace(found["features"], run=write_features, needs=None)
    return found


def facts(sizes: Sizes, inputs: Inputs, config: IngestConfig, data_root: str) -> list[Source]:
    """State what decides the tables."""
    return [Source("", facts={"rehearsal": [sizes.takes, sizes.segments, sizes.labels, SEED, sizes.dev_share]})]


def write_tables(work: Work[IngestConfig], sizes: Sizes) -> None:
    """Write the tables of ingest."""
    rng = np.random.default_rng(SEED)
    counts = segment_counts(sizes, rng)
    takes = takes_table(counts, sizes.dev_share, rng)
    segments = segments_table(takes, counts, sizes, rng)
    texts = [segments.column(name).to_pylist() for name in ("label_id", "label", "split")]
    work.sink.table("takes", takes)
    work.sink.table("segments", segments)
    labels = table_of(Label, label_rows(zip(*texts, strict=True)))
    work.sink.table("labels", labels)
    work.sink.table("label_classes", label_classes(labels, None)[0])
    windows = windows_table(segments, (work.config.min_horizon, work.config.max_horizon))
    work.sink.table("windows", windows)
    work.sink.table("take_contents", contents_of(takes, segments, windows))
    work.sink.table("details", details_table(segments))
    work.sink.table("scenario_labels", arrow_schema(ScenarioLabel).empty_table())
    work.sink.table("counts", arrow_schema(CorpusCount).empty_table())
    work.sink.count(segments.num_rows, segments.num_rows)


def segment_counts(sizes: Sizes, rng: np.random.Generator) -> Numbers:
    """Return (takes,) segments of each take, uneven as in the corpus; their sum is exact."""
    free = sizes.segments - SHORTEST_TAKE * sizes.takes
    if free < 0:
        raise ValueError(f"{sizes.segments} segments are fewer than {SHORTEST_TAKE} for each of {sizes.takes} takes")
    weight = rng.lognormal(0.0, 0.7, sizes.takes)
    return SHORTEST_TAKE + rng.multinomial(free, weight / weight.sum()).astype(np.int64)


def splits_of(n_takes: int, dev_share: float, rng: np.random.Generator) -> list[str]:
    """Return the split of each take; takes of one capture share it. Each split has one, where there are enough."""
    n = -(-n_takes // TAKES_OF_CAPTURE)
    if n < 3:
        return ["train"] * n_takes
    dev, test = (max(1, round(share * n)) for share in (dev_share, TEST_SHARE))
    named = np.array((["dev"] * dev + ["test"] * test + ["train"] * n)[:n])
    return [str(name) for name in rng.permutation(named)[np.arange(n_takes) // TAKES_OF_CAPTURE]]


def takes_table(counts: Numbers, dev_share: float, rng: np.random.Generator) -> pa.Table:
    """Return the takes; the paths that they name lead nowhere."""
    splits = splits_of(len(counts), dev_share, rng)
    return table_of(Take, [_take(i, int(n), split) for i, (n, split) in enumerate(zip(counts, splits, strict=True))])


def _take(i: int, n_segments: int, split: str) -> Take:
    folder, capture = f"takes/t{i:05d}", f"c{i // TAKES_OF_CAPTURE:05d}"
    values: dict[str, Any] = {
        "take_id": f"{CORPUS}:{i:08x}-0000-4000-8000-000000000000",
        "corpus": CORPUS,
        "name": f"rehearsal_{i:05d}",
        "split": split,
        "scenario": f"scenario {i % 8}",
        "participant": str(i // (3 * TAKES_OF_CAPTURE)),
        "capture": capture,
        "video": f"{folder}/video.mp4",
        "trajectory": f"{folder}/closed_loop_trajectory.csv",
        "timesync": f"captures/{capture}/timesync.csv",
        "calibration": f"{folder}/online_calibration.jsonl",
        "camera": "aria01_214-1",
        "timesync_start": 0,
        "timesync_end": round(30 * STEP_S * n_segments),
        "duration_s": STEP_S * n_segments,
        "fps": 30.0,
        "n_frames": round(30 * STEP_S * n_segments),
    }
    return Take.model_validate(values)


def label_names(n_labels: int) -> NDArray[np.str_]:
    """Return (labels,) texts of three words, no two alike."""
    n = np.arange(n_labels)
    verb, noun, place = (n % 150).astype(str), (n // 7 % 900).astype(str), n.astype(str)
    parts = (np.full(n_labels, "verb"), verb, np.full(n_labels, " the noun"), noun, np.full(n_labels, " place"), place)
    return functools.reduce(np.char.add, parts)


def segments_table(takes: pa.Table, counts: Numbers, sizes: Sizes, rng: np.random.Generator) -> pa.Table:
    """Return the segments, takes one after the other; few labels are frequent, and each occurs."""
    take = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(take)) - np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.arange(sizes.labels)
    chance = 1 / (rank + 2.7)
    label = rng.choice(sizes.labels, len(take), p=chance / chance.sum())
    label[rng.permutation(len(take))[: sizes.labels]] = rank[: len(take)]
    ids = np.array(takes["take_id"].to_pylist())[take]
    text = label_names(sizes.labels)[label]
    columns = {
        "segment_id": np.char.add(np.char.add(ids, ":"), np.char.zfill(position.astype(str), 4)),
        "take_id": ids,
        "split": np.array(takes["split"].to_pylist())[take],
        "position": position,
        "run": np.zeros_like(position),
        "start_s": STEP_S * position,
        "end_s": STEP_S * (position + 1.0),
        "anchor_s": STEP_S * (position + 0.5),
        "raw_text": np.char.add("C ", text),
        "label": text,
        "label_id": text,
        "annotation_uid": ids,
        "annotator": np.full(len(take), "rehearsal"),
    }
    return pa.table(columns).cast(arrow_schema(Segment))


def windows_table(segments: pa.Table, horizons: tuple[int, int]) -> pa.Table:
    """Return all windows of the horizons from the first to the last."""
    take = segments["take_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    run = segments["run"].to_numpy()
    named = segments.select(["take_id", "split", "position"])
    ids = segments["segment_id"].combine_chunks()
    parts = []
    for horizon in range(horizons[0], horizons[1] + 1):
        rows = window_rows(take, run, horizon)
        own = named.take(pa.array(rows[:, 0]))
        position = pc.utf8_lpad(own["position"].cast(pa.string()), width=4, padding="0")
        offsets = pa.array(np.arange(0, rows.size + 1, horizon, dtype=np.int32))
        columns = {
            "window_id": pc.binary_join_element_wise(own["take_id"], f"h{horizon}", position, ":"),
            "take_id": own["take_id"],
            "split": own["split"],
            "horizon": pa.array(np.full(len(rows), horizon)),
            "segment_ids": pa.ListArray.from_arrays(offsets, ids.take(pa.array(rows.ravel()))),
        }
        parts.append(pa.table(columns).cast(arrow_schema(Window)))
    return pa.concat_tables(parts)


def details_table(segments: pa.Table) -> pa.Table:
    """Return one row a segment that says nothing further, as for atomic descriptions."""
    schema = arrow_schema(SegmentDetails)
    known = {name: segments[name] for name in ("segment_id", "take_id")}
    columns = [known.get(field.name, pa.nulls(segments.num_rows, field.type)) for field in schema]
    return pa.table(columns, schema=schema)


def shards(work: Work[Any]) -> Iterator[tuple[str, int, pa.Table, Numbers, np.random.Generator]]:
    """Yield take id, its number, its segments in order of their ids, their labels as numbers, and randomness."""
    segments = work.inputs.table("segments", ["take_id", "segment_id", "start_s", "end_s", "label_id"])
    codes = segments["label_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    takes = segments["take_id"].combine_chunks().dictionary_encode()
    place = takes.indices.to_numpy()
    first = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    bounds = dict(zip(takes.dictionary.to_pylist(), zip(first, np.r_[first[1:], len(place)], strict=True), strict=True))
    for source in work.pending:
        begin, end = bounds[source.shard]
        rng = np.random.default_rng([SEED, int(begin)])
        yield source.shard, int(begin), segments.slice(begin, end - begin), codes[begin:end], rng


def effects_of(labels: Numbers, width: int) -> NDArray[np.float32]:
    """Return (S, width): a vector of unit variance for each label, equal wherever the label occurs."""
    basis = np.random.default_rng(SEED).standard_normal((32, width), np.float32) / np.sqrt(np.float32(32))
    own = np.stack([np.random.default_rng([SEED, int(n)]).standard_normal(32, np.float32) for n in labels])
    found: NDArray[np.float32] = own @ basis
    return found


def write_motions(work: Work[TrajectoryConfig]) -> None:
    """Deliver the motions of the pending takes."""
    cfg, width = work.config, MOTIONS * DOF
    for take, _, segments, labels, rng in shards(work):
        n = segments.num_rows
        values = effects_of(labels, width) + rng.standard_normal((1, width), np.float32)
        values += rng.standard_normal((n, width), np.float32)
        same = {"source": cfg.source, "frame": cfg.frame, "scale": "metric", "coverage": 1.0, "quality": 1.0}
        columns: dict[str, Any] = {"segment_id": segments["segment_id"], "take_id": segments["take_id"]}
        columns |= {name: [value] * n for name, value in {**same, "max_gap_s": 0.0}.items()}
        columns["motions"] = pa.FixedSizeListArray.from_arrays(pa.array((METRES * values).ravel()), width)
        work.sink.shard(take, pa.table(columns, schema=motions_schema()), [], n)


def write_features(work: Work[FeatureConfig]) -> None:
    """Deliver the features of the pending takes, as wide as those of the configured encoder, or as released ones."""
    cfg = work.config
    width, tokens = feature_shape(cfg)
    is_released = cfg.source == "released"
    schema = released_features_schema(width) if is_released else features_schema(width * tokens, tokens)
    for take, _, segments, labels, rng in shards(work):
        n = segments.num_rows
        values = LABEL_SHARE * effects_of(labels, width * tokens)
        values += TAKE_SHARE * rng.standard_normal((1, width * tokens), np.float32)
        values += NOISE * rng.standard_normal(values.shape, np.float32)
        times_s = np.linspace(segments["start_s"].to_numpy(), segments["end_s"].to_numpy(), cfg.n_frames, axis=1)
        offsets = pa.array(np.arange(0, times_s.size + 1, cfg.n_frames, dtype=np.int32))
        columns = {
            "segment_id": segments["segment_id"],
            "take_id": segments["take_id"],
            "encoder": ["rehearsal"] * n,
            "frame_times_s": pa.ListArray.from_arrays(offsets, pa.array(times_s.ravel())),
            "overhang_s": pa.array(np.zeros(n)),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float16).ravel()), width * tokens),
        }
        work.sink.shard(take, pa.table({name: columns[name] for name in schema.names}, schema=schema), [], n)
