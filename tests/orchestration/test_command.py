"""The `trajpilot` command as a user starts it: in any folder, with a taken port, and how it ends."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hostile import FILES_OF_HOME
from once import EmptyDatabase, Worlds
from stack_processes import servers_over, wait_for
from whole_run import ELSEWHERE, RUN, Ran, typed

from schemas.world import soak_world

COMMAND = str(Path(sys.executable).parent / "trajpilot")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def corpus(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.copy(soak_world(), tmp_path_factory.mktemp("corpus") / "world")


def environment(home: Path) -> dict[str, str]:
    """The environment of a new user: an empty home and none of Prefect's variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT") and k != "XDG_CACHE_HOME"}
    home.mkdir(parents=True, exist_ok=True)
    return {**kept, "HOME": str(home)}


def start(arguments: tuple[str, ...], cwd: Path, env: dict[str, str], **how: Any) -> subprocess.Popen[str]:
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([COMMAND, *arguments], cwd=cwd, env=env, **output, **how)


def test_a_run_in_another_folder_writes_under_its_root_only(ran: Ran, tmp_path: Path) -> None:
    lines, home = ran.output.strip().splitlines(), Path(ran.environment["HOME"])
    assert lines[0].startswith("TrajPilot on ")
    assert str(ran.root) in lines[0]
    assert "Traceback" not in ran.output
    status, ui = (line.partition(": ")[2] for line in lines if "trajpilot " in line.partition(": ")[2])
    assert ui.startswith(f"{status.split()[0]} ui ")
    bare = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}  # no path and no variable of ours
    done = subprocess.run(["/bin/sh", "-c", status], cwd="/", env=bare, capture_output=True, text=True, check=True)
    assert "fresh" in done.stdout
    assert list((ran.root.parent / ELSEWHERE).iterdir()) == []
    assert sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file()) == [*FILES_OF_HOME]
    assert servers_over(ran.root) == []


def test_a_mistake_is_answered_with_one_message_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    for mistake, said in (
        ("--set=features.size_px=3", "features.size_px is 3"),
        ("--recipe=soup", "no recipe is called 'soup'"),
        (f"--root={tmp_path}/taken/root", "choose another --root"),
    ):
        status, told = typed("run", "--root", str(tmp_path / "root"), "--data", str(tmp_path), mistake)
        assert (status, told.startswith("error: "), said in told) == (2, True, True), told


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.campaign)])
def test_ctrl_c_ends_the_run_and_its_server_at_once_and_says_how_to_go_on(
    corpus: Path, tmp_path: Path, number: int, empty_database: EmptyDatabase
) -> None:
    root = tmp_path / "root"
    empty_database.copy(root / "prefect")
    words, home = (*RUN, "--data", str(corpus), "--root", str(root)), environment(tmp_path / "home")
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    process = start(words, tmp_path, home, start_new_session=True, preexec_fn=heed)
    wait_for(lambda: any("started" in log.read_text() for log in root.glob("logs/*.log")), 120.0)
    os.killpg(process.pid, number) if number == signal.SIGINT else os.kill(process.pid, number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted: finished work is kept" in output
    wait_for(lambda: servers_over(root) == [], 20.0)


def test_an_interrupt_ends_the_run_whatever_becomes_of_its_exception(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen before: exit 1, where Ctrl-C came while Prefect was starting a flow; exit 0, where it was swallowed."""
    from deployments import session

    ended = threading.Event()

    def loses_its_server() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("the event loop was closed") from error

    def goes_on() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    def goes_on_for_long() -> None:
        goes_on()
        assert ended.wait(20.0)

    def leave(status: int) -> None:
        ended.set()
        sys.exit(status)

    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr(session, "SWALLOWED_S", 0.1)
    for work in (loses_its_server, goes_on, goes_on_for_long):
        with pytest.raises(SystemExit) as left, session.interruptible():
            work()
        assert left.value.code == 130
        assert "interrupted: finished work is kept" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="of its own"), session.interruptible():
        raise RuntimeError("an error of its own")
