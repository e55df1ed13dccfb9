"""Before a run starts: what its stages will need is said, and a disk without room for them is refused."""

import logging
import shutil
from pathlib import Path

import pytest

from deployments.machine_check import require_machine
from deployments.recipes.paper import atomic
from deployments.recipes.simulated import demo
from schemas.config import RunOptions
from schemas.world import demo_world
from trajpilot_core.errors import StoreError


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10_000_000)
    monkeypatch.setattr("trajpilot_core.store.lock.shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)


def test_a_simulated_world_that_the_disk_has_no_room_for_is_refused(tmp_path: Path) -> None:
    options = RunOptions(root=str(tmp_path), device="cpu")
    with pytest.raises(StoreError, match=r"a run needs 0\.\d+ GB under .*, but only 0\.01 GB is free there"):
        require_machine(demo(), options, demo_world())
    require_machine(demo(), options.replace(ignore_needs=True), demo_world())


def test_a_corpus_that_nobody_has_counted_is_refused_nothing_and_told_the_papers_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "trajpilot"):
        require_machine(atomic(), RunOptions(root=str(tmp_path), device="cpu"), None)
    assert "needs at most" in caplog.text
    assert "GB of disk, at the paper's sizes" in caplog.text
