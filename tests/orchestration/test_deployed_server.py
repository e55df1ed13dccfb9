"""Deployments on a real server with a login: the command as it is typed, what it sends, what the server refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compose_server import LOGIN, Served, ask
from hostile import SECRET

from deployments import deploy as deploying
from deployments.declared import prefect_file
from deployments.recipes import recipe
from schemas.config import RunOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FULL = "full-pipeline"


def environment(served: Served, home: Path, **more: str) -> dict[str, str]:
    """A user with the login."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "PREFECT_API_URL": f"{served.url}/api", "PREFECT_API_AUTH_STRING": LOGIN, **more}


def typed(words: str, cwd: Path, env: dict[str, str], *more: str) -> tuple[int, str]:
    """Run a command as it is typed; return its status and what it said, without line breaks."""
    program, *rest = words.split()
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *rest, *more],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def home(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home from which everything was deployed."""
    home = tmp_path_factory.mktemp("home")
    status, said = typed(
        f"trajpilot deploy --data {home} --root {home}/runs --recipe soak", home, environment(served, home)
    )
    assert status == 0, said
    return home


def runs(served: Served, deployment: str = FULL) -> list[dict[str, Any]]:
    """The runs of a deployment, newest first."""
    body = {"flows": {"name": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_DESC"}
    return list(json.loads(ask(served.url, "POST", "/api/flow_runs/filter", LOGIN, body).body))


def create(served: Served, parameters: dict[str, Any], deployment: str = FULL) -> tuple[int, str]:
    """Ask for a run as the form in the UI does."""
    found = json.loads(ask(served.url, "GET", f"/api/deployments/name/{deployment}/{deployment}", LOGIN).body)
    body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
    answer = ask(served.url, "POST", f"/api/deployments/{found['id']}/create_flow_run", LOGIN, body)
    return answer.status, answer.body.decode()


def test_the_literal_command_makes_a_run_in_the_checkout_and_elsewhere_where_plugins_are_on(
    served: Served, home: Path, checkout: Path
) -> None:
    env = environment(served, home)
    before = len(runs(served))
    for line, cwd, more in (
        (f"prefect deployment run {FULL}", checkout, {}),
        (f"prefect deployment run {FULL}/{FULL}", home, {}),
        (f"prefect deployment run {FULL}", home, {"PREFECT_PLUGINS_ENABLED": "1"}),
    ):
        status, said = typed(line, cwd, {**env, **more})
        assert status == 0, said
    made = runs(served)[: len(runs(served)) - before]
    assert len(made) == 3
    assert [run["parameters"] for run in made] == [{}] * 3
    assert {run["work_pool_name"] for run in made} == {"trajpilot-gpu"}


def test_elsewhere_without_the_plugin_and_for_an_unknown_name_the_command_says_what_is_wrong(
    served: Served, home: Path, checkout: Path
) -> None:
    status, said = typed(f"prefect deployment run {FULL}", home, environment(served, home))
    assert status != 0
    assert "<FLOW_NAME>/<DEPLOYMENT_NAME>" in said
    status, said = typed("prefect deployment run nope", checkout, environment(served, home))
    assert status != 0
    assert "'nope/nope' not found" in said


def test_nested_parameters_arrive_as_they_were_stated_and_nothing_else_does(
    served: Served, home: Path, checkout: Path
) -> None:
    stated = {"config": {"scorer": {"candidates": 32}, "features": {"size_px": 64}}, "run": {"from_stage": "scorer"}}
    line = "prefect deployment run --params"
    status, said = typed(line, checkout, environment(served, home), json.dumps(stated), FULL)
    assert status == 0, said
    assert runs(served)[0]["parameters"] == stated


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"config": {"features": {"size_px": 17}}}, "config.features.size_px"),
        ({"config": {"features": {"backend": "vlc"}}}, "config.features.backend"),
        ({"config": {"alignment": {"train": {"lr": -1}}}}, "config.alignment.train.lr"),
        ({"config": {"predictor": {"depth": 3}}}, "config.predictor"),
        ({"config": {"features": {"batch": "many"}}}, "config.features.batch"),
        ({"run": {"workers": 0}}, "run.workers"),
        ({"run": {"force": ["cooking"]}}, "run.force[0]"),
        ({"run": {"protocols": ["http"], "workers": 1.5}}, "run.workers"),
    ],
)
def test_the_server_refuses_a_wrong_value_by_the_name_of_its_field(
    served: Served, home: Path, parameters: dict[str, Any], field: str
) -> None:
    before = len(runs(served))
    status, said = create(served, parameters)
    assert status in (409, 422), said
    assert f"'{field}'" in said
    assert len(runs(served)) == before


def test_a_form_with_every_field_stated_is_taken(served: Served, home: Path) -> None:
    whole = {"config": recipe("soak").model_dump(mode="json"), "run": RunOptions(recipe="soak").model_dump(mode="json")}
    status, said = create(served, whole)
    assert status == 201, said
    assert runs(served)[0]["parameters"] == whole
    for stage in ("ingest", "text-bank", "report"):
        assert create(served, whole, stage)[0] == 201


@pytest.mark.parametrize(
    "address", [f"s3://AKIA:{SECRET}@bucket/x", f"s3://{SECRET}@bucket", f"https://h/x?X-Amz-Signature={SECRET}"]
)
@pytest.mark.parametrize("field", ["data_root", "root"])
def test_an_address_with_a_login_is_refused_before_the_server_keeps_it(
    served: Served, home: Path, field: str, address: str
) -> None:
    status, said = create(served, {"run": {field: address}})
    assert status in (409, 422)
    assert f"'run.{field}'" in said
    for path in served.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_deploy_refuses_an_address_with_a_login_and_does_not_repeat_it(
    served: Served, home: Path, tmp_path: Path
) -> None:
    line = f"trajpilot deploy --data s3://AKIA:{SECRET}@bucket --root s3://bucket/artifacts"
    status, said = typed(line, tmp_path, environment(served, home))
    assert status == 2
    assert "the address holds a login (not repeated here)" in said
    assert SECRET not in said


def test_poses_go_to_the_pool_that_the_deployed_recipe_needs(
    served: Served, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one deployment in question is declared again; all of them were by the command, for a recipe with poses."""
    whole = prefect_file()
    mine = [item for item in whole["deployments"] if item["name"] == "trajectories"]
    monkeypatch.setattr(deploying, "prefect_file", lambda: {**whole, "deployments": mine})
    for name, value in environment(served, home).items():
        monkeypatch.setenv(name, value)

    def pool() -> str:
        found = json.loads(ask(served.url, "GET", "/api/deployments/name/trajectories/trajectories", LOGIN).body)
        return str(found["work_pool_name"])

    assert pool() == "trajpilot-cpu"
    deploying.declare({"data_root": str(home), "root": f"{home}/runs", "recipe": "keystep"})
    assert pool() == "trajpilot-gpu"
