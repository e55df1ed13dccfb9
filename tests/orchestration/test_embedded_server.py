"""The server that a run starts for itself: it ends with its run, however that one ends, and the run ends with it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from once import EmptyDatabase, Worlds
from stack_processes import processes_of, servers_over, wait_for
from test_command import environment, start

from deployments.recipes.simulated import soak
from deployments.tethered import launch, stop
from schemas.config import RunOptions
from schemas.world import soak_world
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES

pytestmark = pytest.mark.timeout(1800)
STARTED_S, NEWS_S, ENDED_S = 600.0, 120.0, 20.0
"""A start on a machine with ten processes a core took 200 s; a run reports the end of its server in one second."""


@pytest.mark.slow
@pytest.mark.campaign  # a kill
def test_a_run_whose_server_is_killed_ends_with_one_sentence_and_loses_nothing(
    worlds: Worlds, tmp_path: Path, empty_database: EmptyDatabase
) -> None:
    root, data = tmp_path / "root", worlds.copy(soak_world(), tmp_path / "world")
    empty_database.copy(root / "prefect")
    asked = ("run", "--recipe", "soak", "--workers", "1", "--data", str(data), "--root", str(root))
    process = start(asked, tmp_path, environment(tmp_path / "home"))
    wait_for(lambda: finished(root) != {} or process.poll() is not None, STARTED_S)
    for server in servers_over(root):
        os.kill(server, signal.SIGKILL)
    output, _ = process.communicate(timeout=NEWS_S)
    assert process.returncode == 2
    *lines, last = output.splitlines()
    assert last.startswith("error: the Prefect server of this run ended with status -9")
    assert "repeat the same command to continue" in last
    assert all("refect" not in line for line in lines[1:]), "nothing of Prefect's own stands between our lines"
    (log,) = (root / "logs").glob("*.log")
    assert last.removeprefix("error: ") in log.read_text().splitlines()[-1]
    wait_for(lambda: processes_of(root) == {}, ENDED_S)
    kept = finished(root)
    run = RunOptions(root=str(root), data_root=str(data), device="cpu", workers=1)
    outcome = execute(STAGES["features"], soak(), run, STAGES)
    assert outcome.message().startswith(f"reused {len(kept)}, computed ")
    assert finished(root).items() >= kept.items()


def finished(root: Path) -> dict[Path, int]:
    """The records of finished shards of features, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in (root / "artifacts" / "features").glob("shards/*/record.json")}


def test_the_end_of_a_server_is_reported_while_its_run_goes_on_and_not_after(tmp_path: Path) -> None:
    from deployments.embedded import watch

    server, said, is_over = subprocess.Popen(["sleep", "600"]), list[str](), threading.Event()
    given = (server, is_over, tmp_path / "server.log", said.append)
    watcher = threading.Thread(target=watch, args=given)
    watcher.start()
    server.kill()
    watcher.join(ENDED_S)
    assert ("ended with status -9" in said[0], str(tmp_path / "server.log") in said[0]) == (True, True)
    is_over.set()
    watch(*given)
    assert len(said) == 1


def test_the_database_can_be_shared_as_far_as_the_umask_goes_and_one_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before: SQLite withheld the group's write, and a second user read that the server did not start."""
    from deployments.embedded import DATABASE, open_database

    kept = os.umask(0o002)
    try:
        open_database(tmp_path)
    finally:
        os.umask(kept)
    assert (tmp_path / DATABASE).stat().st_mode & 0o777 == 0o664

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refused)
    with pytest.raises(InputError, match=rf"{DATABASE} cannot be written. Two users .* umask 002"):
        open_database(tmp_path)


SERVER = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}.")
time.sleep(600)
"""
TETHERED = "from deployments.tethered import launch; launch(['stands_in', {note!r}], os.environ)"
LOOSE = "import subprocess; subprocess.Popen([sys.executable, '-m', 'stands_in', {note!r}], stdin=subprocess.DEVNULL)"
"""As a run started its server before."""


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server, which ignores SIGTERM and has a child, writes the ids of both."""
    (tmp_path / "stands_in.py").write_text(SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "note"


def living(note: Path) -> list[int]:
    wait_for(lambda: note.exists() and note.read_text().endswith("."))
    return [pid for pid in map(int, note.read_text().rstrip(".").split()) if lives(pid)]


def lives(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def parent(program: str, note: Path) -> subprocess.Popen[bytes]:
    """A run: starts the server and then works."""
    lines = f"import os, sys, time; {program.format(note=str(note))}; time.sleep(600)"
    return subprocess.Popen([sys.executable, "-c", lines])


def test_a_server_and_its_children_end_with_a_run_that_is_killed_and_without_the_pipe_would_outlive_it(
    note: Path,
) -> None:
    for program, number in ((TETHERED, signal.SIGKILL), (TETHERED, signal.SIGTERM), (LOOSE, signal.SIGKILL)):
        note.unlink(missing_ok=True)
        run = parent(program, note)
        assert len(living(note)) == 2
        run.send_signal(number)
        run.wait()
        if program is TETHERED:
            wait_for(lambda: living(note) == [])
    time.sleep(0.2)
    left = living(note)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) == 2


def test_a_server_that_does_not_end_when_it_is_told_to_is_killed_with_its_children(
    note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.tethered.END_S", 0.2)
    server = launch(["stands_in", str(note)], os.environ)
    assert len(living(note)) == 2
    stop(server)
    wait_for(lambda: living(note) == [])
    assert server.returncode == -signal.SIGKILL
