"""The figures by which features of two entries are compared: they see what is there and what is not."""

import numpy as np
import pytest

from schemas.checks import GeometryConfig, LeakConfig
from schemas.config import IngestConfig
from schemas.world import tiny_world
from trajpilot_core.arrays import Array
from trajpilot_core.simworld.feature_space import world_tables
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.studies.latents_agreement import SAME_TAKE, SegmentFacts, readings, segment_facts

CONFIG = tiny_world().replace(
    entry="latents", broken="none", train_takes=24, test_takes=10, takes_per_capture=2, segments=14
)


@pytest.fixture(scope="module")
def facts() -> SegmentFacts:
    world = sample_world(CONFIG)
    return segment_facts(world, world_tables(world, IngestConfig(central_share=0.6)))


def found(features: Array, facts: SegmentFacts) -> dict[str, float]:
    return {one.name: one.value for one in readings(features, facts, LeakConfig(), GeometryConfig(far_steps=3))}


def one_hot(codes: Array) -> Array:
    return np.eye(int(codes.max()) + 1)[codes]


def noise(facts: SegmentFacts) -> Array:
    return np.random.default_rng(1).normal(size=(len(facts.ids), 8))


def test_facts_are_those_of_the_tables(facts: SegmentFacts) -> None:
    world = sample_world(CONFIG)
    segments = world_tables(world, IngestConfig(central_share=0.6)).segments
    label_of = dict(zip(segments["segment_id"].to_pylist(), segments["label_id"].to_pylist(), strict=True))
    assert sorted(facts.ids) == sorted(label_of)
    assert [world.labels[code].label_id for code in facts.targets["label"]] == [label_of[name] for name in facts.ids]
    assert len(np.unique(facts.take[facts.is_test])) == CONFIG.test_takes


def test_features_that_are_the_label_are_read_as_such_and_tell_no_take(facts: SegmentFacts) -> None:
    said = found(10 * one_hot(facts.targets["label"]), facts)
    assert said["label"] > 95
    assert said["task and position"] > 95
    assert said["label of the nearest segment"] > 95
    assert said["take"] < 40
    assert said["distance: other_take_same_action"] < 0.05


def test_features_that_are_the_take_are_read_as_such_and_tell_no_label(facts: SegmentFacts) -> None:
    said = found(one_hot(facts.take).astype(float), facts)
    assert said["take"] == 100
    assert said["label"] < 30
    assert said[f"distance: {SAME_TAKE}"] < 0.05
    assert said["distance: adjacent"] < 0.05


def test_noise_tells_nothing(facts: SegmentFacts) -> None:
    said = found(noise(facts), facts)
    assert max(said[name] for name in ("label", "take")) < 30
    assert said[f"distance: {SAME_TAKE}"] == pytest.approx(1, abs=0.1)
