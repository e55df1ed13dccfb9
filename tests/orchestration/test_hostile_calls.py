"""Hostile calls of every command: links in a circle, names and files that are not UTF-8, endless nesting and digits.

Each call ends with one sentence and status 2, or does what it always does. What would start a server, a run or a
measurement is replaced: here only what comes in is of interest. A new command or option is in the matrix by itself.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer

from deployments.cli import main as command_line
from deployments.recipes import recipe
from schemas.config import RunOptions
from trajpilot_core.engine.settings import NAME as LAST_RUN
from trajpilot_core.engine.settings import remember_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LEVELS, DIGITS = 1000, 5000
NESTED, OBJECTS = "[" * LEVELS + "]" * LEVELS, '{"a":' * LEVELS + "1" + "}" * LEVELS
ENDLESS = "9" * DIGITS
NOT_UTF8 = os.fsdecode(b"name-\xff-\xfe")
"""A file name whose bytes are not UTF-8, as Python hands it over."""
TEXTS = {"loop": "loop/x", "bytes": NOT_UTF8, "nested": NESTED, "digits": ENDLESS}
"""What each argument of each command is once; of --set the value of a setting."""
GIVEN = {
    "data": "corpus",
    "first": "root",
    "second": "root",
    "video": "corpus/video.mp4",
    "start": "0-1",
    "goal": "2-3",
    "folder": "new",
    "out": "out",
    "files": "empty.jsonl",
    "root": "root",
}
"""Arguments that a call has besides the hostile one, where its command takes them."""
WITHOUT_ROOT = {"demo"}
STATUS_1 = {"verify", "doctor"}
"""Commands whose status 1 says that they found something."""
ERROR = re.compile(r"^error: |─ Error ─", re.MULTILINE)
"""Our own sentence, or that of the parser of arguments."""
NOTES = {
    "nested": NESTED.encode(),
    "objects": OBJECTS.encode(),
    "digits": f'{{"sha256": {ENDLESS}}}'.encode(),
    "bytes": b'{"sha256": "\xff"}',
    "utf16": '{"sha256": "a"}'.encode("utf-16"),
    "surrogate": b'{"sha256": "\\ud800", "a": "\\ud800"}',
    "list": b"[]",
}
"""What stands in a file in place of what this project wrote."""
READERS = {
    LAST_RUN: (["status"], ["plan"], ["doctor"]),
    "artifacts/ingest/current": (["status", "--data=corpus"], ["verify"], ["gc"]),
    "artifacts/ingest/x/manifest.json": (["verify"], ["gc"], ["compare", "--metric=M@1", "ROOT@x", "ROOT@x"]),
    "world/world.json": (["demo", "--world=tiny"],),
}
"""Commands that read what lies there below a root."""
Calls = Iterator[list[str]]
COMMAND = typer.main.get_command(command_line.app)
"""Built once: a call of `app` builds all commands again."""


def commands(node: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    node = node or COMMAND
    for name, inner in getattr(node, "commands", {}).items():
        yield from commands(inner, (*words, name))
    if not hasattr(node, "commands"):
        yield words, [one for one in node.params if one.name != "help" and not getattr(one, "is_flag", False)]


def call(words: tuple[str, ...], params: list[Any], hostile: Any, text: str) -> list[str]:
    """The arguments of a call whose parameter `hostile` has the value `text`."""
    found = list(words)
    for one in params:
        is_given = one.required or (one.name == "root" and words[0] not in WITHOUT_ROOT)
        value = text if one is hostile else GIVEN.get(one.name) if is_given else None
        if value is not None:
            found += [f"{one.opts[0]}={value}"] if one.opts[0].startswith("--") else [value]
    return found


def of_arguments() -> Calls:
    for words, params in commands():
        for one, text in product(params, TEXTS.values()):
            yield call(words, params, one, f"features.size_px={text}" if one.opts[0] == "--set" else text)


def of_roots() -> Calls:
    for (number, readers), name in product(enumerate(READERS.values()), NOTES):
        root = f"root-{number}-{name}"
        for words in readers:
            rooted = [] if "ROOT" in " ".join(words) else [f"--root={root}"]
            yield [*(word.replace("ROOT", root) for word in words), *rooted]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a circle of links, roots of runs, and hostile files."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "loop").symlink_to(folder / "pool")
    (folder / "pool").symlink_to(folder / "loop")
    (folder / "corpus").mkdir()
    (folder / "empty.jsonl").touch()
    remember_run(recipe("demo"), RunOptions(root=str(folder / "root"), data_root=str(folder / "corpus"), device="cpu"))
    stray = folder / "root" / "artifacts" / "ingest" / NOT_UTF8
    stray.parent.mkdir(parents=True)
    stray.touch()
    for number, place in enumerate(READERS):
        for name, content in NOTES.items():
            target = folder / f"root-{number}-{name}" / place
            target.parent.mkdir(parents=True)
            target.write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def without_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace whatever would start a server or a run."""
    import subprocess

    from deployments import session

    def ended(*_: object, **__: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(command_line, "app", COMMAND)
    monkeypatch.setattr(session, "session", ended)
    monkeypatch.setattr(subprocess, "call", ended)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("calls", [of_arguments, of_roots])
def test_a_hostile_call_ends_with_one_sentence(
    calls: Callable[[], Calls], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {}
    for arguments in calls():
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["trajpilot", *arguments])
            patch.setattr(os, "environ", os.environ.copy())  # commands prepare it for Prefect
            try:
                command_line.main()
                status: object = 0
            except SystemExit as ended:
                status = ended.code or 0
            except Exception as error:  # noqa: BLE001  (a traceback)
                status = repr(error)
        text = capfd.readouterr().err
        is_known = status in (0, 2) or (status == 1 and STATUS_1 & set(arguments))
        if not is_known or len(ERROR.findall(text)) != (status == 2) or len(text) >= 3 * DIGITS:
            wrong[" ".join(arguments)[:200]] = (status, text[-500:])
    assert wrong == {}
