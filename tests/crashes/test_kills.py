"""A first part of `make soak`, and the proof that its checks see what they are there for. The preset is `soak`.

Then every operation of the storage fails, once or from there on: success or one named failure, and nothing is lost.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from countdown import Armed, Countdown, count_work
from once import EmptyDatabase, Shelf, Worlds
from toy_stages import options, run_toys, tree_bytes, write_corpus

from schemas.world import soak_world
from trajpilot_core.errors import StoreIOError
from trajpilot_core.stages import STAGES, features
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import LocalFolder, advice, open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.training import loop

SOAK = Path(__file__).with_name("soak.py")


@pytest.fixture(scope="module")
def undisturbed(shelf: Shelf, worlds: Worlds, empty_database: EmptyDatabase) -> Callable[[Path], Path]:
    """Copy the world, the undisturbed run and an empty Prefect database to a folder; made for the first who asks."""

    def copy(folder: Path) -> Path:
        with shelf.held("undisturbed") as made:
            if not (made / "reference.json").exists():
                shutil.rmtree(made, ignore_errors=True)
                worlds.copy(soak_world(), made / "world")
                empty_database.copy(made / "prefect")
                places = ("--narrow", "--work", str(made), "--log", str(made / "log.jsonl"))
                subprocess.run([sys.executable, str(SOAK), *places, "--kills", "0"], check=True)
                (made / "log.jsonl").unlink(missing_ok=True)
        return Path(shutil.copytree(made, folder, dirs_exist_ok=True))

    return copy


@pytest.fixture(scope="module")
def work(undisturbed: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("soak"))


def soak(work: Path, *options: str) -> tuple[int, str, list[dict]]:
    """Run the script; return its status, what it said, and the rows of its log."""
    log = work / "log.jsonl"
    places = ("--narrow", "--work", str(work), "--log", str(log))
    done = subprocess.run([sys.executable, str(SOAK), *places, *options], capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return done.returncode, done.stdout + done.stderr, rows


def test_every_epoch_and_every_encoded_clip_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the counting wraps exists under that name, which only campaigns would tell."""
    noted: list[str] = []
    for module, name in ((loop, "run_epoch"), (features, "_encode")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back after the test
    monkeypatch.setattr(loop, "run_epoch", lambda *_: None)
    count_work(SimpleNamespace(plan=SimpleNamespace(below="x"), note=lambda kind, path: noted.append(f"{kind} {path}")))
    take = features.TakeClips("t", "v.mp4", [("s0", 0.0, 1.0), ("s1", 1.0, 2.0), ("s2", 2.0, 3.0)], waiting=3)
    encoder = SimpleNamespace(embed=lambda frames: np.ones((len(frames), 4), np.float16))
    clips = [{"segment": row, "pts_s": [row + 0.5]} for row in range(3)]
    features._encode([(take, clip, np.zeros(1, np.uint8)) for clip in clips], encoder)
    assert (noted, sorted(take.rows), take.waiting) == ([f"clip x/t/{row}" for row in range(3)], [0, 1, 2], 0)
    training = SimpleNamespace(name="m", seed=0)
    loop.run_epoch(training, None, None, SimpleNamespace(epoch=4), "cpu")
    assert noted[3:] == ["epoch x/m/s0/5"]


@pytest.mark.campaign
def test_after_a_kill_in_every_stage_nothing_is_lost_or_done_twice_and_the_bytes_are_the_same(work: Path) -> None:
    status, said, rows = soak(work, "--kills", str(len(STAGES)), "--seed", "1")
    killed = [row for row in rows if row["row"] == "kill"]
    assert (status, len(killed)) == (0, len(STAGES)), said
    assert {row["stage"] for row in killed} == set(STAGES)
    assert {row["status"] for row in killed} == {-9}
    assert soak(work, "--kills", str(len(STAGES)), "--seed", "1")[2] == rows, "a soak that is done does nothing again"


@pytest.mark.campaign
def test_after_kill_9_of_the_command_the_same_command_ends_as_if_nothing_had_happened(work: Path) -> None:
    status, said, rows = soak(work, "--kills", "9", "--flows", "1", "--seed", "1")
    assert (status, sum(row["row"] == "flow" for row in rows)) == (0, 1), said


@pytest.mark.campaign
def test_every_planted_fault_turns_the_soak_red(work: Path) -> None:
    status, said, _ = soak(work, "--prove")
    assert status == 0, said
    assert said.count("red    planted") == 7, said


EVERY = 10
"""After so many failures the run is given again and its bytes are compared."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def attempt(root: Path, corpus: Path, plan: Countdown) -> tuple[bool, str]:
    """Run all toys with one fault; return whether it struck, and the failure, empty on success."""
    armed = Armed(plan)
    failure = ""
    with pytest.MonkeyPatch.context() as patch:
        armed.install(patch.setattr)
        try:
            run_toys(options(root, corpus))
        except StoreIOError as error:
            failure = str(error)
    struck = armed.counted() >= plan.at
    armed.close()
    return struck, failure


@pytest.mark.parametrize(
    ("error", "persistent", "step"),
    [
        (errno.EIO, False, 4),
        pytest.param(errno.EIO, False, 1, marks=pytest.mark.campaign),
        pytest.param(errno.EACCES, True, 1, marks=pytest.mark.campaign),
        pytest.param(errno.ENOSPC, True, 1, marks=pytest.mark.campaign),
    ],
    ids=["one failure, every fourth", "one failure", "permission denied", "disk full"],
)
def test_a_fault_at_any_operation_is_success_or_one_named_failure(
    tmp_path: Path, error: int, persistent: bool, step: int
) -> None:
    corpus = write_corpus(tmp_path / "corpus", takes=1)
    run_toys(options(tmp_path / "whole", corpus))
    expected = tree_bytes(tmp_path / "whole")
    run_toys(options(tmp_path / "before", corpus), until="toy_ingest")
    failures = 0
    for n, at in enumerate(count(1, step), start=1):
        root = tmp_path / "root"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(tmp_path / "before", root)
        plan = Countdown(str(root), str(tmp_path / f"trace{at}"), at=at, error=error, persistent=persistent)
        struck, failure = attempt(root, corpus, plan)
        assert verify(str(root), repair=False) == []
        assert current_manifest(open_folder(str(root)), "toy_ingest") is not None
        if failure:
            failures += 1
            assert str(root) in failure
            assert os.strerror(error) in failure
            assert advice(OSError(error, "")) in failure
        if not failure or n % EVERY == 0:
            run_toys(options(root, corpus))
            assert {path: content for path, content in tree_bytes(root).items() if path in expected} == expected
        if not struck:
            break
    assert at > 80
    assert failures > 0.4 * n


def test_a_folder_that_leaks_errors_of_the_system_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the test above is there for: a look that does not name its failure."""
    corpus = write_corpus(tmp_path / "corpus", takes=1)
    monkeypatch.setattr(LocalFolder, "size", lambda self, path: self.local(path).lstat().st_size)
    with pytest.raises(OSError, match="No such file") as leaked:
        run_toys(options(tmp_path / "root", corpus))
    assert not isinstance(leaked.value, StoreIOError)


@pytest.mark.campaign
def test_faults_under_the_real_stages_a_full_disk_and_a_read_only_root_end_clean(
    undisturbed: Callable[[Path], Path], tmp_path: Path
) -> None:
    shared = Path(tmp_path.anchor, "tmp") / f"trajpilot-faults-{os.getpid()}"  # a folder that others may look into
    shared.mkdir(mode=0o755)
    undisturbed(shared)
    try:
        status, said, _ = soak(shared, "--faults", "9", "--seed", "2")
        assert status == 0, said
        assert said.count("green  fault") == 9, said
    finally:
        shutil.rmtree(shared)
