"""The layout basketball: its takes are drills, and an error at the release decides the shots and shows where the world
says. That its captions tell the shots that happened: tests/core/corpora/test_ingest_basketball.py.
"""

import numpy as np
import pytest
from layouts_fixture import Written, annotated, load
from pydantic import ValidationError

from schemas.world import ReleaseConfig, court_world, tiny_world
from trajpilot_core.simworld.layouts.basketball import (
    DRILLS,
    SHOT,
    ShotAttempt,
    is_made,
    release_errors,
    role_of,
    shots_of,
)
from trajpilot_core.simworld.sample import sample_world, tiny_layout
from trajpilot_core.simworld.world.procedure import VERBS
from trajpilot_core.simworld.world.truth import World


@pytest.fixture(scope="module")
def basketball(tmp_path_factory: pytest.TempPathFactory) -> Written:
    config = tiny_layout("basketball").replace(size_px=64, fps=10, dense_takes=0, broken="none", segment_s=0.5)
    return annotated(tmp_path_factory.mktemp("basketball"), config)


def test_the_preset_of_basketball_can_be_balanced_and_its_takes_are_drills(basketball: Written) -> None:
    world = sample_world(tiny_layout("basketball"))
    shots: dict[str, list[ShotAttempt]] = {"train": [], "val": []}
    for take in world.takes:
        if take.fault is None:
            shots[take.split] += shots_of(world, take).values()
    every = [shot for of_split in shots.values() for shot in of_split]
    assert {s.outcome for s in every} == {"made", "missed", "ambiguous", "none"}
    assert {s.evidence for s in every} == {"next", "own", None}
    for split, wanted in (("train", 8), ("val", 3)):
        assert min(sum(s.outcome == o for s in shots[split]) for o in ("made", "missed")) >= wanted
    tasks = {(t["task_id"], t["task_name"]) for t in load(basketball, "takes.json")}
    assert tasks <= set(DRILLS)
    assert not (basketball.folder / "annotations/paraphrases.csv").exists()


def test_captions_of_drills_say_nothing_of_the_labels(basketball: Written) -> None:
    text = (basketball.folder / "annotations/atomic_descriptions_train.json").read_text()
    assert not any(phrase in text for label in basketball.world.labels for phrase in label.texts)
    assert not any(f"C {verb} " in text for pair in VERBS for verb in pair)


def a_court(shown: float, hinted: float, seen: float) -> World:
    release = ReleaseConfig(shown=shown, hinted=hinted, seen=seen)
    return sample_world(court_world().replace(train_takes=20, test_takes=4, release=release))


def test_a_layout_without_shots_has_no_release() -> None:
    with pytest.raises(ValidationError, match="the layout 'egoexo4d' has none"):
        tiny_world().replace(release=ReleaseConfig())


def test_the_error_decides_the_outcome_and_the_step_after_it_does_not() -> None:
    world, outcomes, after = a_court(1.0, 1.0, 1.0), [], []
    for take in world.takes:
        errors = release_errors(world.config, take.index, len(take.segments))
        for i, shot in shots_of(world, take).items():
            if shot.outcome != "none":
                assert (shot.outcome != "missed") == is_made(errors[i])
                outcomes.append(shot.outcome != "missed")
                if shot.evidence == "next":
                    after.append((world.labels[take.segments[i + 1].label].alternative % 2 == 0) == outcomes[-1])
    assert 0.3 < np.mean(outcomes) < 0.7
    assert 0.3 < np.mean(after) < 0.7


def test_the_error_shows_only_where_the_world_says() -> None:
    for shown, where in (((1.0, 0.0, 0.0), "shot"), ((0.0, 1.0, 0.0), "before"), ((0.0, 0.0, 1.0), "look")):
        quiet, loud = a_court(0.0, 0.0, 0.0), a_court(*shown)
        differs: set[str] = set()
        for one, other in zip(quiet.takes, loud.takes, strict=True):
            for i, (a, b) in enumerate(zip(one.segments, other.segments, strict=True)):
                is_shot = role_of(quiet, a.label) == SHOT
                is_before = i + 1 < len(one.segments) and role_of(quiet, one.segments[i + 1].label) == SHOT
                if not np.array_equal(a.motion, b.motion):
                    differs.add("shot" if is_shot and shown[0] else "before" if is_before and shown[1] else "elsewhere")
                if not np.array_equal(a.look, b.look):
                    differs.add("look" if is_before and shown[2] else "elsewhere")
        assert differs == {where}
