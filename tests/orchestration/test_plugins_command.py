"""The run of docs/plugins.md as a user types it, with the package that pip has installed: it ends well and is shown."""

import base64
import os
import re
import shlex
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from checkout import CHECKOUT
from once import EmptyDatabase, Worlds
from plugins_fixture import pip_install
from test_command import COMMAND, environment

from schemas.world import tiny_world

NAME, METRIC = "Most frequent (plugin)", "First"
SMALL = (
    *("ingest.dev_min=1", "ingest.max_horizon=4", "features.size_px=64", "features.n_frames=4"),
    *("alignment.train.epochs=1", "scorer.train.epochs=1", "scorer.candidates=4"),
    *("predictor.train.epochs=1", "predictor.width=32", "predictor.hidden=64", "predictor.layers=1"),
    *("scorer.prefetch=8", "evaluation.bootstrap=100", "evaluation.shuffles=1", "report.examples=1"),
)


def documented(data: Path, root: Path) -> list[str]:
    """Return the command of the page, with other folders, and with settings of seconds behind it."""
    page = (CHECKOUT / "docs" / "plugins.md").read_text()
    (typed,) = re.findall(r"^trajpilot run (?:.*\\\n)*.*$", page, re.MULTILINE)
    words = shlex.split(typed.replace("\\\n", " "))
    for option, place in (("--data", data), ("--root", root)):
        words[words.index(option) + 1] = str(place)
    return [COMMAND, *words[1:], "--max-rejects", "0.6", *(word for one in SMALL for word in ("--set", one))]


def artifact(root: Path, key: str) -> str:
    """Return what the UI shows under a key, pictures as their own text."""
    with closing(sqlite3.connect(root / "prefect" / "prefect.db")) as database:
        ((data,),) = database.execute("select data from artifact where key = ?", (key,)).fetchall()
    pictures = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", data)
    return str(data) + "".join(base64.b64decode(one).decode() for one in pictures)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_command_of_the_page_ends_well_and_report_and_ui_show_the_row(
    worlds: Worlds, empty_database: EmptyDatabase, tmp_path: Path
) -> None:
    """Seen before: exit 2 after everything was computed, since what places the report did not list the plugin."""
    root, site = tmp_path / "root", pip_install(tmp_path / "plugins")
    empty_database.copy(root / "prefect")
    paths = os.pathsep.join([str(CHECKOUT), str(site)])
    done = subprocess.run(
        documented(worlds.copy(tiny_world(), tmp_path / "world"), root),
        cwd=tmp_path,
        env=environment(tmp_path / "home", PYTHONPATH=paths),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "MethodError" not in done.stdout + done.stderr
    page = (root / "reports" / "report.html").read_text()
    assert NAME in page
    assert f'data-metric="{METRIC}"' in page
    for key in ("report-summary", "evaluation-accuracy"):
        assert NAME in artifact(root, key), key
