"""The written corpus: layout, equal bytes, resuming after a kill, and every planted fault."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import CHECKOUT
from layouts_fixture import Written, contents, faulty_world
from once import Worlds

from schemas.world import WorldConfig, tiny_world
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import WorldError
from trajpilot_core.simworld import faults
from trajpilot_core.simworld.layouts.metadata import PARAPHRASE_TABLE
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.write import world_digest, write_world


def small(**changes: object) -> WorldConfig:
    """A world of four takes, written in a second."""
    few = {"train_takes": 3, "test_takes": 1, "segments": 3, "segment_s": 0.6, "fps": 10, "size_px": 64}
    return tiny_world().replace(**{**few, "broken": "none", **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What this process writes of the small world."""
    folder = tmp_path_factory.mktemp("whole") / "world"
    write_world(small(), folder, 1, no_progress)
    return contents(folder)


@pytest.fixture(scope="module")
def corpus(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A world with all faults of the default layout."""
    config = faulty_world("egoexo4d")
    return Written(worlds.copy(config, tmp_path_factory.mktemp("corpus") / "world"), sample_world(config))


def test_a_complete_world_is_left_alone_and_another_one_is_refused(whole: dict[str, bytes], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    first = write_world(small(), tmp_path, 1, lambda done, total, what: seen.append((done, total)))
    assert seen == [(k, 4) for k in range(5)], "progress counts every take once"
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in contents(tmp_path)}
    again = write_world(small(), tmp_path, 1, no_progress)
    assert (first.written, first.reused) == (4, 0)
    assert (again.written, again.reused) == (0, 4)
    assert before == {name: (tmp_path / name).stat().st_mtime_ns for name in contents(tmp_path)}
    assert contents(tmp_path) == whole
    with pytest.raises(WorldError, match="another world, of another name, settings or version"):
        write_world(small(seed=5), tmp_path, 1, no_progress)


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "takes.json").write_text("[]")
    with pytest.raises(WorldError, match="not empty"):
        write_world(small(), tmp_path, 1, no_progress)
    assert contents(tmp_path) == {"takes.json": b"[]"}


def test_an_unfinished_world_of_other_settings_and_a_damaged_note_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".world").mkdir()
    for note, said in ((json.dumps({"digest": world_digest(tiny_world())}), "another world"), ("[", "is no note")):
        (tmp_path / ".world" / "begun.json").write_text(note)
        with pytest.raises(WorldError, match=said):
            write_world(small(), tmp_path, 1, no_progress)


KILLED = """
import sys
from pathlib import Path
from schemas.world import WorldConfig
from trajpilot_core.simworld.write import write_world

if __name__ == "__main__":
    config = WorldConfig.model_validate_json(sys.argv[1])
    write_world(config, Path(sys.argv[2]), int(sys.argv[3]), lambda done, total, what: print(done, flush=True))
"""


def test_a_killed_run_is_finished_by_two_processes_with_the_bytes_of_one(tmp_path: Path) -> None:
    config = small(train_takes=5)
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    folder = tmp_path / "world"
    command = [sys.executable, str(script), config.model_dump_json(), str(folder), "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}
    )
    for line in process.stdout:
        if int(line) >= 2:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (folder / "world.json").exists()
    summary = write_world(config, folder, 2, no_progress)
    assert summary.reused >= 2
    undisturbed = tmp_path / "undisturbed"
    write_world(config, undisturbed, 1, no_progress)
    deadline = time.monotonic() + 20
    while (folder / ".world").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert contents(folder) == contents(undisturbed)


def test_hostile_names_stand_in_the_records_and_touch_nothing_outside(corpus: Written) -> None:
    folder = corpus.folder
    names = {t["take_name"] for t in json.loads((folder / "takes.json").read_text())}
    assert set(faults.NAMES.values()) <= names
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    assert not Path(faults.NAMES["name_absolute"]).exists()


def test_nothing_of_the_truth_stands_in_the_corpus_nor_a_step_outside_its_annotations(corpus: Written) -> None:
    folder, world = corpus
    ids, texts = {label.label_id for label in world.labels}, [t for label in world.labels for t in label.texts]
    for name, data in contents(folder).items():
        text = data.decode(errors="replace") if not name.endswith(".mp4") else ""
        if name != PARAPHRASE_TABLE:
            assert not [i for i in ids if i in text], name
            assert "atomic" in name or not [t for t in texts if t in text], name
        if name != "world.json":
            assert not any(word in text for word in ('"intent', '"primitive', '"fault', "kappa", '"alternative')), name
