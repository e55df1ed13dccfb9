"""A world in any layout: equal bytes, resuming, faults that have an effect, and the mark that it was simulated."""

from dataclasses import replace
from pathlib import Path

import pytest
from layouts_fixture import OTHERS, contents, corpus_files, small_world, written

from schemas.world import WorldConfig, tiny_world
from trajpilot_core.corpora.formats.folders import is_simulated
from trajpilot_core.corpora.registry import layouts
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import WorldError
from trajpilot_core.evaluation.ceiling import read_world
from trajpilot_core.report.tables.actions import fixed_metrics
from trajpilot_core.simworld.faults import TEST_SPLIT, VIDEO_FAULTS
from trajpilot_core.simworld.layouts.annotate import base_form, thing_of
from trajpilot_core.simworld.layouts.base import layout_of
from trajpilot_core.simworld.sample import PRESETS, sample_world
from trajpilot_core.simworld.write import write_world
from trajpilot_core.store.corpus_files import open_corpus

ELSEWHERE = {*VIDEO_FAULTS} | {"group_part_missing", TEST_SPLIT}
"""Faults that lie in a take's files and in no list, and the one that lies in the take's split."""


def quick(layout: str) -> WorldConfig:
    return small_world(layout, train_takes=2, test_takes=1, segments=4, fps=5, segment_s=0.5, broken="none")


def test_every_layout_has_a_writer_its_faults_and_a_preset(tmp_path: Path) -> None:
    assert all(layout_of(layout).faults for layout in layouts())
    assert all(PRESETS[f"tiny_{layout}"]().layout == layout for layout in OTHERS)
    config = tiny_world().replace(layout="nobody", broken="none")
    with pytest.raises(WorldError, match=r"in the layout 'nobody'; there are egoexo4d, keystep, .*epic_kitchens"):
        write_world(config, tmp_path / "world", 1, no_progress)
    assert not (tmp_path / "world").exists()


def test_in_the_tiny_kitchens_a_recall_among_five_can_fail() -> None:
    fixed = []
    for few in ({}, {"primitives": 4}):
        world = sample_world(PRESETS["tiny_epic_kitchens"]().replace(**few))
        takes = [take for take in world.takes if take.fault is None and take.split == "train"]
        trained = [world.labels[one.label] for take in takes for one in take.segments]
        n_classes = {"verb": len({x.primitive for x in trained}), "noun": len({thing_of(x) for x in trained})}
        fixed.append(fixed_metrics(n_classes))
    assert fixed == [[], ["Verb"]]


@pytest.mark.parametrize("layout", OTHERS)
def test_a_second_writing_and_an_interrupted_one_end_with_the_same_bytes(layout: str, tmp_path: Path) -> None:
    def stop(done: int, total: int, what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    whole = written(tmp_path / "whole", quick(layout)).folder
    check_world_json(whole, quick(layout))
    with pytest.raises(KeyboardInterrupt):
        write_world(quick(layout), tmp_path / "part", 1, stop)
    assert not (tmp_path / "part" / "world.json").exists()
    summary = write_world(quick(layout), tmp_path / "part", 1, no_progress)
    assert summary.reused == 2
    assert contents(tmp_path / "part") == contents(whole)
    assert write_world(quick(layout), whole, 1, no_progress).written == 0


def check_world_json(folder: Path, config: WorldConfig) -> None:
    """It names every file, and says that the world was simulated, and by which configuration."""
    names = corpus_files(folder)
    assert {*names, "world.json"} == set(contents(folder))
    assert is_simulated(open_corpus(str(folder)))
    found = read_world(str(folder))
    assert found is not None
    assert found.config == config
    has_poses = any("trajectory" in name or "timesync" in name for name in names)
    assert has_poses == (config.layout in ("keystep", "basketball"))


def test_a_corpus_that_does_not_say_so_is_not_called_simulated(tmp_path: Path) -> None:
    assert not is_simulated(open_corpus(str(tmp_path)))
    for content in (b"", b"[]", b'{"simulated": "yes"}', b"{" * 200_000):
        (tmp_path / "world.json").write_bytes(content)
        assert not is_simulated(open_corpus(str(tmp_path)))


@pytest.mark.parametrize("name", OTHERS)
def test_every_fault_is_planted_once_and_changes_what_is_written(name: str) -> None:
    world, layout = sample_world(small_world(name, train_takes=1, test_takes=1)), layout_of(name)
    assert sorted(take.fault for take in world.takes if take.fault) == sorted(layout.faults)
    whole = dict(layout.rest(world))
    for fault in layout.faults:
        if fault in ELSEWHERE or fault.startswith(("trajectory", "calibration")):
            continue
        repaired = tuple(replace(t, fault=None) if t.fault == fault else t for t in world.takes)
        assert dict(layout.rest(replace(world, takes=repaired))) != whole, fault


def test_verbs_are_written_in_base_form() -> None:
    forms = "cuts cut, empties empty, ties tie, presses press, mixes mix, squeezes squeeze, pushes push"
    verbs = dict(pair.split() for pair in f"{forms}, scratches scratch".split(", ")) | {"picks up": "pick up"}
    assert {verb: base_form(verb) for verb in verbs} == verbs
