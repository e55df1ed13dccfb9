"""One run of the whole pipeline as a user starts it, on the small world, with a secret in every place where a user has
one and a hostile text in every free text. Made once for all test processes; nobody changes it."""

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hostile import home_with_secrets, hostile_corpus
from once import EmptyDatabase, Shelf, Worlds
from stack_processes import PATIENCE, servers_over

from deployments.cli import main as command_line
from schemas.world import soak_world

EXAMPLES = 6
ELSEWHERE = "elsewhere"
"""The folder in which the command is typed."""
RUN = ("run", "--recipe", "soak", "--workers", "1", "--max-rejects", "0.6", "--set", f"report.examples={EXAMPLES}")


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "trajpilot"), *arguments]


def typed(*arguments: str, **environment: str) -> tuple[int, str]:
    """Call the command in this process: an import of all of it takes seconds. Anything but an exit is raised.

    Return its status and what it printed, without line breaks.
    """
    said, status = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.setattr(sys, "argv", ["trajpilot", *arguments])
        patch.setattr(os, "environ", {**os.environ, **environment})  # commands prepare it for Prefect
        try:
            command_line.main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    return status, " ".join(said.getvalue().replace("│", " ").split())


class Ran(NamedTuple):
    root: Path
    world: Path
    environment: dict[str, str]
    output: str
    server_login: str

    def again(self, root: Path, *more: str) -> tuple[int, str]:
        line = command(*RUN, "--data", str(self.world), "--root", str(root), *more)
        done = subprocess.run(
            line, cwd=root.parent, env=self.environment, capture_output=True, text=True, timeout=900, check=False
        )
        return done.returncode, done.stdout + done.stderr


def whole_run(shelf: Shelf, worlds: Worlds, empty_database: EmptyDatabase) -> Ran:
    """Return the run; the first who asks makes it."""
    with shelf.held("whole-run") as folder:
        world, root, note = folder / "world", folder / "root", folder / "ran.json"
        if not note.exists():
            shutil.rmtree(folder, ignore_errors=True)
            (folder / ELSEWHERE).mkdir(parents=True)
            worlds.copy(soak_world(), world)
            hostile_corpus(world)
            empty_database.copy(root / "prefect")
            environment = home_with_secrets(folder / "home")
            note.write_text(json.dumps((environment, *finished(folder, environment))))
        return Ran(root, world, *json.loads(note.read_text()))


def finished(folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """Run the pipeline while port 4200 is taken; return what it printed and its server's login, read meanwhile."""
    line = command(*RUN, "--data", str(folder / "world"), "--root", str(folder / "root"))
    with (folder / "output").open("w") as output, socket.socket() as taken:
        with contextlib.suppress(OSError):  # somebody else has it
            taken.bind(("127.0.0.1", 4200))
            taken.listen()
        process = subprocess.Popen(line, cwd=folder / ELSEWHERE, env=environment, stdout=output, stderr=output)
        login = login_of_server(process, folder / "root")
        assert process.wait(timeout=900) == 0, (folder / "output").read_text()
    return (folder / "output").read_text(), login


def login_of_server(process: subprocess.Popen[bytes], root: Path) -> str:
    """Return the login that the run drew for its own server."""
    limit = time.monotonic() + 180 * PATIENCE
    while time.monotonic() < limit and process.poll() is None:
        try:
            stated = "".join(Path(f"/proc/{pid}/environ").read_text() for pid in servers_over(root)).split("\0")
        except OSError:
            continue
        found = [one.partition("=")[2] for one in stated if one.startswith("PREFECT_SERVER_API_AUTH_STRING=")]
        if found:
            return found[0]
        time.sleep(0.1)
    pytest.fail("the run started no server")
