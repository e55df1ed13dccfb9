"""The bare deployment name."""

import os
import subprocess
import sys
from pathlib import Path

from checkout import CHECKOUT
from fake_server import HEADER, Fake

from deployments.prefect_plugin import missing_server, needs_server, with_full_name
from deployments.settings import authorization


def test_a_bare_name_is_written_out_wherever_it_stands() -> None:
    for given in (
        "/x/prefect deployment run full-pipeline",
        "prefect deployment run ingest -p a=1",
        "prefect deployment run -p a=1 ingest",
        "prefect deployment run --watch ingest",
        "prefect deployment run --params={} ingest",
        "prefect --no-prompt deployment run ingest",
        "prefect --profile p deployment run ingest",
        "/x/prefect/__main__.py deployment run ingest",
    ):
        name = "full-pipeline" if "full" in given else "ingest"
        assert " ".join(with_full_name(given.split())) == given.replace(name, f"{name}/{name}")


def test_other_commands_are_left_alone() -> None:
    for line in (
        "prefect deployment run",
        "prefect deployment run a/b",
        "prefect deployment run --id x",
        "prefect deployment run --params x",
        "pytest deployment run x",
        "prefect deployment ls x",
        "prefect flow-run ls deployment run x",
    ):
        assert with_full_name(line.split()) == line.split()


def test_only_a_deployment_of_ours_needs_a_server_that_is_named() -> None:
    ours = "prefect deployment run full-pipeline/full-pipeline"
    others = ["prefect deployment run other/nightly", "prefect deployment run", "prefect server start"]
    assert needs_server(f"{ours} --watch".split())
    assert [line for line in (f"{ours} --help", *others) if needs_server(line.split())] == []


def test_a_login_that_the_server_refuses_is_said_and_not_repeated(fake: type[Fake]) -> None:
    assert "it needs one, and none is set" in str(missing_server(fake.url, None))
    refused = str(missing_server(fake.url, authorization("me:secret-word", None)))
    assert missing_server(fake.url, HEADER) is None
    assert "rejects this login" in refused
    assert "secret-word" not in refused


def test_the_literal_command_without_a_server_ends_in_one_sentence(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    env = {**kept, "HOME": str(tmp_path), "DO_NOT_TRACK": "1"}
    command = [str(Path(sys.executable).parent / "prefect"), "deployment", "run", "full-pipeline"]
    done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "set PREFECT_API_URL=http" in done.stderr
    assert len((done.stdout + done.stderr).strip().splitlines()) == 1
    assert not list(tmp_path.rglob("prefect.db"))
    assert "start it" in str(missing_server("http://127.0.0.1:1/api", None))


WATCHED = """
import asyncio, sys
from types import SimpleNamespace
from uuid import uuid4
from prefect.cli import flow_runs_watching
from prefect.states import Completed, Failed
from rich.console import Console
from deployments.prefect_plugin import print_reasons

async def watch(flow_run_id, console, timeout=None):
    return SimpleNamespace(state=STATES[timeout])

STATES = [Failed(message="StagesFailedError: scorer failed: [planted]\\n in two"), Completed(message="all stages")]
flow_runs_watching.watch_flow_run = watch
for told in (False, True):
    print(told)
    sys.modules.pop("prefect.cli.deployment", None)
    if told:
        print_reasons()
    import prefect.cli.deployment
    for case in range(len(STATES)):
        asyncio.run(sys.modules["prefect.cli.deployment"].watch_flow_run(uuid4(), Console(), timeout=case))
"""


def test_watching_ends_with_the_reason_of_a_failure_alone() -> None:
    command = [sys.executable, "-c", WATCHED]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["False", "True", "Failed: StagesFailedError: scorer failed: [planted] in two"]
