"""Scene geometry: pairs and sums against plain loops, and the order that a room makes and its absence breaks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from leaks_fixture import WORLD, copy_of, tables_of_world, untrained_of
from planning_world import Memory

from schemas.checks import GeometryConfig
from schemas.results import GeometryScore
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.studies.claims import geometry

CONFIG = GeometryConfig(rows=37)
SMALL = WORLD.replace(train_takes=24, test_takes=12)


def corpus(**knobs: float) -> Memory:
    drawn = sample_world(SMALL.replace(**knobs))
    memory = tables_of_world(drawn)
    untrained_of(drawn, memory)
    return memory


@pytest.fixture(scope="module")
def memory() -> Memory:
    return corpus()


def means(scores: list[GeometryScore]) -> list[float]:
    return [
        sum(s.distance for s in scores if s.kind == kind) / sum(s.n for s in scores if s.kind == kind)
        for kind in geometry.KINDS
    ]


def by_loops(memory: Memory) -> dict[tuple[str, str], tuple[float, int]]:
    """The same sums, pair by pair."""
    data = load_planning_data(memory, "test")
    train = data.take_split[data.segment_take] == 0
    mean, scale = feature_scales(data.features[train])
    looks = ((data.features.float().mean(1) - mean) / scale).numpy()
    place = {row["segment_id"]: row for row in memory.table("segments").to_pylist()}
    test = [i for i, t in enumerate(data.segment_take.tolist()) if data.take_split[t] == 2]
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for i in test:
        for j in test:
            a, b = place[data.segment_ids[i]], place[data.segment_ids[j]]
            own = a["take_id"] == b["take_id"]
            far = b["position"] - a["position"]
            kind = None
            if own and far == 1 and a["run"] == b["run"]:
                kind = "adjacent"
            elif own and far >= CONFIG.far_steps and a["label_id"] != b["label_id"]:
                kind = "same_take_far"
            elif data.captures[data.segment_take[i]] != data.captures[data.segment_take[j]]:
                kind = "other_take_same_action" if a["label_id"] == b["label_id"] else "random"
            if kind is not None:
                total, n = found.get((a["take_id"], kind), (0.0, 0))
                found[a["take_id"], kind] = (total + float(np.abs(looks[i] - looks[j]).mean()), n + 1)
    return found


def test_sums_per_take_are_those_of_plain_loops(memory: Memory) -> None:
    wanted = by_loops(memory)
    scores = geometry.scene_geometry(memory, CONFIG)
    assert len(scores) == 12 * 4
    for score in scores:
        total, n = wanted.get((score.take_id, score.kind), (0.0, 0))
        assert score.n == n
        assert score.distance == pytest.approx(total, rel=1e-4)


def test_only_test_takes_are_scored_and_the_parts_do_not_matter(memory: Memory) -> None:
    tested = {row["take_id"] for row in memory.table("takes").to_pylist() if row["split"] == "test"}
    scores = geometry.scene_geometry(memory, CONFIG)
    assert {score.take_id for score in scores} == tested
    whole = geometry.scene_geometry(memory, CONFIG.replace(rows=10_000))
    assert [s.n for s in whole] == [s.n for s in scores]
    assert [s.distance for s in whole] == pytest.approx([s.distance for s in scores], rel=1e-5)


def test_takes_segments_and_features_are_all_that_is_read(memory: Memory) -> None:
    few = replace(copy_of(memory), tables={name: memory.table(name) for name in ("takes", "segments", "features")})
    assert geometry.scene_geometry(few, CONFIG) == geometry.scene_geometry(memory, CONFIG)


def test_temporal_tokens_are_averaged(memory: Memory) -> None:
    tokens = copy_of(memory)
    table = memory.table("features")
    tokens.tables["features"] = table.replace_schema_metadata({"tokens": "4"})
    assert geometry.pooled_features(tokens)[1].shape == (
        table.num_rows,
        geometry.pooled_features(memory)[1].shape[1] // 4,
    )


def test_takes_of_one_room_are_not_called_another_recording(memory: Memory) -> None:
    segments = geometry.scored_segments(memory)
    rows = np.arange(len(segments.take))
    for kind in ("other_take_same_action", "random"):
        first, second = np.nonzero(geometry.pairs_of(segments, rows, kind, CONFIG))
        assert (segments.capture[first] != segments.capture[second]).all()
    own = segments.capture == segments.capture[:, None]
    assert (own & (segments.take != segments.take[:, None])).any()


def test_a_lost_segment_parts_neighbours(memory: Memory) -> None:
    segments = geometry.scored_segments(memory)
    rows = np.arange(len(segments.take))
    whole = geometry.pairs_of(segments, rows, "adjacent", CONFIG)
    run = segments.run + (segments.position >= 4)
    parted = geometry.pairs_of(replace(segments, run=run), rows, "adjacent", CONFIG)
    assert whole.sum() - parted.sum() == len(set(segments.take.tolist()))


def test_rooms_make_the_order_of_the_claim_and_without_rooms_its_middle_swaps(memory: Memory) -> None:
    with_rooms = means(geometry.scene_geometry(memory, CONFIG))
    assert with_rooms == sorted(with_rooms)
    _, far, same_action, random = means(geometry.scene_geometry(corpus(scene=0.0), CONFIG))
    assert same_action < far < random


def test_features_are_standardised_on_training_takes_alone(memory: Memory) -> None:
    before = geometry.scene_geometry(memory, CONFIG)
    doubled = copy_of(memory)
    split = {row["take_id"]: row["split"] for row in memory.table("takes").to_pylist()}
    rows = memory.table("features").to_pylist()
    for row in rows:
        if split[row["take_id"]] == "dev":
            row["vector"] = [2 * value for value in row["vector"]]
    doubled.tables["features"] = memory.table("features").from_pylist(rows, schema=memory.table("features").schema)
    assert geometry.scene_geometry(doubled, CONFIG) == before


def test_the_distance_is_the_mean_absolute_difference() -> None:
    first, second = torch.tensor([[0.0, 1.0], [2.0, -2.0]]), torch.tensor([[1.0, 1.0]])
    assert geometry.distances(first, second).tolist() == [[0.5], [2.0]]
