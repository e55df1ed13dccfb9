"""The entries of a simulated world by frames and by latents: two stages in place of ingest, trajectories and features.

The data root holds `world.json` alone. Source: docs/decisions/claims.md, docs/decisions/latents.md.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import LATENTS
from schemas.base import fingerprint
from schemas.config import FeatureConfig, IngestConfig
from schemas.observation import HeadMotions, features_schema, motions_schema
from schemas.world import LatentMapConfig, WorldConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.needs import Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes, feature_shape
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import WorldError
from trajpilot_core.stages import features, ingest

if TYPE_CHECKING:
    from trajpilot_core.encoders.video.embed import Embedder
    from trajpilot_core.simworld.world.truth import TakeTruth, World

VERSION = 1
FEATURE_COPIES, SEGMENT = 11, 10_000
"""Of the features that a map makes: copies at the peak, and bytes of a segment's ids, times and truth. Measured: 10.6,
and 9,600 with 64 frames (docs/decisions/needs.md)."""
WORLD_FILE = "world.json"
Spans = tuple[NDArray[np.float64], NDArray[np.float64]]
"""(S,) starts and (S,) ends of segments, seconds."""


def world_of(data_root: str) -> WorldConfig:
    """Read the configuration of the world that lies at a data root.

    Raises:
        WorldError: there is no world that enters by features.
    """
    path = Path(data_root) / WORLD_FILE
    try:
        config = WorldConfig.model_validate(json.loads(path.read_text(encoding="utf-8"))["config"])
    except (OSError, KeyError, ValueError) as error:
        raise WorldError(f"{path} does not describe a simulated world: {error}; write the world again") from error
    if not config.enters_by_features():
        raise WorldError(f"{path} is a world of the entry {config.entry!r}; run the ordinary stages on it")
    return config


def table_sources(inputs: Inputs, config: IngestConfig, data_root: str) -> list[Source]:
    """Name the file that describes the world."""
    return [Source("", files=(WORLD_FILE,))]


def draw_tables(work: Work[IngestConfig]) -> None:
    """Write takes, segments, labels and their classes, windows and motions."""
    from trajpilot_core.corpora.records.closed_vocabulary import label_classes
    from trajpilot_core.corpora.records.contents import contents_of
    from trajpilot_core.corpora.records.corpus_statistics import scenario_labels_of
    from trajpilot_core.simworld.feature_space import world_tables
    from trajpilot_core.simworld.sample import sample_world

    world = sample_world(world_of(work.runtime.data_root))
    tables = world_tables(world, work.config)
    for name, table in zip(tables._fields, tables, strict=True):
        work.sink.table(name, table)
    work.sink.table("take_contents", contents_of(tables.takes, tables.segments, tables.windows))
    classes, _ = label_classes(tables.labels, spec_of(work.config.corpus).n_classes(work.config))
    work.sink.table("label_classes", classes)
    work.sink.table("scenario_labels", scenario_labels_of(tables, None))
    work.sink.table("motions", motions_table(world, tables.segments))
    work.sink.count(tables.segments.num_rows, tables.segments.num_rows)


def motions_table(world: "World", segments: pa.Table) -> pa.Table:
    """Return the motions of all segments, exact and without gaps."""
    from trajpilot_core.corpora.egoexo4d.takes import take_id
    from trajpilot_core.simworld.feature_space import by_take, exact_motions

    truth = {take_id(take.uid): take for take in world.takes}
    ids, takes, motions = [], [], []
    for take, (segment_ids, start_s, end_s) in by_take(segments).items():
        ids += segment_ids
        takes += [take] * len(segment_ids)
        motions.append(exact_motions(world, truth[take], start_s, end_s).reshape(len(segment_ids), -1))
    flat = np.concatenate(motions).astype(np.float32)
    exact = {"source": "aria", "frame": "camera", "scale": "metric", "coverage": 1.0, "quality": 1.0, "max_gap_s": 0.0}
    columns: dict[str, object] = {"segment_id": ids, "take_id": takes}
    columns |= {name: [value] * len(ids) for name, value in exact.items()}
    assert set(columns) == set(HeadMotions.model_fields)
    columns["motions"] = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
    return pa.table(columns, schema=motions_schema())


def feature_sources(inputs: Inputs, config: FeatureConfig, data_root: str) -> list[Source]:
    """State what a still head can show; worlds that differ in motion alone have equal features and one key."""
    from trajpilot_core.simworld.feature_space import still_world

    still = still_world(world_of(data_root), config.size_px)
    facts: dict[str, JsonValue] = {"still": still.digest()}
    return [Source("", facts=facts | ({"map": map_digest()} if still.entry == "latents" else {}))]


def map_digest() -> str:
    """Return the digest of the map from latents to features."""
    from trajpilot_core.simworld import latents

    return fingerprint({"version": latents.VERSION, "map": LatentMapConfig().content()})


def feature_needs(sizes: CorpusSizes, cfg: FeatureConfig, machine: NeedsMachine) -> Needs:
    """State what encoding the frames needs; of a world by latents, whose features are mapped, no encoder and no GPU."""
    if sizes.data_root is None or world_of(sizes.data_root).entry != "latents":
        return features.needs(sizes, cfg, machine)
    width, tokens = feature_shape(cfg)
    vectors = 2 * sizes.segments * width * tokens
    return Needs(Need(features.TORCH + FEATURE_COPIES * vectors + SEGMENT * sizes.segments), disk=Need(vectors))


class FeatureMaker(NamedTuple):
    """What makes the features of a take, and of which kind they are."""

    width: int
    """Numbers per segment."""
    tokens: int
    digest: str
    make: Callable[["TakeTruth", Spans], tuple[list[list[float]], NDArray[np.float16]]]
    """(take, spans of its segments) -> the (S, T) frame times and the (S, width) vectors."""


def draw_features(work: Work[FeatureConfig]) -> None:
    """Draw the frames of every segment from a still head and encode them; by latents: map what they would show."""
    from trajpilot_core.encoders.video.embed import load_embedder, torch_threads
    from trajpilot_core.simworld.feature_space import still_world
    from trajpilot_core.simworld.sample import sample_world

    cfg = work.config
    world = sample_world(still_world(world_of(work.runtime.data_root), cfg.size_px))
    if world.config.entry == "latents":
        write_features(work, world, latent_maker(world, cfg))
        return
    embedder = load_embedder(cfg, work.runtime.device, work.runtime.scratch)
    drawn = partial(still_features, world, embedder)
    with torch_threads(cfg):
        write_features(work, world, FeatureMaker(embedder.width, embedder.tokens, embedder.digest, drawn))


def write_features(work: Work[FeatureConfig], world: "World", maker: FeatureMaker) -> None:
    """Make the features of every take and write their table."""
    from trajpilot_core.corpora.egoexo4d.takes import take_id
    from trajpilot_core.simworld.feature_space import by_take

    truth = {take_id(take.uid): take for take in world.takes}
    ids, takes, times_s, vectors = [], [], [], []
    groups = by_take(work.inputs.table("segments"))
    for number, (take, (segment_ids, start_s, end_s)) in enumerate(groups.items(), start=1):
        drawn_s, drawn = maker.make(truth[take], (start_s, end_s))
        ids += segment_ids
        takes += [take] * len(segment_ids)
        times_s += drawn_s
        vectors.append(drawn)
        work.runtime.progress(number, len(groups), take)
    schema = features_schema(maker.width, maker.tokens)
    flat = pa.array(np.concatenate(vectors).ravel(), pa.float16())
    columns = {
        "segment_id": ids,
        "take_id": takes,
        "encoder": [maker.digest] * len(ids),
        "frame_times_s": times_s,
        "vector": pa.FixedSizeListArray.from_arrays(flat, maker.width),
    }
    work.sink.table("features", pa.table({name: columns[name] for name in schema.names}, schema=schema))
    work.sink.count(len(ids), len(ids))


def still_features(
    world: "World", embedder: "Embedder", take: "TakeTruth", span_s: Spans
) -> tuple[list[list[float]], NDArray[np.float16]]:
    """Return the (S, T) frame times and the (S, width) vectors of one take's segments, given their spans."""
    from trajpilot_core.simworld.feature_space import still_frames

    times_s = times_of(world, span_s, embedder.config)
    frames = still_frames(world, take, times_s.ravel())
    return times_s.tolist(), embedder.embed(frames.reshape(*times_s.shape, *frames.shape[1:]))


