"""The `trajpilot` command as a user starts it: in any folder, with a taken port, on a server that runs, two at once,
with plugins."""

import base64
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import CHECKOUT
from compose_server import LOGIN
from hostile import FILES_OF_HOME
from once import EmptyDatabase, Worlds
from plugins_fixture import pip_install
from stack_processes import servers_over, wait_for
from whole_run import ELSEWHERE, RUN, Ran, typed

from schemas.world import soak_world

COMMAND = str(Path(sys.executable).parent / "trajpilot")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def corpus(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.copy(soak_world(), tmp_path_factory.mktemp("corpus") / "world")


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a new user: an empty home and none of Prefect's variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT") and k != "XDG_CACHE_HOME"}
    home.mkdir(parents=True, exist_ok=True)
    return {**kept, "HOME": str(home), **more}


def start(arguments: tuple[str, ...], cwd: Path, env: dict[str, str], **how: Any) -> subprocess.Popen[str]:
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([COMMAND, *arguments], cwd=cwd, env=env, **output, **how)


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    return output


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


@pytest.mark.campaign  # two runs of one stage: tests/core/engine/test_two_runs.py
def test_of_two_runs_on_one_root_and_the_user_s_server_the_second_waits_and_recomputes_nothing(
    corpus: Path, tmp_path: Path, prefect_server: str
) -> None:
    arguments = (*RUN, "--only", "ingest", "--data", str(corpus), "--root", str(tmp_path / "root"))
    server = {"PREFECT_API_URL": prefect_server, "PREFECT_API_AUTH_STRING": LOGIN}
    started = [start(arguments, tmp_path, environment(tmp_path / f"home{n}", **server)) for n in range(2)]
    outputs = sorted(map(finish, started), key=lambda text: "waiting" in text)
    assert "waiting: " not in outputs[0]
    assert "is in use by process" in outputs[1]
    assert "ingest        reused, " in outputs[1]
    assert all(f"Prefect server {prefect_server} (your PREFECT_API_URL)" in output for output in outputs)
    assert not (tmp_path / "root" / "prefect" / "prefect.db").exists()


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


def test_an_interrupt_that_ends_in_another_error_is_an_interrupt_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen before: exit 1, where Ctrl-C came while Prefect was starting a flow."""
    from deployments import session

    def loses_its_server() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise RuntimeError("the event loop was closed") from error

    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit) as ended, session.interruptible():
        loses_its_server()
    assert ended.value.code == 130
    assert "interrupted: finished work is kept" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="of its own"), session.interruptible():
        raise RuntimeError("an error of its own")


NAME, METRIC = "Most frequent (plugin)", "First"


def documented() -> list[str]:
    """Return the settings of the page's command; its folders and its recipe are those of the finished run."""
    page = (CHECKOUT / "docs" / "plugins.md").read_text()
    (command,) = re.findall(r"^trajpilot run (?:.*\\\n)*.*$", page, re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    assert words[2::2][:3] == ["--recipe", "--data", "--root"]
    return words[8:]


def artifact(root: Path, key: str) -> str:
    with closing(sqlite3.connect(root / "prefect" / "prefect.db")) as database:
        *_, (data,) = database.execute("select data from artifact where key = ? order by created", (key,)).fetchall()
    pictures = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", data)
    return str(data) + "".join(base64.b64decode(one).decode() for one in pictures)


# the row of a plugin, whose package pip has installed: docs/plugins.md
@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_the_command_of_the_page_ends_well_and_report_and_ui_show_the_row(ran: Ran, tmp_path: Path) -> None:
    """Seen before: exit 2 after everything was computed, since what places the report did not list the plugin."""
    root = Path(shutil.copytree(ran.root, tmp_path / "root"))
    paths = os.pathsep.join([str(CHECKOUT), str(pip_install(tmp_path / "plugins"))])
    with_plugins = ran._replace(environment={**ran.environment, "PYTHONPATH": paths})
    status, said = with_plugins.again(root, *documented())
    assert status == 0, said
    assert "MethodError" not in said
    page = (root / "reports" / "report.html").read_text()
    assert NAME in page
    assert f">{METRIC}</abbr>" in page
    for key in ("report-summary", "evaluation-accuracy"):
        assert NAME in artifact(root, key), key
