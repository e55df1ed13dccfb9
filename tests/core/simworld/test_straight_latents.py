"""Worlds by latents in which distance is progress, and the ordinary ones, in which the same test fails."""

import numpy as np
import pytest
from pydantic import ValidationError

from schemas.latent_worlds import LatentWorldsConfig, latent_world
from schemas.world import LatentMapConfig, WorldConfig, tiny_world
from trajpilot_core.arrays import Array
from trajpilot_core.simworld.latents import latent_features, latent_map
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.procedure import straight_look_means
from trajpilot_core.simworld.world.truth import TakeTruth, World, stream

CFG = LatentWorldsConfig(train_takes=30, test_takes=3)
HALF = 4
"""Of eight positions."""


def times(take: TakeTruth) -> Array:
    """Four times within every step, away from its ends; shape (S, 4)."""
    return np.stack([np.linspace(s.start_s + 0.4, s.end_s - 0.4, 4) for s in take.segments])


def normalised(world: World, take: TakeTruth) -> Array:
    """Features of a take, (S, 96), each of mean 0 and deviation 1 over its numbers, as predictors see them."""
    made = latent_map(LatentMapConfig(), world.config.places, 96)
    found = latent_features(world, take, times(take), 1, made).astype(float)
    return np.asarray((found - found.mean(1, keepdims=True)) / found.std(1, keepdims=True))


def distance_by_steps(config: WorldConfig) -> list[float]:
    """Mean l1 of segments of a take that lie 1, 2, ... steps apart and show the same alternative."""
    world = sample_world(config)
    far: list[list[float]] = [[] for _ in range(HALF)]
    for take in world.takes:
        seen = normalised(world, take)
        lanes = [world.labels[segment.label].alternative for segment in take.segments]
        for i in range(len(seen)):
            for j in range(i + 1, min(i + 1 + HALF, len(seen))):
                if lanes[i] == lanes[j]:
                    far[j - i - 1].append(float(np.abs(seen[i] - seen[j]).mean()))
    return [float(np.mean(of_steps)) for of_steps in far]


def is_progress(distances: list[float]) -> bool:
    """Whether every step away is clearly farther; by the last one the distance is a multiple of the first."""
    return bool((np.diff(distances) > 0).all()) and distances[-1] > 1.5 * distances[0]


def test_in_a_straight_world_the_distance_is_the_progress_and_in_an_ordinary_one_it_is_not() -> None:
    assert is_progress(distance_by_steps(latent_world("straight", 7, CFG)))
    assert not is_progress(distance_by_steps(latent_world("base", 7, CFG)))


def test_a_goal_looks_as_the_last_middle_of_its_own_alternative_and_not_as_another() -> None:
    """In looks without noise; the planted case is a world whose alternatives hardly show."""

    def share(config: WorldConfig) -> float:
        world = sample_world(config)
        means = world.look_means.reshape(config.positions, config.alternatives, -1)
        hits = [
            np.linalg.norm(means[p] - means[(p + 1) % config.positions, a], axis=1).argmin() == a
            for p in range(config.positions)
            for a in range(config.alternatives)
        ]
        return float(np.mean(hits))

    straight = latent_world("straight", 7, CFG)
    assert share(straight) == 1.0
    assert share(straight.replace(label_appearance=0.0)) < 0.5
    assert share(latent_world("base", 7, CFG)) < 0.9


def test_an_intent_prefers_one_alternative_everywhere() -> None:
    preferred = sample_world(latent_world("straight", 7, CFG)).preferred
    assert (preferred == preferred[:, :1, :1]).all()
    assert len(set(preferred[:, 0, 0].tolist())) == 4
    other = sample_world(latent_world("base", 7, CFG)).preferred
    assert not (other == other[:, :1, :1]).all()


def test_tasks_lie_apart_from_positions_and_alternatives() -> None:
    config = latent_world("straight", 7, CFG).replace(tasks=2, task_appearance=9.0)
    means = straight_look_means(config, sample_world(config).labels, stream(config, "look")).reshape(2, -1, 6)
    assert np.allclose(means[0, :, :-1], means[1, :, :-1])
    assert np.allclose(means[1, :, -1] - means[0, :, -1], 18.0)


def test_the_flag_is_of_latents_alone_and_no_digest_of_another_world_has_it() -> None:
    with pytest.raises(ValidationError, match="straight is of features by latents, and the entry is 'video'"):
        tiny_world().replace(straight=True)
    world = latent_world("base", 7, CFG)
    assert "straight" not in world.content()
    assert world.replace(straight=True).digest() != world.digest()
