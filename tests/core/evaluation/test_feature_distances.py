"""Diagnostics of features: pairs are of their kind, distances and shares equal those of plain loops."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from drawn_tables import WORLD, tables_of_world
from planning_world import Memory, run_stage

from schemas.arrow import rows_of
from schemas.config import DiagnosticsConfig
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.evaluation.feature_distances import (
    ADJACENT,
    FAR,
    KINDS,
    RANDOM,
    SAME_ACTION,
    PooledFeatures,
    SegmentPlaces,
    drawn_pairs,
    falls,
    pair_distances,
)
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.stages.diagnostics import STAGE, places_of

CFG = DiagnosticsConfig(train_windows=40, bootstrap=200)


@pytest.fixture(scope="module")
def memory() -> Memory:
    return tables_of_world(sample_world(WORLD.replace(train_takes=24, test_takes=12)))


@pytest.fixture(scope="module")
def measured(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    run_stage(STAGE, CFG, memory, tmp_path_factory.mktemp("scratch"))
    return memory


def located(memory: Memory) -> tuple[SegmentPlaces, dict[str, np.ndarray], list[dict[str, object]]]:
    """Places of the segments, rows of each split, and the same as records."""
    ids = memory.table("features")["segment_id"].combine_chunks()
    places, split = places_of(memory, ids)
    takes = {row["take_id"]: row for row in memory.table("takes").to_pylist()}
    segments = {row["segment_id"]: row for row in memory.table("segments").to_pylist()}
    rows = [segments[name] | {"capture": takes[segments[name]["take_id"]]["capture"]} for name in ids.to_pylist()]
    return places, {name: np.flatnonzero(split == name) for name in ("test", "train")}, rows


def kinds(one: dict[str, object], two: dict[str, object]) -> set[str]:
    """Kinds of pair that two segments are."""
    far = int(str(two["position"])) - int(str(one["position"]))
    if one["take_id"] == two["take_id"]:
        near = {ADJACENT} if far == 1 and one["run"] == two["run"] else set()
        return near | ({FAR} if far >= CFG.far_steps and one["label_id"] != two["label_id"] else set())
    if one["capture"] == two["capture"]:
        return set()
    return {SAME_ACTION} if one["label_id"] == two["label_id"] else {RANDOM}


def test_every_sampled_pair_is_of_its_kind_within_its_split_and_who_has_a_partner_finds_one(memory: Memory) -> None:
    places, splits, rows = located(memory)
    for name, mine in splits.items():
        pairs = drawn_pairs(places, mine, CFG, np.random.default_rng(0))
        for kind in KINDS:
            first, second = pairs[kind]
            assert len(first) > 20, (name, kind)
            assert len(set(first.tolist())) == len(first), "a segment has one pair of a kind"
            assert {*first.tolist(), *second.tolist()} <= set(mine.tolist())
            assert all(kind in kinds(rows[a], rows[b]) for a, b in zip(first, second, strict=True))
            if name == "test":
                wanted = {a for a in mine if any(a != b and kind in kinds(rows[a], rows[b]) for b in mine)}
                assert set(first) == wanted


def test_no_more_segments_are_sampled_than_requested_and_the_seed_decides_which(memory: Memory) -> None:
    places, splits, _ = located(memory)
    few = CFG.replace(pairs=30)
    drawn = [drawn_pairs(places, splits["train"], few, np.random.default_rng(seed))[RANDOM] for seed in (0, 0, 1)]
    assert len(drawn[0][0]) <= 30
    assert all(np.array_equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert not np.array_equal(drawn[0][0], drawn[2][0])


def test_distances_are_those_of_plain_loops(memory: Memory, measured: Memory) -> None:
    places, splits, _ = located(memory)
    vectors = memory.vectors("features", "vector").astype(np.float64)
    rows = {
        (row.split, row.pairs, row.quantity): row for row in rows_of(PairDistance, measured.table("pair_distances"))
    }
    for at, name in enumerate(("test", "train")):
        pairs = drawn_pairs(places, splits[name], CFG, np.random.default_rng((CFG.seed, at)))
        for kind in KINDS:
            one, two = (vectors[part] for part in pairs[kind])
            cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(one, two, strict=True)]
            wanted = {"mean_l1": np.abs(one - two).mean(), "mean_cosine": np.mean(cosines)}
            for quantity, value in wanted.items():
                assert rows[name, kind, quantity].value == pytest.approx(value, rel=1e-3)
                assert rows[name, kind, quantity].low <= value <= rows[name, kind, quantity].high


def test_a_shared_room_makes_pairs_of_a_take_closer_and_equal_features_do_not(memory: Memory) -> None:
    """The measure sees a planted offset of every capture, and nothing where all features are noise."""
    places, splits, _ = located(memory)
    noise = np.random.default_rng(0).normal(size=(len(places.take), 24)).astype(np.float32)
    rooms = np.random.default_rng(1).normal(size=(places.capture.max() + 1, 24)).astype(np.float32)[places.capture]
    values = []
    for vectors in (noise, noise + 3 * rooms):
        features = PooledFeatures(vectors, 1)
        found = pair_distances(features, places, {"train": splits["train"]}, CFG)
        values.append({row.pairs: row.value for row in found if row.quantity == "mean_l1"})
    assert values[0][ADJACENT] == pytest.approx(values[0][RANDOM], rel=0.1)
    assert values[1][ADJACENT] < 0.7 * values[1][RANDOM]


def test_shares_are_those_of_plain_loops_on_all_test_windows(memory: Memory, measured: Memory) -> None:
    features = memory.table("features")
    vector = dict(zip(features["segment_id"].to_pylist(), memory.vectors("features", "vector"), strict=True))
    wanted: dict[int, list[bool]] = {}
    for row in memory.table("windows").to_pylist():
        if row["split"] == "test" and all(name in vector for name in row["segment_ids"]):
            steps = [vector[name].astype(np.float32) for name in row["segment_ids"]]
            far = [float(np.abs(step - steps[-1]).mean()) for step in steps[1:-1]]
            wanted.setdefault(row["horizon"], []).append(all(a > b for a, b in pairwise(far)))
    shares = rows_of(ProgressShare, measured.table("progress_shares"))
    found = {row.horizon: row for row in shares if row.split == "test"}
    assert {h: (row.n_windows, row.share) for h, row in found.items()} == {
        h: (len(values), pytest.approx(100 * sum(values) / len(values))) for h, values in wanted.items()
    }
    assert [(row.horizon, row.share, row.chance) for row in shares if row.horizon == 3] == [(3, 100.0, 100.0)] * 2
    assert {row.n_windows for row in shares if row.split == "train"} == {40}


def test_random_orders_approach_the_goal_as_often_as_chance_and_a_straight_way_always() -> None:
    generator = np.random.default_rng(0)
    assert falls(generator.normal(size=(20_000, 3))).mean() == pytest.approx(1 / 6, abs=0.01)
    assert falls(np.array([[3.0, 2.0, 1.0], [3.0, 3.0, 1.0]])).tolist() == [True, False]


def test_tokens_are_averaged(memory: Memory) -> None:
    vectors = memory.vectors("features", "vector").astype(np.float32)
    features = PooledFeatures(vectors, 4)
    assert features.of(np.array([[0, 1]])).shape == (1, 2, vectors.shape[1] // 4)
    assert features.of(np.array([2]))[0] == pytest.approx(vectors[2].reshape(4, -1).mean(axis=0))


def test_a_corpus_without_windows_or_test_takes_gives_empty_tables(memory: Memory, tmp_path: Path) -> None:
    """Shots of basketball have no middle step, a corpus of one split has no pairs in the other."""
    bare = Memory(tables=dict(memory.tables))
    bare.tables["windows"] = bare.tables["windows"].slice(0, 0)
    takes = bare.tables["takes"]
    at = takes.schema.get_field_index("split")
    bare.tables["takes"] = takes.set_column(at, "split", pa.array(["train"] * takes.num_rows))
    run_stage(STAGE, CFG, bare, tmp_path)
    assert {row.split for row in rows_of(PairDistance, bare.table("pair_distances"))} == {"train"}
    assert bare.table("progress_shares").num_rows == 0
