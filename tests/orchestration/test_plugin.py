"""The bare deployment name."""

import subprocess
import sys
from pathlib import Path

import pytest

from deployments.prefect_plugin import with_full_name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["/x/prefect", "deployment", "run", "full-pipeline"], "full-pipeline/full-pipeline"),
        (["prefect", "deployment", "run", "ingest", "-p", "a=1"], "ingest/ingest"),
        (["prefect", "deployment", "run", "a/b"], "a/b"),
        (["prefect", "deployment", "run", "--id", "x"], "--id"),
    ],
)
def test_a_bare_name_is_written_out(given: list[str], expected: str) -> None:
    assert with_full_name(given)[3] == expected
    assert with_full_name(given)[4:] == given[4:]


def test_other_commands_are_left_alone() -> None:
    for line in (
        ["prefect", "deployment", "run"],
        ["pytest", "deployment", "run", "x"],
        ["prefect", "deployment", "ls", "x"],
    ):
        assert with_full_name(line) == line


@pytest.mark.slow
def test_the_literal_command_reaches_the_server_under_its_full_name(checkout: Path, prefect_server: str) -> None:
    import os

    environment = {**os.environ, "PREFECT_API_URL": prefect_server, "PREFECT_PLUGINS_ENABLED": "1"}
    command = [str(Path(sys.executable).parent / "prefect"), "deployment", "run", "nope"]
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "nope/nope" in done.stdout + done.stderr
    assert done.returncode != 0
