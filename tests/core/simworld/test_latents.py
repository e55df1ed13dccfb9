"""Features of a world by latents: what they show, what they do not, and where such a world is refused."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planning_world import Memory, run_stage
from pydantic import ValidationError

from schemas.annotation import LATENTS
from schemas.config import FeatureConfig, IngestConfig
from schemas.world import LatentMapConfig, WorldConfig, tiny_world
from trajpilot_core.arrays import Array
from trajpilot_core.engine.sizes import feature_shape
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.simworld.feature_space import by_take, describe_world, still_world, world_tables
from trajpilot_core.simworld.inference.visible import take_steps
from trajpilot_core.simworld.latents import latent_features, latent_inputs, latent_map
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.appearance import take_appearance, take_light
from trajpilot_core.simworld.world.truth import SegmentTruth, TakeTruth, World
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages import ingest
from trajpilot_core.stages.feature_space import FEATURES as FEATURE_STAGE
from trajpilot_core.stages.feature_space import TABLES, feature_sources, latent_maker, motions_table, times_of, world_of

INGEST = IngestConfig(video="full", central_share=0.6, dev_min=1)
FEATURES = FeatureConfig(model="tiny", size_px=64, n_frames=4)
GOLDEN = (0.45703125, -0.9189453125, 0.234375, -0.3935546875, 0.376708984375, -0.10833740234375, 0.7568359375)
"""The first features of one take; renew, with a new VERSION, by what the test prints."""


def latents(**changes: object) -> WorldConfig:
    """A small world by latents."""
    plain = {"entry": "latents", "broken": "none", "train_takes": 4, "test_takes": 2, "segments": 6}
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


def test_motion_cannot_be_seen_and_does_not_change_the_key(tmp_path: Path) -> None:
    one, other = (sample_world(latents(kappa=kappa, style=style)) for kappa, style in ((3.0, 2.0), (0.0, 0.0)))
    assert not np.array_equal(one.takes[0].segments[0].motion, other.takes[0].segments[0].motion)
    assert np.array_equal(features(one, one.takes[0]), features(other, other.takes[0]))
    facts = [key_of(tmp_path / name, config) for name, config in (("a", one.config), ("b", other.config))]
    assert facts[0] == facts[1]
    assert key_of(tmp_path / "c", latents(label_appearance=0.0)) != facts[0]
    assert key_of(tmp_path / "d", latents(entry="frames")) != facts[0], "pixels are other features"


def key_of(folder: Path, config: WorldConfig) -> object:
    describe_world(config, folder)
    (source,) = feature_sources(None, FEATURES, str(folder))  # type: ignore[arg-type]
    return source.facts


def test_a_segment_shows_no_step_that_exact_inference_does_not_count() -> None:
    """Other looks and places, other labels and other motion of all uncounted steps change no feature of a segment."""
    world = sample_world(latents())
    found = take_steps(world, world_tables(world, INGEST).segments)
    spans = by_take(world_tables(world, INGEST).segments)
    changed = 0
    for steps in found:
        times_s = times_of(world, spans[steps.take_id][1:], FEATURES)
        before = shown(world, steps.take, times_s)
        for row, (first, last) in enumerate(steps.look.tolist()):
            after = shown(world, elsewhere(steps.take, set(range(first, last + 1))), times_s)
            assert np.array_equal(before[row], after[row])
            changed += int(len(before) > 1 and not np.array_equal(before, after))
    assert changed > 10, "what the others show did change"


def test_a_map_that_looks_one_step_ahead_is_caught() -> None:
    """The planted fault of the test above: frames from the next step."""
    world = sample_world(latents())
    (steps, *_) = take_steps(world, world_tables(world, INGEST).segments)
    span = by_take(world_tables(world, INGEST).segments)[steps.take_id][1:]
    ahead_s = times_of(world, span, FEATURES) + world.config.segment_s
    counted = set(range(steps.look[1, 0], steps.look[1, 1] + 1))
    before, after = (shown(world, take, ahead_s) for take in (steps.take, elsewhere(steps.take, counted)))
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


def test_features_have_the_shape_of_the_encoder_that_is_named() -> None:
    world = sample_world(latents())
    take = world.takes[0]
    spans = next(iter(by_take(world_tables(world, INGEST).segments).values()))[1:]
    for cfg in (FEATURES, FEATURES.replace(tokens="temporal"), FEATURES.replace(model="vit_base", tokens="temporal")):
        width, tokens = feature_shape(cfg)
        maker = latent_maker(world, cfg)
        frame_s, vectors = maker.make(take, spans)
        assert (maker.width, maker.tokens) == (width * tokens, tokens)
        assert vectors.shape == (len(spans[0]), width * tokens)
        assert np.shape(frame_s) == (len(spans[0]), cfg.n_frames)
        assert vectors.dtype == np.float16
        assert maker.digest.startswith(f"{LATENTS}:")


def test_the_takes_say_that_there_was_no_camera() -> None:
    takes = [world_tables(sample_world(latents(entry=entry)), INGEST).takes for entry in ("latents", "frames")]
    assert set(takes[0]["camera"].to_pylist()) == {LATENTS}
    assert LATENTS not in takes[1]["camera"].to_pylist()
    assert takes[0].drop_columns(["camera"]).equals(takes[1].drop_columns(["camera"])), "nothing else differs"


def test_a_broken_world_by_latents_is_refused() -> None:
    with pytest.raises(WorldError, match='broken to "none"'):
        world_tables(sample_world(latents(broken="each")), INGEST)


def test_a_world_by_latents_has_no_layout() -> None:
    with pytest.raises(ValidationError, match="the entry 'latents' has no files, so no layout 'egoper'"):
        WorldConfig(entry="latents", layout="egoper")


def test_a_world_by_latents_is_not_written_as_files(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="the entry 'latents' has no files to write"):
        write_world(latents(), tmp_path / "world", 1, no_progress)
    assert not (tmp_path / "world").exists()


@pytest.mark.parametrize("entry", ["frames", "latents"])
def test_the_ordinary_stages_refuse_a_world_without_files(tmp_path: Path, entry: str) -> None:
    """A recorded corpus without takes.json still gets its own sentence."""
    describe_world(latents(entry=entry), tmp_path / "world")
    with pytest.raises(InputError, match=f"the entry '{entry}', which has no files to ingest; run the stages of feat"):
        ingest.sources(None, INGEST, str(tmp_path / "world"))  # type: ignore[arg-type]
    (tmp_path / "recorded").mkdir()
    with pytest.raises(InputError, match=r"takes\.json is missing"):
        ingest.sources(None, INGEST, str(tmp_path / "recorded"))  # type: ignore[arg-type]


def test_the_stages_of_feature_space_take_it_and_refuse_a_world_by_video(tmp_path: Path) -> None:
    describe_world(latents(), tmp_path / "latents")
    assert world_of(str(tmp_path / "latents")) == latents()
    assert still_world(latents(), 64).entry == "latents"
    describe_world(latents(entry="video"), tmp_path / "video")
    with pytest.raises(WorldError, match="the entry 'video'; run the ordinary stages"):
        world_of(str(tmp_path / "video"))


def test_the_stages_write_tables_and_features_of_every_segment(tmp_path: Path) -> None:
    describe_world(latents(), tmp_path)
    memory = Memory()
    for stage, config in ((TABLES, INGEST), (FEATURE_STAGE, FEATURES)):
        run_stage(stage, config, memory, tmp_path / stage.name, data_root=str(tmp_path))
    table, segments = (memory.table(name) for name in ("features", "segments"))
    assert sorted(table["segment_id"].to_pylist()) == sorted(segments["segment_id"].to_pylist())
    assert table.schema.field("vector").type.list_size == feature_shape(FEATURES)[0]
    assert {name.partition(":")[0] for name in table["encoder"].to_pylist()} == {LATENTS}


def test_two_hundred_takes_are_a_matter_of_seconds() -> None:
    """Tables, motions and features; twenty times what it takes on one core, so that only another growth fails."""
    seconds = []
    for takes in (50, 200):
        clock = time.process_time()
        world = sample_world(latents(train_takes=takes - 10, test_takes=10, segments=16))
        tables = world_tables(world, INGEST)
        motions_table(world, tables.segments)
        maker, truth = latent_maker(world, FEATURES), {take.uid: take for take in world.takes}
        for name, (_, start_s, end_s) in by_take(tables.segments).items():
            maker.make(truth[name.rpartition(":")[2]], (start_s, end_s))
        seconds.append(time.process_time() - clock)
    assert seconds[1] < 16.0
    assert seconds[1] < 12 * max(seconds[0], 0.05), "four times the takes, not the square of it"
