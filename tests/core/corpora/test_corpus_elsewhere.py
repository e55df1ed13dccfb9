"""Where a corpus lies is nothing of its content: equal corpora in two folders give equal tables, rejects included."""

from pathlib import Path

import pytest
from layouts_fixture import small_world
from once import Worlds

from deployments.recipes.simulated import soak
from schemas.config import RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest

READERS = ("ingest", "trajectories", "features")


def fingerprints(corpus: Path, root: Path) -> dict[str, str]:
    """Entry -> fingerprint of the stages that read the corpus."""
    base = soak()  # features of four small frames: this is about places
    config = base.replace(ingest=base.ingest.replace(dev_min=1))
    run = RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1, max_reject_ratio=0.9)
    found = {}
    for name in READERS:
        execute(STAGES[name], config, run, STAGES)
        manifest = current_manifest(open_folder(str(root)), name)
        assert manifest is not None
        found |= {entry: content.fingerprint for entry, content in manifest.entries.items()}
    return found


@pytest.mark.slow
def test_a_corpus_that_was_moved_gives_the_same_bytes(worlds: Worlds, tmp_path: Path) -> None:
    config = small_world("egoexo4d", train_takes=2, test_takes=1, segments=4)
    first = worlds.copy(config, tmp_path / "a" / "world")
    before = fingerprints(first, tmp_path / "root_a")
    second = tmp_path / "elsewhere"
    first.rename(second)
    assert fingerprints(second, tmp_path / "root_b") == before
