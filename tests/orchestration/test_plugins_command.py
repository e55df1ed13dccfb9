"""The command of docs/plugins.md on a finished run, with the package that pip has installed: its row is shown."""

import base64
import os
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from checkout import CHECKOUT
from plugins_fixture import pip_install
from whole_run import Ran

NAME, METRIC = "Most frequent (plugin)", "First"


def documented() -> list[str]:
    """Return the settings of the page's command; its folders and its recipe are those of the finished run."""
    (typed,) = re.findall(
        r"^trajpilot run (?:.*\\\n)*.*$", (CHECKOUT / "docs" / "plugins.md").read_text(), re.MULTILINE
    )
    words = shlex.split(typed.replace("\\\n", " "))
    assert words[2::2][:3] == ["--recipe", "--data", "--root"]
    return words[8:]


def artifact(root: Path, key: str) -> str:
    """Return what the UI shows under a key, pictures as their own text."""
    with closing(sqlite3.connect(root / "prefect" / "prefect.db")) as database:
        *_, (data,) = database.execute("select data from artifact where key = ? order by created", (key,)).fetchall()
    pictures = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", data)
    return str(data) + "".join(base64.b64decode(one).decode() for one in pictures)


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
    assert f'data-metric="{METRIC}"' in page
    for key in ("report-summary", "evaluation-accuracy"):
        assert NAME in artifact(root, key), key