def latent_maker(world: "World", cfg: FeatureConfig) -> FeatureMaker:
    """Return the map of a world by latents to features of the shape that the encoder of `cfg` gives."""
    from trajpilot_core.simworld.latents import latent_features, latent_map

    width, tokens = feature_shape(cfg)
    made = latent_map(LatentMapConfig(), world.config.places, width)

    def make(take: "TakeTruth", span_s: Spans) -> tuple[list[list[float]], NDArray[np.float16]]:
        """Return the (S, T) frame times and the (S, width) vectors."""
        times_s = times_of(world, span_s, cfg)
        return times_s.tolist(), latent_features(world, take, times_s, tokens, made)

    return FeatureMaker(width * tokens, tokens, f"{LATENTS}:{map_digest()}", make)


def times_of(world: "World", span_s: Spans, cfg: FeatureConfig) -> NDArray[np.float64]:
    """Return the (S, T) times of the frames of segments, seconds, given their spans."""
    from trajpilot_core.video.decode import frame_times_s

    return np.stack([frame_times_s(a, b, world.config.fps, cfg.n_frames) for a, b in zip(*span_s, strict=True)])


TABLES = Stage(
    name="feature_space",
    reads=(),
    writes=("takes", "segments", "labels", "label_classes", "scenario_labels", "windows", "take_contents", "motions"),
    config=IngestConfig,
    run=draw_tables,
    version=VERSION,
    summary="draw the tables and the head motion of a simulated world, without files",
    sources=table_sources,
    needs=ingest.needs,
)
FEATURES = Stage(
    name="feature_space_features",
    reads=("segments",),
    writes=("features",),
    config=FeatureConfig,
    run=draw_features,
    version=VERSION,
    summary="encode frames that a still head sees in a simulated world, or map its latents",
    sources=feature_sources,
    needs=feature_needs,
    uses_gpu=True,
)
