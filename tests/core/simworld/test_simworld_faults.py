"""Every planted fault is found by the stages, under one of the codes that it declares, and no good take is lost."""

import importlib
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from once import Worlds

from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, RunOptions
from schemas.world import tiny_world
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.simworld import faults
from trajpilot_core.simworld.layouts.metadata import PARAPHRASE_TABLE
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

NAMES = ("ingest", "trajectories", "features")


def run_stages(root: Path, data: Path) -> dict[str, pa.Table]:
    """Run the first three stages on a corpus; returns every table that they wrote, rejects included."""
    write_tiny_checkpoint(root / "tiny.pt")
    stages: dict[str, AnyStage] = {
        name: importlib.import_module(f"trajpilot_core.stages.{name}").STAGE for name in NAMES
    }
    config = PipelineConfig(
        ingest=IngestConfig(video="full", paraphrase_table=PARAPHRASE_TABLE),
        features=FeatureConfig(model="tiny", size_px=64, checkpoint=str(root / "tiny.pt"), precision="fp32"),
    )
    run = RunOptions(root=str(root), data_root=str(data), device="cpu", workers=1, max_reject_ratio=1.0)
    tables = {}
    for name in NAMES:
        execute(stages[name], config, run, stages)
        folder = open_folder(run.root, run.protocols)
        manifest = current_manifest(folder, name)
        assert manifest is not None
        for entry in manifest.entries:
            tables[entry] = read_entry_table(folder, manifest, entry)
    return tables


@pytest.fixture(scope="module")
def outcome(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, pa.Table]]:
    base = tmp_path_factory.mktemp("faults")
    config = tiny_world()
    worlds.copy(config, base / "world")
    (base / "runs").mkdir()
    return sample_world(config), run_stages(base / "runs", base / "world")


@pytest.mark.slow
def test_every_fault_is_named_and_no_good_take_is_lost(outcome: tuple[World, dict[str, pa.Table]]) -> None:
    world, tables = outcome
    codes: dict[str, set[str]] = defaultdict(set)
    for name in NAMES:
        for row in tables[f"{name}.rejects"].to_pylist():
            codes[row["take"]].add(row["code"])
    wanted = {
        kind: {str(code) for code in codes} for kind, codes in (faults.TAKE_FAULTS | faults.CORPUS_FAULTS).items()
    }
    missed = [t.fault for t in world.takes if t.fault and not wanted[t.fault] & codes[f"egoexo4d:{t.uid}"]]
    assert not missed
    assert "LEFTOVER_FILE" in {code for found in codes.values() for code in found}
    with_features = {i.split(":")[1] for i in tables["features"]["segment_id"].to_pylist()}
    with_motions = {i.split(":")[1] for i in tables["motions"]["segment_id"].to_pylist()}
    good = {t.uid for t in world.takes if t.fault is None}
    assert good <= with_features & with_motions


@pytest.mark.slow
def test_the_labels_that_ingest_finds_are_the_truth(outcome: tuple[World, dict[str, pa.Table]]) -> None:
    world, tables = outcome
    takes = {f"egoexo4d:{t.uid}": t for t in world.takes if t.fault is None}
    right = wrong = 0
    for row in tables["segments"].to_pylist():
        if row["take_id"] in takes:
            segments = takes[row["take_id"]].segments
            nearest = min(segments, key=lambda s: abs(s.time_s - row["anchor_s"]))
            same = world.labels[nearest.label].label_id == row["label_id"]
            right, wrong = right + same, wrong + (not same)
    assert right > 60
    assert wrong <= 0.05 * right
