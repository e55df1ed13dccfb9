"""The bare deployment name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import CHECKOUT
from fake_server import HEADER, LOGIN, Fake

from deployments.prefect_plugin import missing_server, needs_server, with_full_name
from deployments.settings import authorization, server_login
from trajpilot_core.errors import InputError


def test_a_bare_name_is_written_out_and_other_commands_are_left_alone() -> None:
    for given in ("/x/prefect deployment run full-pipeline", "prefect deployment run full-pipeline -p a=1 --watch"):
        completed = given.replace("full-pipeline", "full-pipeline/full-pipeline")
        assert " ".join(with_full_name(given.split())) == completed
    for line in (
        "prefect deployment run",
        "prefect deployment run a/b",
        "prefect deployment run --id x",
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
    assert "it needs a login, and none is set" in str(missing_server(fake.url, None))
    refused = str(missing_server(fake.url, authorization("me:secret-word", None)))
    assert missing_server(fake.url, HEADER) is None
    assert "rejects this login" in refused
    assert "secret-word" not in refused
    fake.moved_to = fake.url.replace("/api", "/elsewhere")
    assert "HTTP 302; start it" in str(missing_server(fake.url, HEADER)), "a login is not sent elsewhere"


def test_the_key_of_a_cloud_is_sent_and_a_login_beside_it_is_refused(
    fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.header = "Bearer canary-key"
    assert missing_server(fake.url, authorization(None, "canary-key")) is None
    assert "rejects this login" in str(missing_server(fake.url, authorization(None, "canary-other")))
    monkeypatch.setenv("PREFECT_API_URL", fake.url)
    monkeypatch.setenv("PREFECT_API_KEY", "canary-key")
    monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)
    assert server_login() == fake.header
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", LOGIN)
    with pytest.raises(InputError, match="are both set"):
        server_login()


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
