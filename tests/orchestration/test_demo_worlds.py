"""The worlds that `trajpilot demo` offers: each can be planned on, or is refused before anything is written."""

import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from deployments.cli import run as command
from deployments.cli.options import configure
from schemas.config import RunOptions
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.simworld.sample import PRESETS
from trajpilot_core.simworld.world.motion import HeadMotion
from trajpilot_core.simworld.world.truth import TakeTruth, World
from trajpilot_core.simworld.write import world_digest, write_world
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

LEAST = 5
"""Windows of a split, of which poses from video may lose some."""


def black(world: World, take: TakeTruth, motion: HeadMotion, t_s: np.ndarray) -> Iterator[np.ndarray]:
    """Frames in place of the rendered ones: what is seen changes no window."""
    yield from repeat(np.zeros((world.config.size_px, world.config.size_px, 3), np.uint8), len(t_s))


OFFERED = tuple(name for name in command.WORLDS if name not in ("demo", "soak", "tiny", "tiny_released"))
"""`tiny` and `tiny_released` have the windows of `tiny_laptop`, which has no videos."""


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
    config = configure(command.WORLDS[name], command.read_as(world))
    run = RunOptions(root=str(folder), data_root=str(folder / "world"), max_reject_ratio=command.DELIBERATE, workers=1)
    execute(STAGES["ingest"], config, run, STAGES)
    root = open_folder(run.root, run.protocols)
    manifest = current_manifest(root, "ingest")
    assert manifest is not None
    scored = "windows" if spec_of(config.ingest.corpus).has_plans else "segments"
    splits = read_entry_table(root, manifest, scored, ["split"])[0].to_pylist()
    return {split: splits.count(split) for split in ("train", "dev", "test")}


def test_shots_are_not_planned_and_a_demo_that_asks_for_it_says_so_before_it_writes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="egoexo4d_basketball has no predictor; its stages are ingest, traj"):
        command.demo(
            root=str(tmp_path / "runs"), world="tiny_basketball", set_=[], only=["predictor"], from_=None, force=[]
        )
    assert not (tmp_path / "runs").exists()


def test_a_demo_on_a_root_of_another_world_names_it_and_leaves_the_root_as_it_was(tmp_path: Path) -> None:
    world, root = tmp_path / "world", tmp_path
    world.mkdir()
    (world / "world.json").write_text(json.dumps({"digest": world_digest(PRESETS["tiny"]())}))
    before = sorted(root.rglob("*"))
    with pytest.raises(WorldError, match="holds another world, 'tiny'; go on with it by --world tiny"):
        command.demo(root=str(root), world="demo", set_=[], only=[], from_=None, force=[], workers=1)
    assert sorted(root.rglob("*")) == before
