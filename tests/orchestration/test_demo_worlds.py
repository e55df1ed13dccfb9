"""Simulated worlds as `trajpilot demo` and users take them.

Each world that is offered can be planned on, or is refused before anything is written; runs on released features, the
whole pipeline on a SIMULATED world that has them, and what a laptop takes.
"""

import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest
from once import Worlds

from deployments.cli import run as command
from deployments.cli.options import change
from deployments.recipes import recipe
from deployments.recipes.paper import laptop
from deployments.recipes.simulated import soak
from schemas.config import RunOptions
from schemas.features import RELEASED_NOTE
from schemas.world import laptop_world
from trajpilot_core.corpora.records.videos import NO_VIDEO
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.doctor.weights import preflight, require_outside
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.opened import open_run
from trajpilot_core.simworld.sample import PRESETS, sample_world
from trajpilot_core.simworld.world.motion import HeadMotion
from trajpilot_core.simworld.world.truth import TakeTruth, World
from trajpilot_core.simworld.write import world_digest, write_world
from trajpilot_core.stages import EVERY_STAGE, STAGES, stages_of

LEAST = 5
"""Windows of a split, of which poses from video may lose some."""


def black(world: World, take: TakeTruth, motion: HeadMotion, t_s: np.ndarray) -> Iterator[np.ndarray]:
    """Frames in place of the rendered ones: what is seen changes no window."""
    yield from repeat(np.zeros((world.config.size_px, world.config.size_px, 3), np.uint8), len(t_s))


OFFERED = tuple(name for name in command.WORLDS if name not in ("demo", "soak", "tiny"))
"""`tiny` has the windows of `tiny_laptop`, which has no videos."""


@pytest.mark.campaign
def test_every_split_of_the_worlds_that_are_offered_has_windows_or_clips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpilot_core.simworld.write.render_at", black)
    found = {name: in_splits(name, tmp_path / name) for name in OFFERED}
    assert {name: splits for name, splits in found.items() if min(splits.values()) < LEAST} == {}


def in_splits(name: str, folder: Path) -> dict[str, int]:
    """Write a world with small videos and run ingest; return how many windows or clips each split has."""
    seen = {"fps": 5, "size_px": 64} if PRESETS[name]().videos else {}
    world = PRESETS[name]().replace(**seen)
    write_world(world, folder / "world", 1, no_progress)
    config = change(recipe(command.WORLDS[name]), command.read_as(world))
    run = RunOptions(root=str(folder), data_root=str(folder / "world"), max_reject_ratio=command.DELIBERATE, workers=1)
    execute(STAGES["ingest"], config, run, STAGES)
    scored = "windows" if spec_of(config.ingest.corpus).has_plans else "segments"
    splits = open_run(run.root).table(scored)["split"].to_list()
    return {split: splits.count(split) for split in ("train", "dev", "test")}


def test_shots_are_not_planned_and_a_demo_that_asks_for_it_says_so_before_it_writes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this run has no predictor; its stages are ingest, traj"):
        command.demo(
            root=str(tmp_path / "runs"), world="tiny_basketball", set_=[], only=["predictor"], from_=None, force=[]
        )
    assert not (tmp_path / "runs").exists()


def test_a_demo_on_a_root_of_another_world_names_it_and_leaves_the_root_as_it_was(tmp_path: Path) -> None:
    world, root = tmp_path / "world", tmp_path
    world.mkdir()
    (world / "world.json").write_text(json.dumps({"digest": world_digest(PRESETS["tiny"]())}))
    before = sorted(root.rglob("*"))
    with pytest.raises(WorldError, match=r"holds another world, .* go on with the old one by its --world"):
        command.demo(root=str(root), world="demo", set_=[], only=[], from_=None, force=[], workers=1)
    assert sorted(root.rglob("*")) == before


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_run_without_any_video_ends_in_a_report_that_says_so_everywhere(worlds: Worlds, tmp_path: Path) -> None:
    data, config = worlds.copy(laptop_world(), tmp_path / "world"), soak()
    config = config.replace(ingest=config.ingest.replace(dev_min=1))
    assert not list(data.rglob("*.mp4"))
    released = config.features.replace(source="released")
    config = config.replace(ingest=config.ingest.replace(video="none"), features=released)
    good = next(take for take in sample_world(laptop_world()).takes if take.fault is None and take.split == "train")
    next((data / "features" / "omnivore_video").glob(f"{good.uid}_*")).unlink()
    run = RunOptions(root=str(tmp_path / "runs"), data_root=str(data), device="cpu", workers=1, max_reject_ratio=0.6)
    for name in STAGES:
        execute(STAGES[name], config, run, STAGES)
    report = tmp_path / "runs" / "artifacts" / "report"
    page, numbers = (next(report.rglob(f"*.{name}")).read_text() for name in ("report.html", "metrics.tex"))
    assert "SIMULATED WORLD" in page
    assert page.count(RELEASED_NOTE) >= 2
    assert "No video was read: the lengths of takes come from the metadata" in page
    assert NO_VIDEO in page
    assert RELEASED_NOTE in numbers
    opened = open_run(str(tmp_path / "runs"))
    assert RELEASED_NOTE in opened.warning
    features = opened.table("features")
    assert set(features["encoder"].to_list()) == {"released:omnivore_video"}
    lost = [row for row in opened.table("features.rejects").to_dicts() if row["code"] == "FEATURES_MISSING"]
    assert [row["take"] for row in lost] == [f"egoexo4d:{good.uid}"]


def test_clips_before_actions_are_rows_of_archives_that_end_before_the_gap(worlds: Worlds, tmp_path: Path) -> None:
    """The demo of EPIC-KITCHENS-100 on released features and without any video."""
    world = PRESETS["tiny_epic_released"]()
    config = change(recipe(command.WORLDS[world.name]), command.read_as(world))
    data = worlds.copy(world, tmp_path / "world")
    run = RunOptions(root=str(tmp_path / "runs"), data_root=str(data), device="cpu", workers=1, max_reject_ratio=0.6)
    assert not list(data.rglob("*.MP4"))
    assert {one.verdict for one in preflight(config, run, list(stages_of(config)))} == {"ok"}
    assert list(stages_of(config)) == ["ingest", "features", "probe", "report"]
    for name in ("ingest", "features"):
        execute(EVERY_STAGE[name], config, run, EVERY_STAGE)
    opened = open_run(run.root)
    assert "trained on the action labels that are predicted here: to be reported apart" in opened.warning
    clips = opened.table("features").join(opened.table("details"), on="segment_id")
    assert len(clips) > 0
    assert not (clips["frame_times_s"].list.last() > clips["annotated_start_s"] - 1.0 + 1e-6).any()
    assert {"FEATURES_OUTSIDE"} <= set(opened.table("features.rejects")["code"])


def test_nothing_begins_without_files_of_features_or_on_a_corpus_without_a_reader(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    run = RunOptions(root=str(tmp_path / "runs"), data_root=str(tmp_path / "data"), device="cpu", workers=1)
    with pytest.raises(InputError, match=r"released features: 0, expected files \.\.\._rgb\.pt"):
        require_outside(laptop(), run, ["features"])
    (tmp_path / "data" / "features").mkdir()
    (tmp_path / "data" / "features" / "x_aria01_rgb.pt").touch()
    assert {one.verdict for one in preflight(laptop(), run, ["features"])} == {"ok"}
    other = laptop().replace(ingest=laptop().ingest.replace(corpus="goalstep"))
    with pytest.raises(InputError, match="omnivore_video, expected read of Ego4D GoalStep: none"):
        require_outside(other, run, ["features"])
