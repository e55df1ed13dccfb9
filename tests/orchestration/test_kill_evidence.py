"""The bookkeeping of the stack's kills: each thing that a recovery may do wrong is seen."""

import json
from pathlib import Path

import pytest
import torch
from kill_evidence import CHECKPOINT, Moment, Training, differences, digests, faults, look
from safetensors.torch import save_file
from stack_kills import VICTIMS, planned


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "artifacts/ingest/k/manifest.json")
    put(tmp_path / "artifacts/ingest/k/run_record.json", "today")
    put(tmp_path / "artifacts/features/shards/a/record.json")
    put(tmp_path / "artifacts/features/shards/b/data.parquet")
    put(tmp_path / "reports/report.html")
    folder = tmp_path / "scratch/predictor-k/final/traj"
    put(folder / "epochs.json", "[4, 20, ...]".replace("...", '""'))
    progress = {"progress": json.dumps({"name": "final/traj", "epoch": 3})}
    save_file({"a": torch.zeros(1)}, folder / CHECKPOINT, progress)
    return tmp_path


def test_a_look_finds_what_is_finished_and_how_far_a_training_is(root: Path) -> None:
    seen = look(root)
    assert (seen.shards("features"), seen.is_finished("ingest"), seen.is_finished("features")) == (1, True, False)
    assert [*seen.trainings.values()] == [Training("final/traj", kept=3, told=4)]
    assert seen.last_s > 0


def test_run_records_and_half_written_files_do_not_count(root: Path) -> None:
    before = digests(root)
    put(root / "artifacts/ingest/k/run_record.json", "another day")
    put(root / "artifacts/ingest/k/.tmp-1-2", "half")
    assert digests(root) == before


def test_a_missing_an_added_and_a_changed_file_are_told(root: Path) -> None:
    before = digests(root)
    (root / "reports/report.html").unlink()
    put(root / "artifacts/ingest/k/manifest.json", "y")
    put(root / "artifacts/more")
    assert differences(digests(root), before) == [
        "missing reports/report.html",
        "too many artifacts/more",
        "different artifacts/ingest/k/manifest.json",
    ]


GOES_ON = "training final/traj seed 0 goes on after epoch 3"


def test_a_good_recovery_has_no_faults(root: Path) -> None:
    seen = look(root)
    assert faults(seen, seen, {"features": (1, 11)}, GOES_ON) == []


def test_a_finished_shard_that_is_written_again_is_a_fault(root: Path) -> None:
    before = look(root)
    record = root / "artifacts/features/shards/a/record.json"
    record.unlink()
    put(root / "new")
    (root / "new").rename(record)
    assert faults(before, look(root), {"features": (1, 11)}, GOES_ON) == [
        "artifacts/features/shards/a/record.json was finished and is written again"
    ]


def test_a_finished_shard_that_is_not_reused_is_a_fault(root: Path) -> None:
    seen = look(root)
    assert faults(seen, seen, {"features": (0, 12)}, GOES_ON) == ["features: 1 shards were finished, 0 were reused"]


def test_a_training_that_begins_anew_or_loses_two_epochs_is_a_fault(root: Path) -> None:
    seen = look(root)
    assert faults(seen, seen, {}, "nothing told") == ["final/traj started again"]
    lost = Moment(seen.commits, {"x": Training("final/traj", kept=2, told=4)})
    assert faults(lost, lost, {}, GOES_ON) == ["final/traj lost 2 epochs"]


def test_victims_take_turns_and_moments_are_drawn_from_the_seed_alone() -> None:
    kills = [planned(7, number, 40.0) for number in range(20)]
    assert [k.victim for k in kills[:4]] == [*VICTIMS, VICTIMS[0]]
    assert kills == [planned(7, number, 40.0) for number in range(20)]
    assert len({k.at_s for k in kills}) == 20
    assert all(0 <= k.at_s <= 40.0 for k in kills)
