"""A tracker gets each epoch once, and can neither fail a run nor change a key."""

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from pydantic import ValidationError
from stored_world import options, run_world, world

from schemas.artifacts import ArtifactRef
from schemas.config import RunOptions
from tasks import tracking
from tasks.tracking import steps_of, track
from trajpilot_core import open as opened
from trajpilot_core.opened import OpenRun
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import current_manifest, ref_of


class Tracker:
    """As much of W&B's interface as is used, in memory."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0
        self.fault: Exception | None = None

    def init(self, **stated: Any) -> "Tracker":
        self.begun.append(stated)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose E_tau is trained."""
    root = tmp_path_factory.mktemp("tracked") / "root"
    run_world(root, world(), until="alignment")
    return root


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    made = Tracker()
    monkeypatch.setitem(sys.modules, "wandb", made)
    monkeypatch.setattr(OpenRun, "warning", "SIMULATED")  # the takes of this world do not name their corpus
    return made


def ref(root: Path) -> ArtifactRef:
    folder = LocalFolder(str(root))
    manifest = current_manifest(folder, "alignment")
    assert manifest is not None
    return ref_of(folder, manifest)


def test_every_epoch_of_the_curves_is_logged_once_in_order(root: Path, tracker: Tracker) -> None:
    track(ref(root), options(root, tracker="wandb"))
    (begun,) = tracker.begun
    assert begun["project"] == "trajpilot"
    assert begun["config"]["simulated"] is True
    curves = opened(root).table("alignment_curves")
    assert [step for step, _ in tracker.logged] == sorted(set(curves["epoch"].to_list()))
    assert sum(len(values) for _, values in tracker.logged) == len(curves)
    assert tracker.finished == 1


def test_without_a_tracker_nothing_is_imported_or_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "send", lambda *_: pytest.fail("no tracker was asked for"))
    track(ref(root), options(root))


def test_a_tracker_that_fails_or_is_not_installed_fails_no_stage(
    root: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number, fault in enumerate((RuntimeError("no network"), KeyError("quota")), start=1):
        tracker.fault = fault
        with caplog.at_level(logging.INFO, logger="trajpilot"):
            track(ref(root), options(root, tracker="wandb"))
        assert tracker.finished == number, "its run is closed all the same"
        assert f"wandb failed: {type(fault).__name__}" in caplog.text
    monkeypatch.setitem(sys.modules, "trackio", None)
    with caplog.at_level(logging.INFO, logger="trajpilot"):
        track(ref(root), options(root, tracker="trackio"))
    assert "trackio failed: ModuleNotFoundError" in caplog.text


def test_means_over_the_horizons_stand_alone() -> None:
    mean = {"variant": "oracle", "metric": "M@1", "pooling": "plain", "value": 0.4, "seed": None}
    rows = [
        {**mean, "reference": None, "horizon": None},
        {**mean, "reference": "no_traj", "horizon": None, "value": 0.1},
        {**mean, "reference": None, "horizon": 3, "value": 0.5},
    ]
    held = SimpleNamespace(entries={"metrics": object()})
    stub = SimpleNamespace(
        outputs={"evaluation": held}, table=lambda name: pl.DataFrame(rows, infer_schema_length=None)
    )
    assert steps_of(cast(OpenRun, stub), "evaluation") == {0: {"oracle/M@1": 0.4}}


def test_a_tracker_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="tracker"):
        RunOptions(tracker="os")  # type: ignore[arg-type]
