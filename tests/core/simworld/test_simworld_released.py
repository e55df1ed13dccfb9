"""Released features of a simulated world: the files say which time they stand for, and the pipeline reads them so."""

import dataclasses
import io
import re

import numpy as np
import pytest
import torch

from schemas.world import LatentMapConfig, released_world, tiny_world
from trajpilot_core.corpora.released import OMNIVORE_VIDEO
from trajpilot_core.encoders.released import read_rows, segment_rows
from trajpilot_core.simworld.latents import latent_features, latent_map, released_files
from trajpilot_core.simworld.presets import PRESETS
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.write import world_digest

WORLD = sample_world(released_world())
TAKE = next(take for take in WORLD.takes if take.fault is None)


def file_of(world: object = WORLD) -> tuple[str, bytes]:
    ((name, content),) = released_files(world, TAKE)  # type: ignore[arg-type]
    return name, content


def distances(rows_ND: np.ndarray) -> list[float]:
    """How far the segments' vectors lie from what a still head sees in them, with rows as they are and shifted."""
    clock, duration_s = OMNIVORE_VIDEO.clock, WORLD.take_duration_s(TAKE)
    spans_s = clock.spans_s(len(rows_ND), clock.n_frames(duration_s))
    quiet = LatentMapConfig(noise=0.0)
    made = latent_map(quiet, WORLD.config.places, OMNIVORE_VIDEO.width)
    times = np.stack([np.linspace(s.start_s, s.end_s, 32, endpoint=False) for s in TAKE.segments])
    true = latent_features(WORLD, TAKE, times, 1, made).astype(np.float64)
    found = []
    for shift in (-1, 0, 1):
        rolled = np.roll(rows_ND, shift, axis=0)
        vectors = [segment_rows(rolled, spans_s, s.start_s, s.end_s).vector for s in TAKE.segments]
        found.append(float(np.linalg.norm(np.stack(vectors) - true, axis=1)[1:-1].mean()))
    return found


def test_the_file_lies_where_the_reader_looks_and_has_the_rows_of_the_video() -> None:
    name, content = file_of()
    assert re.fullmatch(rf"features/omnivore_video/{TAKE.uid}_aria0[12]_rgb\.pt", name)
    clock = OMNIVORE_VIDEO.clock
    n_rows = clock.n_rows(clock.n_frames(WORLD.take_duration_s(TAKE)))
    assert read_rows(content, name, OMNIVORE_VIDEO.width).shape == (n_rows, OMNIVORE_VIDEO.width)
    assert file_of()[1] == content
    assert torch.load(io.BytesIO(content), weights_only=True).dtype == torch.float32, "torch loads it without code"


def test_a_shift_by_one_row_lies_farther_from_what_the_segments_show() -> None:
    name, content = file_of()
    rows = read_rows(content, name, OMNIVORE_VIDEO.width)
    earlier, as_written, later = distances(rows)
    assert as_written < min(earlier, later)
    earlier, shifted, later = distances(np.roll(rows, 1, axis=0))  # the planted fault
    assert shifted > min(earlier, later)


def test_a_world_without_released_features_writes_none() -> None:
    assert world_digest(tiny_world()) != world_digest(released_world())
    assert list(released_files(dataclasses.replace(WORLD, config=tiny_world()), TAKE)) == []
    with pytest.raises(ValueError, match="files of the layouts egoexo4d, keystep"):
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
    with pytest.raises(ValueError, match="epic_slowfast: released features are files of the layouts epic_kitchens"):
        tiny_world().replace(released="epic_slowfast")
