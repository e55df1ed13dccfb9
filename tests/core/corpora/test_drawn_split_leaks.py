"""Test shots are drawn from any take, so also from takes that an atomic E_tau was fitted on: that one is refused."""

import json
from pathlib import Path
from typing import cast

import pytest
from egoexo_fixture import ingest, pretend_probe, write

from schemas.config import IngestConfig
from schemas.corpora import BasketballConfig
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.data.imported_fits import ImportedFit, TakesHere, refuse_leaks
from trajpilot_core.data.other_runs import OtherOutput, OtherTake
from trajpilot_core.errors import InputError
from trajpilot_core.simworld.layouts.basketball import rest
from trajpilot_core.simworld.presets import tiny_layout
from trajpilot_core.simworld.sample import sample_world


class Atomic:
    """The alignment of a run on the atomic descriptions of the same release."""

    setting, named = "alignment.pretrained", "runs/atomic"

    def __init__(self, split_of: dict[str, str]) -> None:
        self.split_of = split_of

    def takes(self) -> list[OtherTake]:
        return [OtherTake(take, f"capture of {take}", split) for take, split in self.split_of.items()]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The annotations of a simulated court, without its videos."""
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe())
    for name, content in rest(sample_world(tiny_layout("basketball").replace(broken="none"))):
        write(tmp_path / name, content)
    for take in json.loads((tmp_path / "takes.json").read_text()):
        (camera,) = (c for c in take["frame_aligned_videos"].values() if "rgb" in c)
        write(tmp_path / take["root_dir"] / camera["rgb"]["relative_path"], b"")
        write(tmp_path / take["root_dir"] / "trajectory/closed_loop_trajectory.csv", b"")
    return tmp_path


def takes_of(release: Path, corpus: str, basketball: BasketballConfig) -> TakesHere:
    """Ingest the release; return its takes."""
    config = IngestConfig.model_validate(
        {"corpus": corpus, "dev_min": 1, "video": "full", "basketball": basketball.model_dump()}
    )
    rows = ingest(release, config).rows("takes")
    return TakesHere(*({row["take_id"]: row[column] for row in rows} for column in ("split", "capture")))


def test_an_e_tau_that_was_fitted_on_takes_of_drawn_test_shots_is_refused_by_name(release: Path) -> None:
    atomic = takes_of(release, "egoexo4d_atomic", BasketballConfig())
    fitted = frozenset(atomic.train)
    fits = {FINAL.name: ImportedFit(fitted, frozenset())}
    other = cast(OtherOutput, Atomic(dict(atomic.split_of)))
    drawn = takes_of(release, "egoexo4d_basketball", BasketballConfig(seed=1))
    seen = sorted(take for take, split in drawn.split_of.items() if split == "test" and take in fitted)
    assert seen, "the draw asks for takes of the released training split"
    with pytest.raises(InputError, match="has seen data that this run holds out") as refused:
        refuse_leaks(other, fits, [FINAL], drawn, {})
    assert f"{seen[0]} (test here)" in str(refused.value)
    dev = {take for take, split in atomic.split_of.items() if split == "dev"}
    released = takes_of(release, "egoexo4d_basketball", BasketballConfig(split="released", balance=False))
    others = {take: "train" if split == "dev" else split for take, split in released.split_of.items()}
    inherited = {take: "dev" if take in dev else split for take, split in others.items()}
    refuse_leaks(other, fits, [FINAL], released._replace(split_of=inherited), {})
