"""The map of latents that released features of simulated worlds come from: what it shows, and what it does not."""

from dataclasses import replace

import numpy as np
from drawn_tables import by_take, world_tables

from schemas.config import IngestConfig
from schemas.world import LatentMapConfig, WorldConfig, tiny_world
from trajpilot_core.arrays import Array
from trajpilot_core.simworld.inference.visible import take_steps
from trajpilot_core.simworld.latents import latent_features, latent_inputs, latent_map
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.appearance import take_appearance, take_light
from trajpilot_core.simworld.world.truth import SegmentTruth, TakeTruth, World
from trajpilot_core.video.decode import frame_times_s

INGEST = IngestConfig(video="full", central_share=0.6, dev_min=1)
FRAMES = 4
GOLDEN = (0.45703125, -0.9189453125, 0.234375, -0.3935546875, 0.376708984375, -0.10833740234375, 0.7568359375)
"""The first features of one take; renew, with a new VERSION, by what the test prints."""


def latents(**changes: object) -> WorldConfig:
    """A small world."""
    plain = {"broken": "none", "train_takes": 4, "test_takes": 2, "segments": 6}
    return tiny_world().replace(**{**plain, **changes})


def times(world: World, take: TakeTruth) -> Array:
    """Four times within every step, away from its ends; shape (S, 4)."""
    return np.stack([np.linspace(s.start_s + 0.2, s.end_s - 0.2, 4) for s in take.segments])


def features(world: World, take: TakeTruth, config: LatentMapConfig = LatentMapConfig()) -> Array:  # noqa: B008
    made = latent_map(config, world.config.places, 32)
    return latent_features(world, take, times(world, take), 1, made).astype(float)


def test_features_are_what_was_recorded() -> None:
    world = sample_world(latents())
    found = features(world, world.takes[0])
    assert is_recorded(found)
    other = sample_world(latents(seed=world.config.seed + 1))
    assert not is_recorded(features(other, other.takes[0])), "planted: another world"


def is_recorded(found: Array) -> bool:
    """They are stored in float16, and below 1: where a sum rounds up on one machine and down on another, by its eps."""
    return bool(np.abs(found[0, : len(GOLDEN)] - GOLDEN).max() <= np.finfo(np.float16).eps)


def test_the_light_is_that_of_the_rendered_take() -> None:
    for scene in (1.0, 0.5, 0.0):
        world = sample_world(latents(scene=scene))
        for take in world.takes[:2]:
            light, rendered = take_light(world, take), take_appearance(world, take)
            assert np.array_equal(light.objects, rendered.objects)
            assert (light.gain, light.gain_slope) == (rendered.gain, rendered.gain_slope)


def test_motion_cannot_be_seen() -> None:
    one, other = (sample_world(latents(kappa=kappa, style=style)) for kappa, style in ((3.0, 2.0), (0.0, 0.0)))
    assert not np.array_equal(one.takes[0].segments[0].motion, other.takes[0].segments[0].motion)
    assert np.array_equal(features(one, one.takes[0]), features(other, other.takes[0]))


def times_of(world: World, span_s: tuple[Array, Array]) -> Array:
    """The (S, F) times of the frames of segments, seconds, given their spans."""
    return np.stack([frame_times_s(a, b, world.config.fps, FRAMES) for a, b in zip(*span_s, strict=True)])


def test_a_segment_shows_no_step_that_exact_inference_does_not_count() -> None:
    """Other looks and places, other labels and other motion of all uncounted steps change no feature of a segment.

    The planted fault: frames from the next step.
    """
    world = sample_world(latents())
    found = take_steps(world, world_tables(world, INGEST).segments)
    spans = by_take(world_tables(world, INGEST).segments)
    changed = 0
    for steps in found:
        times_s = times_of(world, spans[steps.take_id][1:])
        before = shown(world, steps.take, times_s)
        for row, (first, last) in enumerate(steps.look.tolist()):
            after = shown(world, elsewhere(steps.take, set(range(first, last + 1))), times_s)
            assert np.array_equal(before[row], after[row])
            changed += int(len(before) > 1 and not np.array_equal(before, after))
    assert changed > 10, "what the others show did change"
    ahead_s = times_of(world, spans[found[0].take_id][1:]) + world.config.segment_s
    counted = set(range(found[0].look[1, 0], found[0].look[1, 1] + 1))
    before, after = (shown(world, take, ahead_s) for take in (found[0].take, elsewhere(found[0].take, counted)))
    assert not np.array_equal(before[1], after[1])


def shown(world: World, take: TakeTruth, times_s: Array) -> Array:
    made = latent_map(LatentMapConfig(noise=0.0), world.config.places, 32)
    return latent_features(world, take, times_s, 1, made).astype(float)


def elsewhere(take: TakeTruth, kept: set[int]) -> TakeTruth:
    """The take with everything about its other steps changed but their times."""

    def other(segment: SegmentTruth) -> SegmentTruth:
        return replace(segment, label=0, look=-segment.look, place=1 - min(segment.place, 1), motion=-segment.motion)

    return replace(take, segments=tuple(s if i in kept else other(s) for i, s in enumerate(take.segments)))


def test_without_a_scene_takes_differ_by_look_place_and_noise_only() -> None:
    """As in the rendered world; with a scene, equal looks and places do not give equal inputs."""
    for scene, is_equal in ((0.0, True), (1.0, False)):
        world = sample_world(latents(scene=scene))
        first, second = world.takes[0], world.takes[1]
        twin = replace(second, segments=first.segments)
        inputs = [latent_inputs(world, take, times(world, first).ravel(), LatentMapConfig()) for take in (first, twin)]
        assert np.array_equal(*inputs) is is_equal


def test_takes_of_a_capture_share_the_room_and_nothing_else() -> None:
    world = sample_world(latents(takes_per_capture=2))
    rooms, rest = [], []
    for take in world.takes[:3]:
        x = latent_inputs(world, take, np.array([1.0]), LatentMapConfig())[0]
        room = 8 + world.config.places
        rooms.append(x[room : room + 12])
        rest.append(x[room + 12 :])
    assert np.array_equal(rooms[0], rooms[1])
    assert not np.array_equal(rooms[1], rooms[2])
    assert not np.array_equal(rest[0], rest[1])
