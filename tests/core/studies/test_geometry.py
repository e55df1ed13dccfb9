"""Kinds of pairs of segments against plain loops, and the order of their distances with and without rooms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from leaks_fixture import WORLD, copy_of, tables_of_world, untrained_of
from planning_world import Memory

from schemas.checks import GeometryConfig
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.studies.claims.worlds import geometry

CONFIG = GeometryConfig()
SMALL = WORLD.replace(train_takes=24, test_takes=12)


def corpus(**knobs: float) -> Memory:
    drawn = sample_world(SMALL.replace(**knobs))
    memory = tables_of_world(drawn)
    untrained_of(drawn, memory)
    return memory


@pytest.fixture(scope="module")
def memory() -> Memory:
    return corpus()


def means(memory: Memory) -> list[float]:
    """The mean distance of every kind of pair."""
    segments = geometry.scored_segments(memory)
    far = geometry.distances(segments.features, segments.features).numpy()
    rows = np.arange(len(segments.take))
    return [float(far[geometry.pairs_of(segments, rows, kind, CONFIG)].mean()) for kind in geometry.KINDS]


def kind_of(first: dict[str, object], second: dict[str, object], is_one_room: bool) -> str | None:
    """Which kind a pair of segments is, in plain words."""
    own = first["take_id"] == second["take_id"]
    far = int(str(second["position"])) - int(str(first["position"]))
    if own and far == 1 and first["run"] == second["run"]:
        return "adjacent"
    if own and far >= CONFIG.far_steps and first["label_id"] != second["label_id"]:
        return "same_take_far"
    if is_one_room:
        return None
    return "other_take_same_action" if first["label_id"] == second["label_id"] else "random"


def test_pairs_are_those_of_plain_loops(memory: Memory) -> None:
    segments = geometry.scored_segments(memory)
    rows = {row["segment_id"]: row for row in memory.table("segments").to_pylist()}
    takes = {row["take_id"]: row for row in memory.table("takes").to_pylist()}
    mine = [rows[name] for name in segments.ids]
    assert {takes[row["take_id"]]["split"] for row in mine} == {"test"}
    rooms = [takes[row["take_id"]]["capture"] for row in mine]
    every = np.arange(len(mine))
    found = {kind: geometry.pairs_of(segments, every, kind, CONFIG) for kind in geometry.KINDS}
    for i, one in enumerate(mine):
        for j, two in enumerate(mine):
            kinds = [kind for kind in geometry.KINDS if found[kind][i, j]]
            wanted = kind_of(one, two, rooms[i] == rooms[j])
            assert kinds == ([] if wanted is None else [wanted])


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


def test_rooms_make_the_order_of_the_paper_and_without_rooms_its_middle_swaps(memory: Memory) -> None:
    with_rooms = means(memory)
    assert with_rooms == sorted(with_rooms)
    _, far, same_action, random = means(corpus(scene=0.0))
    assert same_action < far < random


def test_features_are_standardised_on_training_takes_alone(memory: Memory) -> None:
    before = geometry.scored_segments(memory).features
    doubled = copy_of(memory)
    split = {row["take_id"]: row["split"] for row in memory.table("takes").to_pylist()}
    rows = memory.table("features").to_pylist()
    for row in rows:
        if split[row["take_id"]] == "dev":
            row["vector"] = [2 * value for value in row["vector"]]
    doubled.tables["features"] = memory.table("features").from_pylist(rows, schema=memory.table("features").schema)
    assert torch.equal(geometry.scored_segments(doubled).features, before)


def test_the_distance_is_the_mean_absolute_difference() -> None:
    first, second = torch.tensor([[0.0, 1.0], [2.0, -2.0]]), torch.tensor([[1.0, 1.0]])
    assert geometry.distances(first, second).tolist() == [[0.5], [2.0]]
