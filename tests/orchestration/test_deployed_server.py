"""Deployments on a real server with a login: the command as it is typed, what it sends, what the server refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compose_server import LOGIN, Served, ask, told
from hostile import SECRET
from whole_run import typed

from deployments import deploy as deploying
from deployments.declared import prefect_file
from deployments.recipes import recipe
from schemas.config import RunOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FULL = "full-pipeline"
DEPLOYED = {FULL: "trajpilot-gpu", "features": "trajpilot-gpu", "text-bank": "trajpilot-cpu"}
SERVER = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")


@pytest.fixture(scope="module")
def home(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home, whole = tmp_path_factory.mktemp("home"), prefect_file(recipe("soak"))
    mine = [item for item in whole["deployments"] if item["name"] in DEPLOYED]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deploying, "prefect_file", lambda config: {**whole, "deployments": mine})
        places = ("--data", str(home), "--root", f"{home}/runs")
        status, said = typed("deploy", *places, "--recipe", "soak", HOME=str(home))
    assert status == 0, said
    return home


def runs(served: Served, deployment: str = FULL) -> list[dict[str, Any]]:
    body = {"flows": {"name": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_DESC"}
    return list(told(served.url, "/flow_runs/filter", body))


def create(served: Served, parameters: dict[str, Any], deployment: str = FULL) -> tuple[int, str]:
    """Ask for a run as the form in the UI does."""
    found = told(served.url, f"/deployments/name/{deployment}/{deployment}")
    body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
    answer = ask(served.url, "POST", f"/api/deployments/{found['id']}/create_flow_run", LOGIN, body)
    return answer.status, answer.body.decode()


def test_the_literal_command_makes_a_run_with_its_parameters_where_plugins_are_on(served: Served, home: Path) -> None:
    """The checkout turns them on, too: test_plugin.py."""
    stated = {"config": {"scorer": {"candidates": 32}, "features": {"size_px": 64}}, "run": {"from_stage": "scorer"}}
    command = [str(Path(sys.executable).parent / "prefect"), "deployment", "run", FULL, "--params", json.dumps(stated)]
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", *SERVER) if name in os.environ}
    env |= {"HOME": str(home), "PREFECT_PLUGINS_ENABLED": "1"}
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = runs(served)[0]
    assert (made["parameters"], made["work_pool_name"]) == (stated, "trajpilot-gpu")


def test_the_server_refuses_a_wrong_value_by_the_name_of_its_field(served: Served, home: Path) -> None:
    """Which values are wrong, the form states: test_deployed.py."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"config": {"features": {"size_px": 17}}}, "config.features.size_px"),
        *(({"run": {name: f"s3://AKIA:{SECRET}@bucket/x"}}, f"run.{name}") for name in ("data_root", "root")),
    ]
    before = len(runs(served))
    for parameters, field in wrong:
        status, said = create(served, parameters)
        assert status in (409, 422), said
        assert f"'{field}'" in said
    assert len(runs(served)) == before
    for path in served.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), f"{path} keeps a login"


def test_a_form_with_every_field_stated_is_taken(served: Served, home: Path) -> None:
    whole = {"config": recipe("soak").model_dump(mode="json"), "run": RunOptions(recipe="soak").model_dump(mode="json")}
    for deployment, pool in DEPLOYED.items():
        status, said = create(served, whole, deployment)
        assert status == 201, said
        assert told(served.url, f"/deployments/name/{deployment}/{deployment}")["work_pool_name"] == pool
    assert runs(served)[0]["parameters"] == whole
