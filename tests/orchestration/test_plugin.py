"""The bare deployment name."""

import subprocess
import sys
from pathlib import Path

import pytest

from deployments.prefect_plugin import with_full_name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/x/prefect deployment run full-pipeline", "/x/prefect deployment run full-pipeline/full-pipeline"),
        ("prefect deployment run ingest -p a=1", "prefect deployment run ingest/ingest -p a=1"),
        ("prefect deployment run -p a=1 ingest", "prefect deployment run -p a=1 ingest/ingest"),
        ("prefect deployment run --watch ingest", "prefect deployment run --watch ingest/ingest"),
        ("prefect deployment run --params={} ingest", "prefect deployment run --params={} ingest/ingest"),
        ("prefect --no-prompt deployment run ingest", "prefect --no-prompt deployment run ingest/ingest"),
        ("prefect --profile p deployment run ingest", "prefect --profile p deployment run ingest/ingest"),
        ("/x/prefect/__main__.py deployment run ingest", "/x/prefect/__main__.py deployment run ingest/ingest"),
    ],
)
def test_a_bare_name_is_written_out_wherever_it_stands(given: str, expected: str) -> None:
    assert with_full_name(given.split()) == expected.split()


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
