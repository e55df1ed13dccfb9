"""The worlds that `trajpilot demo` offers: each can be planned on, or is refused before anything is written."""

import json
from collections import Counter
from pathlib import Path

import pytest

from deployments.cli import run as command
from schemas.config import RunOptions
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.simworld.presets import PRESETS
from trajpilot_core.simworld.write import world_digest

LEAST = 5
"""Windows of a split, of which poses from video may lose some."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.campaign) if name == "court" else name
        for name in command.WORLDS
        if name not in ("demo", "soak")
    ],
)
def test_every_split_of_a_world_that_is_offered_has_windows_or_clips(name: str, tmp_path: Path) -> None:
    from deployments.cli.options import configure
    from trajpilot_core.engine.execution.execute import execute
    from trajpilot_core.engine.stage import no_progress
    from trajpilot_core.simworld.write import write_world
    from trajpilot_core.stages import STAGES
    from trajpilot_core.store.files import open_folder
    from trajpilot_core.store.manifest import current_manifest
    from trajpilot_core.store.reading import read_entry_table

    seen = {"fps": 5, "size_px": 64} if PRESETS[name]().videos else {}  # what is seen changes no window
    world, root = PRESETS[name]().replace(**seen), tmp_path / "runs"
    write_world(world, tmp_path / "world", 1, no_progress)
    config = configure(command.WORLDS[name], command.read_as(world))
    run = RunOptions(root=str(root), data_root=str(tmp_path / "world"), max_reject_ratio=command.DELIBERATE)
    execute(STAGES["ingest"], config, run, STAGES)
    manifest = current_manifest(open_folder(run.root, run.protocols), "ingest")
    assert manifest is not None
    scored = "windows" if spec_of(config.ingest.corpus).has_plans else "segments"
    table = read_entry_table(open_folder(run.root, run.protocols), manifest, scored)
    found = Counter(table["split"].to_pylist())
    assert min(found[split] for split in ("train", "dev", "test")) >= LEAST, found


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
