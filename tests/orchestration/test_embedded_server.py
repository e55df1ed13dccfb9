"""The server that a run starts for itself: it ends with its run, the run ends with it, and roots do not mix."""

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from once import EmptyDatabase, Worlds
from stack_processes import free_port, processes_of, servers_over
from test_command import COMMAND, environment, start, wait_for

from schemas.world import tiny_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
Run = Callable[[Path], "subprocess.Popen[str]"]
RUN = ("run", "--recipe", "demo", "--only", "ingest", "--only", "features", "--max-rejects", "0.6", "--workers", "1")
STARTED_S, NEWS_S, ENDED_S = 600.0, 120.0, 20.0
"""A start on a machine with ten processes a core took 200 s; a run reports the end of its server in one second."""


@pytest.fixture(scope="module")
def corpus(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.copy(tiny_world(), tmp_path_factory.mktemp("corpus") / "world")


@pytest.fixture
def run(corpus: Path) -> Iterator[Run]:
    """Starts a run into a root; what is left of it in the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def started_into(root: Path) -> "subprocess.Popen[str]":
        stated = ("--set", "ingest.dev_min=1", "--data", str(corpus), "--root", str(root))
        started.append(start((*RUN, *stated), root.parent, environment(root.parent / "home")))
        return started[-1]

    yield started_into
    for process in started:
        process.kill()
        process.wait()


def test_a_copied_root_leaves_the_other_run_s_server_alone_and_killed_runs_leave_none(
    run: Run, tmp_path: Path, empty_database: EmptyDatabase
) -> None:
    roots = tmp_path / "original", tmp_path / "copy"
    empty_database.copy(roots[0] / "prefect")
    original = run(roots[0])
    wait_for(lambda: servers_over(roots[0]) != [], STARTED_S)
    original.send_signal(signal.SIGSTOP)
    (server,) = servers_over(roots[0])
    shutil.copytree(roots[0], roots[1])
    (roots[1] / "prefect" / "server.pid").write_text(f"{server}\n")  # as versions up to 0.1 left it behind
    copy = run(roots[1])
    wait_for(lambda: servers_over(roots[1]) != [], STARTED_S)
    assert servers_over(roots[0]) == [server]
    for process, root in ((original, roots[0]), (copy, roots[1])):
        process.kill()
        process.communicate()
        wait_for(lambda root=root: processes_of(root) == {}, ENDED_S)  # type: ignore[misc]


def test_a_run_whose_server_is_killed_ends_with_one_sentence_and_the_same_command_loses_nothing(
    run: Run, tmp_path: Path, empty_database: EmptyDatabase
) -> None:
    root = tmp_path / "root"
    empty_database.copy(root / "prefect")
    process = run(root)
    wait_for(lambda: finished(root) != {}, STARTED_S)
    for server in servers_over(root):
        os.kill(server, signal.SIGKILL)
    output, _ = process.communicate(timeout=NEWS_S)
    assert process.returncode == 2
    *lines, last = output.splitlines()
    assert last.startswith("error: the Prefect server of this run ended with status -9")
    assert "the same command goes on from there" in last
    assert all("refect" not in line for line in lines[1:]), "nothing of Prefect's own stands between our lines"
    (log,) = (root / "logs").glob("*.log")
    assert last.removeprefix("error: ") in log.read_text().splitlines()[-1]
    wait_for(lambda: processes_of(root) == {}, ENDED_S)
    kept = finished(root)
    again = run(root)
    output, _ = again.communicate(timeout=STARTED_S)
    assert again.returncode == 0, output
    assert finished(root).items() >= kept.items()


def finished(root: Path) -> dict[Path, int]:
    """The records of finished shards of features, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in (root / "artifacts" / "features").glob("shards/*/record.json")}


def test_the_server_of_a_ui_that_is_killed_ends(tmp_path: Path, empty_database: EmptyDatabase) -> None:
    empty_database.copy(tmp_path / "root" / "prefect")
    command = [COMMAND, "ui", "--root", str(tmp_path / "root"), "--port", str(free_port())]
    ui = subprocess.Popen(command, env=environment(tmp_path / "home"), stdout=subprocess.DEVNULL)
    wait_for(lambda: servers_over(tmp_path / "root") != [], STARTED_S)
    ui.kill()
    ui.wait()
    wait_for(lambda: processes_of(tmp_path / "root") == {}, ENDED_S)


def test_the_end_of_a_server_is_reported_while_its_run_goes_on_and_not_after(tmp_path: Path) -> None:
    from deployments.embedded import watch

    server, said, is_over = subprocess.Popen(["sleep", "600"]), list[str](), threading.Event()
    watcher = threading.Thread(target=watch, args=(server, is_over, tmp_path / "server.log", said.append))
    watcher.start()
    server.kill()
    watcher.join(ENDED_S)
    assert "ended with status -9" in said[0]
    assert str(tmp_path / "server.log") in said[0]
    is_over.set()
    watch(server, is_over, tmp_path / "server.log", said.append)
    assert len(said) == 1


def test_the_last_sentence_comes_after_the_progress_bars_gave_the_terminal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deployments import session

    terminal, hide, show = io.StringIO(), "\x1b[?25l", "\x1b[?25h"
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "xterm")
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, terminal)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit), session.logging_to(tmp_path):
        session.end_without_server("the server ended")
    before, sentence, after = terminal.getvalue().partition("error: the server ended\n")
    assert show in before.partition(hide)[2]
    assert sentence
    assert "the server ended" not in after
