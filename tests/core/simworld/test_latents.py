"""The map of latents that released features of simulated worlds come from: what it shows, and what it does not."""

import dataclasses
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn_tables import by_take, world_tables

from schemas.config import IngestConfig
from schemas.world import WorldConfig, laptop_world, tiny_world
from trajpilot_core.arrays import Array
from trajpilot_core.corpora.released import OMNIVORE_VIDEO
from trajpilot_core.encoders.released import read_rows
from trajpilot_core.simworld.inference.visible import take_steps
from trajpilot_core.simworld.latents import latent_features, latent_map, released_files
from trajpilot_core.simworld.sample import PRESETS, sample_world
from trajpilot_core.simworld.world.appearance import take_appearance, take_light
from trajpilot_core.simworld.world.truth import SegmentTruth, TakeTruth, World
from trajpilot_core.simworld.write import world_digest
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


def features(world: World, take: TakeTruth) -> Array:
    made = latent_map(world.config.places, 32)
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
            light, rendered = take_light(world, take), take_appearance(world, take).light
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
    made = latent_map(world.config.places, 32)
    return latent_features(world, take, times_s, 1, made, noise=0.0).astype(float)


def elsewhere(take: TakeTruth, kept: set[int]) -> TakeTruth:
    """The take with everything about its other steps changed but their times."""

    def other(segment: SegmentTruth) -> SegmentTruth:
        return replace(segment, label=0, look=-segment.look, place=1 - min(segment.place, 1), motion=-segment.motion)

    return replace(take, segments=tuple(s if i in kept else other(s) for i, s in enumerate(take.segments)))


WORLD = sample_world(laptop_world())
TAKE = next(take for take in WORLD.takes if take.fault is None)


def file_of(world: object = WORLD) -> tuple[str, bytes]:
    ((name, content),) = released_files(world, TAKE)  # type: ignore[arg-type]
    return name, content


def test_the_file_lies_where_the_reader_looks_and_has_the_rows_of_the_video() -> None:
    name, content = file_of()
    assert re.fullmatch(rf"features/omnivore_video/{TAKE.uid}_aria0[12]_rgb\.pt", name)
    clock = OMNIVORE_VIDEO.clock
    n_rows = clock.n_rows(clock.n_frames(WORLD.take_duration_s(TAKE)))
    assert read_rows(content, name, OMNIVORE_VIDEO.width).shape == (n_rows, OMNIVORE_VIDEO.width)
    assert file_of()[1] == content
    assert torch.load(io.BytesIO(content), weights_only=True).dtype == torch.float32, "torch loads it without code"


def test_a_world_without_released_features_writes_none() -> None:
    assert world_digest(tiny_world()) != world_digest(laptop_world())
    assert list(released_files(dataclasses.replace(WORLD, config=tiny_world()), TAKE)) == []
    with pytest.raises(ValueError, match="is of the layouts egoexo4d, keystep; layout is"):
        tiny_world().replace(layout="goalstep", released="omnivore_video")


def test_a_kitchen_has_the_archives_that_actionformer_reads_for_every_video_that_it_names() -> None:
    world = sample_world(PRESETS["tiny_epic_released"]())
    take = next(take for take in world.takes if take.fault is None)
    ((name, content),) = released_files(world, take)
    assert re.fullmatch(r"epic_kitchens/features/P\d\d_1?\d\d\.npz", name)
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        assert (held.files, held["feats"].dtype) == (["feats"], np.float32)
        assert read_rows(content, name, 2304).shape == held["feats"].shape
    assert list(released_files(world, take)) == [(name, content)]
    with pytest.raises(ValueError, match="released=epic_slowfast is of the layouts epic_kitchens"):
        tiny_world().replace(released="epic_slowfast")
