"""A simulated world in the tables that training and evaluation read, at demo size and without video or encoder.

Features are the latent look and the object's place, averaged over an interval, mixed by a fixed matrix, with noise; the
head motion is the one that the files would hold. What can be done with them is bounded by the exact ceilings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from planning_world import Memory

from schemas.config import AlignmentConfig, EvaluationConfig, IngestConfig, PredictorConfig, ScorerConfig, TrainConfig
from schemas.observation import features_schema, text_bank_schema
from schemas.world import WorldConfig, demo_world
from trajpilot_core.encoders.bag_of_words import BagOfWords
from trajpilot_core.readers.egoexo4d_takes import take_id
from trajpilot_core.simworld.appearance import looks_at
from trajpilot_core.simworld.drawn import by_take, describe_world, drawn_tables
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.truth import World
from trajpilot_core.stages import alignment, evaluation, predictor, scorer
from trajpilot_core.stages.drawn import controls_table
from trajpilot_core.stages.stage import Runtime, Work

WIDTH, TEXT, FRAMES = 32, 48, 4
TRAIN = TrainConfig(epochs=14, patience=None, batch=64, lr=3e-3, precision="fp32", checkpoint_every=99)
ALIGNMENT = AlignmentConfig(width=32, layers=1, heads=2, hidden=64, folds=1, seeds=(0,), train=TRAIN)
PREDICTOR = PredictorConfig(width=48, layers=1, heads=4, hidden=96, queries=2, dropout=0.0, train=TRAIN)
SCORER = ScorerConfig(
    candidates=12, prefetch=16, width=32, layers=1, heads=2, ablations=(), train=TRAIN.replace(epochs=4)
)
EVALUATION = EvaluationConfig(bootstrap=200, shuffles=1, headroom_pools=(1,))
STAGES = (
    (alignment.STAGE, ALIGNMENT), (predictor.STAGE, PREDICTOR), (scorer.STAGE, SCORER), (evaluation.STAGE, EVALUATION),
)  # fmt: skip


def small_world(**changes: Any) -> WorldConfig:
    """Return the demo world, entering by features, without broken takes; `changes` are further knobs."""
    plain = {
        "door": "features", "broken": "none", "broken_share": 0.0, "tasks": 2, "positions": 6, "alternatives": 2,
        "train_takes": 60, "test_takes": 24,
    }  # fmt: skip
    return demo_world().replace(**{**plain, **changes})


def corpus(config: WorldConfig, max_horizon: int = 4) -> tuple[World, Memory]:
    """Return a world and its tables, features included."""
    world = sample_world(config)
    drawn = drawn_tables(world, IngestConfig(max_horizon=max_horizon, central_share=0.6))
    memory = Memory()
    for name, table in drawn._asdict().items():
        memory.table(name, table)
    memory.table("controls", controls_table(world, drawn.segments))
    memory.table("features", features_table(*features_of(world, drawn.segments)))
    labels, texts = (drawn.labels[name].to_pylist() for name in ("label_id", "label"))
    encoder = BagOfWords(TEXT)
    columns = {"label_id": labels, "label": texts, "encoder": [encoder.digest] * len(labels)}
    memory.table("text_bank", vectors_table(columns, encoder.embed(texts), text_bank_schema(TEXT)))
    return world, memory


def features_of(world: World, segments: pa.Table) -> tuple[list[str], NDArray[np.float32]]:
    """Return the segment ids and their features (S, WIDTH)."""
    truth = {take_id(take.uid): take for take in world.takes}
    rng = np.random.default_rng(7)
    mix = rng.normal(size=(6 + world.config.places, WIDTH))
    ids, parts = [], []
    for name, (members, start_s, end_s) in by_take(segments).items():
        take = truth[name]
        times = np.linspace(start_s, end_s - 1 / world.config.fps, FRAMES, axis=1)
        looks, steps = looks_at(take, times.ravel())
        places = np.eye(world.config.places)[[take.segments[step].place for step in steps]]
        seen = np.concatenate([looks, 4.0 * places], axis=1).reshape(len(members), FRAMES, -1).mean(axis=1)
        ids += members
        parts.append(seen @ mix + 0.5 * rng.normal(size=(len(members), WIDTH)))
    return ids, np.concatenate(parts).astype(np.float32)


def features_table(segment_ids: list[str], values: NDArray[np.float32]) -> pa.Table:
    """Return a features table of (S, D) values."""
    columns = {
        "segment_id": segment_ids, "take_id": [name.rsplit(":", 1)[0] for name in segment_ids],
        "encoder": ["none"] * len(segment_ids), "frame_times_s": [[0.0]] * len(segment_ids),
    }  # fmt: skip
    return vectors_table(columns, values.astype(np.float16), features_schema(values.shape[1], 1))


def vectors_table(columns: Mapping[str, Any], values: NDArray[Any], schema: pa.Schema) -> pa.Table:
    """Return a table with one fixed-size vector column, the last of the schema."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.table({**columns, schema.names[-1]: flat}, schema=schema)


def train_and_evaluate(config: WorldConfig, memory: Memory, folder: Path, stages: Any = STAGES) -> None:
    """Run the learning stages and the evaluation on the tables, as the executor would."""
    describe_world(config, folder / "data")
    for stage, own in stages:
        runtime = Runtime(data_root=str(folder / "data"), device="cpu", workers=1, scratch=folder / stage.name)
        stage.run(Work(inputs=memory, config=own, pending=(), sink=memory, runtime=runtime))
