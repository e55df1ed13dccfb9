"""A small simulated world that enters by features, run through every training stage: what the leak checks look at."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from planning_world import Memory, run_stage

from schemas.checks import LeakConfig
from schemas.config import (
    AlignmentConfig,
    EvaluationConfig,
    IngestConfig,
    PredictorConfig,
    ScorerConfig,
    TextConfig,
    TrainConfig,
)
from schemas.observation import features_schema
from schemas.results import LeakCheck
from schemas.world import WorldConfig, tiny_world
from trajpilot_core.claims.leaks import leak_checks
from trajpilot_core.claims.material import Material, Provenance, load_material
from trajpilot_core.readers.egoexo4d_takes import take_id
from trajpilot_core.simworld.drawn import by_take, drawn_tables
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.truth import World
from trajpilot_core.stages import alignment, evaluation, predictor, scorer, text_bank
from trajpilot_core.stages.drawn import controls_table

WORLD = tiny_world().replace(
    name="leaks", tasks=2, positions=6, alternatives=2, intents=2, operators=4, primitives=4, kappa=2.0,
    train_takes=80, test_takes=16, takes_per_capture=2, segments=10, broken="none", door="features",
)  # fmt: skip
INGEST = IngestConfig(central_share=0.6, dev_share=0.2, max_horizon=4)
CHECKS = LeakConfig(permutations=1199, most_palettes=24)
FEATURE_WIDTH = 24
TRAIN = TrainConfig(epochs=3, patience=None, batch=64, lr=3e-3, precision="fp32")
ENTRIES = ("e_tau", "predictors", "scorers", "predictions", "alignment_curves", "predictor_curves", "scorer_curves")


def tables_of_world(world: World) -> Memory:
    """Tables, exact head motion, and features that are a room, a projection of the look, and noise."""
    memory = Memory()
    tables = drawn_tables(world, INGEST)
    for name, table in zip(tables._fields, tables, strict=True):
        memory.table(name, table)
    memory.table("controls", controls_table(world, tables.segments))
    memory.table("features", features_table(world, tables.segments))
    train = sorted(row["take_id"] for row in tables.takes.to_pylist() if row["split"] == "train")
    memory.table("folds", pa.table({"take_id": train, "fold": [i % 4 if i % 4 < 2 else -1 for i in range(len(train))]}))
    return memory


def features_table(world: World, segments: pa.Table) -> pa.Table:
    """Features (S, FEATURE_WIDTH) of the latent looks."""
    rng = np.random.default_rng(world.config.seed)
    show, rooms = rng.normal(size=(6, FEATURE_WIDTH)), rng.normal(size=(len(world.captures), FEATURE_WIDTH))
    truth = {take_id(take.uid): take for take in world.takes}
    ids, takes, vectors, times = [], [], [], []
    for take, (segment_ids, start_s, end_s) in by_take(segments).items():
        looks = np.stack([step.look for step in truth[take].segments])
        room = world.config.scene * rooms[truth[take].capture]
        vectors.append(looks @ show + 8 * room + rng.normal(size=(len(looks), FEATURE_WIDTH)))
        ids += segment_ids
        takes += [take] * len(segment_ids)
        times += [[a, b - 0.05] for a, b in zip(start_s.tolist(), end_s.tolist(), strict=True)]
    flat = pa.array(np.concatenate(vectors).astype(np.float16).ravel(), pa.float16())
    columns = {
        "segment_id": ids, "take_id": takes, "encoder": ["projection"] * len(ids), "frame_times_s": times,
        "vector": pa.FixedSizeListArray.from_arrays(flat, FEATURE_WIDTH),
    }  # fmt: skip
    return pa.table(columns, schema=features_schema(FEATURE_WIDTH))


@lru_cache(maxsize=1)
def world() -> World:
    return sample_world(WORLD)


def trained(scratch: Path) -> Memory:
    """The world's tables and every model, curve and prediction of a short training."""
    memory = tables_of_world(world())
    predictor_cfg = PredictorConfig(width=16, layers=1, heads=2, hidden=16, queries=2, train=TRAIN)
    scorer_cfg = ScorerConfig(candidates=6, prefetch=9, width=16, heads=2, layers=1, dropout=0.0, train=TRAIN)
    run_stage(text_bank.STAGE, TextConfig(encoder="bag_of_words", bag_width=16), memory, scratch)
    aligned = AlignmentConfig(
        width=16, layers=1, heads=2, hidden=16, folds=2, fold_share=0.25, seeds=(0,), train=TRAIN
    )  # fmt: skip
    run_stage(alignment.STAGE, aligned, memory, scratch)
    run_stage(predictor.STAGE, predictor_cfg, memory, scratch)
    run_stage(scorer.STAGE, scorer_cfg, memory, scratch)
    evaluated = EvaluationConfig(bootstrap=100, shuffles=1, headroom_pools=(1,))
    run_stage(evaluation.STAGE, evaluated, memory, scratch)
    return memory


def copy_of(memory: Memory) -> Memory:
    """A memory whose entries can be replaced; tensors of the models are copied too."""
    models = {name: ({k: v.copy() for k, v in t.items()}, dict(about)) for name, (t, about) in memory.models.items()}
    return replace(memory, tables=dict(memory.tables), models=models)


def provenance(stored: WorldConfig = WORLD, **changes: object) -> Provenance:
    told = {"stored": stored, "dated": stored, "fixed_on": "2026-11-21", "computed_on": "2026-11-22"} | changes
    return Provenance(**told)  # type: ignore[arg-type]


def material_of(memory: Memory, drawn: World | None = None, without: tuple[str, ...] = ()) -> Material:
    drawn = world() if drawn is None else drawn
    return load_material(memory, drawn, provenance(drawn.config), CHECKS, without)


def untrained_of(drawn: World, memory: Memory | None = None) -> Material:
    """Material of the tables alone, with a text bank; no models."""
    memory = tables_of_world(drawn) if memory is None else memory
    if "text_bank" not in memory.tables:
        run_stage(text_bank.STAGE, TextConfig(encoder="bag_of_words", bag_width=16), memory, Path())
    return load_material(memory, drawn, provenance(drawn.config), CHECKS, ENTRIES)


def all_checks(memory: Memory) -> dict[str, LeakCheck]:
    return {check.check: check for check in leak_checks(memory, world(), provenance(), CHECKS)}
