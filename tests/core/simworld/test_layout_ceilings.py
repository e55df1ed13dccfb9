"""Exact ceilings of worlds in other layouts: from the files of the annotators, by their reader, to the true steps."""

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from layouts_fixture import small_world, undrawn
from planning_world import Memory
from right_predictions import right_predictions

from schemas.config import CompletedEvaluation, IngestConfig
from schemas.corpora import EgoPerConfig, EpicConfig, KeystepConfig
from schemas.world import WorldConfig
from trajpilot_core.corpora.records.splits import dev_captures
from trajpilot_core.corpora.records.tables import Labelling, Tables, cut_take, tables_of
from trajpilot_core.corpora.registry import corpus_of_layout
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.ceiling import (
    NO_CEILING,
    calibration_check,
    ceiling_checks,
    compare,
    known_values,
)
from trajpilot_core.simworld.faults import TakeContents
from trajpilot_core.simworld.inference import bayes_optimal
from trajpilot_core.simworld.inference.visible import steps_of, take_steps, unshown
from trajpilot_core.simworld.layouts import epic_kitchens
from trajpilot_core.simworld.layouts.annotate import thing_of
from trajpilot_core.simworld.layouts.base import layout_of
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.stages.evaluation import what_is_known
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.video.probe import VideoProbe

NO_ADDITIONS = EgoPerConfig(leave_out=("Error_Addition",))
SETTINGS = {"keystep": {}, "goalstep": {}, "egoper": {"egoper": NO_ADDITIONS}}
"""Layouts that show their steps, with what has to be left out of each."""


def big(layout: str, **changes: object) -> WorldConfig:
    """A world with enough takes that the ceilings can be judged, a row of labels that every split has."""
    plain = {"tasks": 2, "positions": 4, "train_takes": 12, "test_takes": 16, "segments": 8, "broken": "none"}
    return small_world(layout, **{**plain, **changes})


def ingest_config(layout: str, **own: object) -> IngestConfig:
    """Settings that read a world of the layout without videos and poses; horizons 3 and 4."""
    corpus = corpus_of_layout(layout).name
    settings = {"require_trajectory": False, "interval_cap_s": None, "max_horizon": 4, "dev_min": 1, "video": "full"}
    return IngestConfig.model_validate({"corpus": corpus, **settings, **SETTINGS.get(layout, {}), **own})


def read(world: World, folder: Path, config: IngestConfig) -> Tables:
    """Write a world's files, the videos empty, and read them with its own reader; videos count as long as they are."""
    undrawn(folder, world.config)
    layout, fps = layout_of(world.config.layout), world.config.fps
    lengths: dict[str, int] = {}
    for take in world.takes:
        frames = layout.parts(world, take)
        files = layout.take_files(world, take, TakeContents(b"", None, None, (b"",) * (len(frames) - 1)))
        lengths |= {path: n for (path, _), n in zip(files, frames, strict=True)}
    spec = corpus_of_layout(world.config.layout)
    reading = spec.read(open_corpus(str(folder)), config)
    label_of, cut = Labelling({}, config), []
    for candidate in reading.candidates:
        n = lengths[candidate.take.video]
        probe = VideoProbe(n, fps, n / fps, 64, 64, 0, is_vfr=False)
        kept, _ = cut_take(candidate, probe, label_of, config)
        cut += [kept] if kept.points else []
    cut.sort(key=lambda one: one.candidate.take.take_id)
    dev = dev_captures((c.candidate.take.capture for c in cut if c.candidate.released == "train"), config)
    return tables_of(cut, dev, config, spec.horizons)


