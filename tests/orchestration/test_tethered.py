"""A server ends with the process that started it, however that one ends; shown with a module that stands in for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stack_processes import wait_for

from deployments.tethered import launch, stop

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


def test_a_server_and_its_children_end_with_a_run_that_is_killed(note: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        note.unlink(missing_ok=True)
        run = parent(TETHERED, note)
        assert len(living(note)) == 2
        run.send_signal(number)
        run.wait()
        wait_for(lambda: living(note) == [])


def test_a_server_without_the_pipe_would_outlive_the_run(note: Path) -> None:
    run = parent(LOOSE, note)
    assert len(living(note)) == 2
    run.kill()
    run.wait()
    time.sleep(1.0)
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
