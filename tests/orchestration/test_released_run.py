"""Runs on released features: the whole pipeline on a SIMULATED world that has them, and what a laptop takes."""

from pathlib import Path

import pytest
from once import Worlds

from deployments.recipes.simulated import soak
from schemas.config import PipelineConfig, RunOptions
from schemas.features import RELEASED_NOTE, released_note
from schemas.world import laptop_world
from trajpilot_core.corpora.records.videos import NO_VIDEO
from trajpilot_core.doctor.weights import preflight, require_outside
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import InputError
from trajpilot_core.opened import open_run
from trajpilot_core.simworld.sample import PRESETS, sample_world
from trajpilot_core.stages import EVERY_STAGE, STAGES, stages_of


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
    made = {path.name.partition(".")[2]: path for path in (tmp_path / "runs" / "artifacts" / "report").rglob("*.*")}
    page = made["report.html"].read_text()
    assert "Released features." in page
    assert "Simulated world" in page
    assert page.count(RELEASED_NOTE) >= 2
    assert "No video was read: the lengths of takes come from the metadata" in page
    assert NO_VIDEO in page
    assert RELEASED_NOTE in made["metrics.tex"].read_text()
    opened = open_run(str(tmp_path / "runs"))
    assert RELEASED_NOTE in opened.warning
    features = opened.table("features")
    assert set(features["encoder"].to_list()) == {"released:omnivore_video"}
    lost = [row for row in opened.table("features.rejects").to_dicts() if row["code"] == "FEATURES_MISSING"]
    assert [row["take"] for row in lost] == [f"egoexo4d:{good.uid}"]


def kitchen(worlds: Worlds, folder: Path) -> tuple[PipelineConfig, RunOptions]:
    """The demo of EPIC-KITCHENS-100 on released features and without any video, and where it runs."""
    from deployments.cli.options import configure
    from deployments.cli.run import WORLDS, read_as

    world = PRESETS["tiny_epic_released"]()
    data, config = worlds.copy(world, folder / "world"), configure(WORLDS[world.name], read_as(world))
    assert not list(data.rglob("*.MP4"))
    short = config.probe.replace(rates=(3e-3,), decays=(1e-3,), epochs=1, heads=2, bootstrap=100)
    run = RunOptions(root=str(folder / "runs"), data_root=str(data), device="cpu", workers=1, max_reject_ratio=0.6)
    return config.replace(probe=short), run


def test_clips_before_actions_are_rows_of_archives_that_end_before_the_gap(worlds: Worlds, tmp_path: Path) -> None:
    config, run = kitchen(worlds, tmp_path)
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


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_actions_are_anticipated_from_these_rows_to_the_report(worlds: Worlds, tmp_path: Path) -> None:
    config, run = kitchen(worlds, tmp_path)
    for name in stages_of(config):
        execute(EVERY_STAGE[name], config, run, EVERY_STAGE)
    made = {path.name.partition(".")[2]: path for path in (tmp_path / "runs" / "artifacts" / "report").rglob("*.*")}
    page, note = made["report.html"].read_text(), released_note("epic_slowfast")
    assert note in page
    assert "released features epic_slowfast" in page
    assert note in made["metrics.tex"].read_text()


def test_nothing_begins_without_files_of_features_or_on_a_corpus_without_a_reader(tmp_path: Path) -> None:
    from deployments.recipes.paper import laptop

    (tmp_path / "data").mkdir()
    run = RunOptions(root=str(tmp_path / "runs"), data_root=str(tmp_path / "data"), device="cpu", workers=1)
    with pytest.raises(InputError, match=r"released features: 0, expected files \.\.\._rgb\.pt"):
        require_outside(laptop(), run, ["features"])
    (tmp_path / "data" / "features").mkdir()
    (tmp_path / "data" / "features" / "x_aria01_rgb.pt").touch()
    assert {one.verdict for one in preflight(laptop(), run, ["features"])} == {"ok"}
    other = laptop().replace(ingest=laptop().ingest.replace(corpus="goalstep"))
    with pytest.raises(InputError, match="omnivore_video, expected read of Ego4D GoalStep: omnivore_video_swinl"):
        require_outside(other, run, ["features"])