@pytest.fixture(scope="module", params=list(SETTINGS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Tables]:
    world = sample_world(big(request.param))
    return world, read(world, tmp_path_factory.mktemp("world"), ingest_config(request.param))


def test_every_segment_lies_on_a_true_step_of_its_name(made: tuple[World, Tables]) -> None:
    world, tables = made
    names = steps_of(world).label_ids(world)
    label = dict(zip(tables.segments["segment_id"].to_pylist(), tables.segments["label_id"].to_pylist(), strict=True))
    found = take_steps(world, tables.segments)
    assert sum(len(take.segment_ids) for take in found) == tables.segments.num_rows > 100
    for take in found:
        assert [names[take.take.segments[i].label] for i in take.step] == [label[one] for one in take.segment_ids]
        assert (take.step[1:] >= take.step[:-1]).all()
    assert unshown(world, tables.segments, has_classes=False) is None
    times = Counter(names)
    (shared,) = (name for name, n in times.items() if n > 1)
    assert times[shared] == world.config.tasks, "the first step of every task is one answer"
    assert len(times) == len(world.labels) - world.config.tasks + 1
    assert world.config.layout != "goalstep" or shared.startswith("prepare")


def test_the_actions_of_kitchens_are_the_steps_of_the_takes(tmp_path: Path) -> None:
    world = sample_world(big("epic_kitchens"))
    tables = read(world, tmp_path, ingest_config("epic_kitchens", epic_kitchens=EpicConfig(segment="action")))
    nouns = epic_kitchens.nouns_of(world)
    rows: dict[str, list[dict[str, object]]] = {}
    for row in tables.segments.to_pylist():
        rows.setdefault(row["take_id"], []).append(row)
    for take in world.takes:
        found = rows[f"epic:{epic_kitchens.video_id(world, take)}"]
        truth = [world.labels[step.label] for step in take.segments]
        assert [row["label_id"] for row in found] == [f"v{x.primitive}:n{nouns.index(thing_of(x))}" for x in truth]
        assert [row["start_s"] for row in found] == pytest.approx([step.start_s for step in take.segments], abs=6e-3)
        late = [row["end_s"] - step.end_s for row, step in zip(found, take.segments, strict=True)]
        assert all(-0.006 < one < 0.21 for one in late), "some end after the next has begun"


def test_the_ceilings_are_as_often_right_as_they_say_and_names_that_are_kept_apart_are_found_out(
    made: tuple[World, Tables], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: labels of one name kept apart, as if the tables told them apart."""
    world, tables = made
    known = known_values(world, tables.segments, tables.windows)
    assert calibration_check(known).verdict == "holds", calibration_check(known).detail
    assert known.n_unproven == 0
    monkeypatch.setattr(bayes_optimal, "class_codes", lambda names, classes: np.arange(len(names)))
    apart = known_values(world, tables.segments, tables.windows)
    assert apart.expected["no_traj"].sum() < known.expected["no_traj"].sum()


def test_files_of_one_take_are_laid_end_to_end(tmp_path: Path) -> None:
    """The planted fault: a second file that is laid at the start of the take."""
    world = sample_world(big("goalstep"))
    tables = read(world, tmp_path, ingest_config("goalstep"))
    placed = steps_of(world).takes(world)
    assert sum(one.start_s > 0 for one in placed.values()) > 3
    moved = {name: one._replace(start_s=0.0) for name, one in placed.items()}
    layout = layout_of("goalstep")
    assert not isinstance(layout.steps, str)
    wrong = type(layout.steps)(layout.steps.label_ids, lambda world: moved)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("trajpilot_core.simworld.inference.visible.steps_of", lambda world: wrong)
        with pytest.raises(InputError, match="carry another label"):
            take_steps(world, tables.segments)


UNSHOWN: list[tuple[str, dict[str, object], str]] = [
    ("egoper", {"egoper": EgoPerConfig()}, r"carry a label that no step of the world has \('error addition'\)"),
    ("egoper", {"egoper": NO_ADDITIONS.replace(keep_background=True)}, "no step of the world has"),
    ("keystep", {"keystep": KeystepConfig(leaves_only=True)}, "are left out of the tables"),
]


def test_tables_that_do_not_show_every_step_by_its_label_have_no_exact_ceiling(tmp_path: Path) -> None:
    for n, (layout, own, reason) in enumerate(UNSHOWN):
        world = sample_world(big(layout, segment_s=2.0))
        tables = read(world, tmp_path / str(n), ingest_config(layout, **own))
        found = unshown(world, tables.segments, has_classes=False)
        assert re.search(reason, found), found


def test_a_layout_without_steps_says_so_and_is_refused() -> None:
    for layout in ("basketball", "epic_kitchens"):
        world = sample_world(small_world(layout, broken="none", train_takes=2, test_takes=2))
        none = pa.table({"label_id": pa.array([], pa.string())})
        reason = unshown(world, none, has_classes=False)
        assert reason
        (said,) = ceiling_checks([], reason)
        assert (said.check, said.verdict, said.detail) == (NO_CEILING, "not run", reason)
        with pytest.raises(InputError, match="does not show the steps"):
            steps_of(world)


def test_the_evaluation_finds_the_world_in_its_layout_and_says_where_it_has_no_ceiling(tmp_path: Path) -> None:
    for layout, own in (("keystep", {}), ("egoper", {"egoper": EgoPerConfig()})):
        config, folder = big(layout, segment_s=2.0), tmp_path / layout
        tables = read(sample_world(config), folder, ingest_config(layout, **own))
        (folder / "world.json").write_text(json.dumps({"config": config.model_dump(mode="json")}))
        windows = tables.windows.filter(pc.equal(tables.windows["split"], "test"))
        memory = Memory({"segments": tables.segments, "windows": windows})
        work = SimpleNamespace(
            inputs=memory, config=CompletedEvaluation(), runtime=SimpleNamespace(data_root=str(folder))
        )
        known = what_is_known(work, right_predictions(tables.segments, windows))
        if layout == "keystep":
            assert len(known.window_ids) == windows.num_rows > 10
            assert compare(right_predictions(tables.segments, windows), known)
        else:
            assert "error addition" in known
