"""The whole stack: the processes of docker-compose.yml with their environment, over a PostgreSQL cluster of our own.

`make stack-test` runs it; `make test` leaves it out. Every process is ended by the id of its group, also on failure.
Screenshots and logs stay under runs/stack-test.
"""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser
from stack_processes import CHECKOUT, PATIENCE, Ground, Stack, postgres_programs, processes_of

from schemas.world import soak_world
from trajpilot_core.simworld.write import write_world

pytestmark = [pytest.mark.stack, pytest.mark.timeout(int(1500 * PATIENCE))]
KEPT = CHECKOUT / "runs" / "stack-test"
RUN_S = 600.0 * PATIENCE
CRASHED_S = 300.0 * PATIENCE
STAGES = ("ingest", "trajectories", "features", "text_bank", "alignment", "predictor", "scorer", "evaluation", "report")
Say = Callable[[str], None]


class Client:
    """A user with the login: the API, and the `prefect` command in the checkout."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.ground = stack, stack.ground
        worker = stack.environment("deployer")
        self.environment = {k: v for k, v in worker.items() if k != "PREFECT_PLUGINS_ENABLED"}

    def api(self, path: str, body: object = None, login: str | None = None, method: str | None = None) -> Any:
        """Call the API; a body makes it a POST."""
        token = base64.b64encode((self.ground.login if login is None else login).encode()).decode()
        request = urllib.request.Request(
            f"{self.ground.url}/api{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Basic {token}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60 * PATIENCE) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `prefect ...` as a user does, in the checkout."""
        command = [str(Path(sys.executable).parent / "prefect"), *arguments]
        return subprocess.run(
            command, cwd=CHECKOUT, env=self.environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """Runs of a flow, newest first."""
        body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC"}
        return list(self.api("/flow_runs/filter", body))

    def finished(self, run_id: str, limit_s: float = RUN_S) -> dict[str, Any]:
        """Wait until a run has ended and return it."""
        return self.until(lambda run: run["state"]["type"] in FINAL, run_id, limit_s)

    def until(self, enough: Callable[[dict[str, Any]], bool], run_id: str, limit_s: float) -> dict[str, Any]:
        """Wait until a run is as wanted."""
        limit = time.monotonic() + limit_s
        while True:
            run = dict(self.api(f"/flow_runs/{run_id}"))
            if enough(run):
                return run
            assert time.monotonic() < limit, f"{run['name']}: {run['state']}\n{self.stack.tail('worker-no-gpu')}"
            time.sleep(1.0)

    def task_states(self, run_id: str) -> dict[str, str]:
        """Task -> name of its state."""
        tasks = self.api("/task_runs/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
        return {task["name"]: task["state"]["name"] for task in tasks}

    def run_deployment(self, name: str, **parameters: object) -> str:
        """Start a deployed run through the API and return its id."""
        deployment = self.api(f"/deployments/name/{name}/{name}")
        return str(self.api(f"/deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})["id"])


FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@pytest.fixture(scope="module")
def say(request: pytest.FixtureRequest) -> Say:
    """Print a figure past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    started = time.monotonic()

    def tell(line: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"stack {time.monotonic() - started:6.0f} s  {line}\n")
            sys.stdout.flush()

    return tell


@pytest.fixture(scope="module")
def stack(say: Say) -> Iterator[Stack]:
    """The running stack over a simulated download of twelve takes."""
    folder = Path(tempfile.mkdtemp(prefix="trajpilot-stack-"))
    folder.chmod(0o711)
    running = Stack(Ground(folder))
    try:
        write_world(soak_world(), folder / "data", 2, lambda done, total, what: None)
        (folder / "artifacts").mkdir()
        say(f"world written; PostgreSQL {postgres_programs().parent.name}")
        running.start_all()
        say("every service is healthy by its own check")
        yield running
    finally:
        running.end_all()
        keep_logs(running.logs)
        left = processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    assert left == {}, "a process outlived the stack"


@pytest.fixture(scope="module")
def client(stack: Stack) -> Client:
    return Client(stack)


def keep_logs(logs: Path) -> None:
    shutil.rmtree(KEPT / "logs", ignore_errors=True)
    shutil.copytree(logs, KEPT / "logs")


def test_the_api_asks_for_the_login(client: Client) -> None:
    for wrong in ("", "stack:wrong", "admin:pass"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            client.api("/flows/filter", {}, login=wrong)
        assert refused.value.code == 401
    assert isinstance(client.api("/flows/filter", {}), list)


def test_everything_is_deployed_once_and_deploying_again_changes_nothing(client: Client, stack: Stack) -> None:
    def deployed() -> tuple[dict[str, str], list[str], list[str]]:
        pools = {d["name"]: d["work_pool_name"] for d in client.api("/deployments/filter", {})}
        automations = [a["name"] for a in client.api("/automations/filter", {})]
        return pools, sorted(automations), sorted(p["name"] for p in client.api("/work_pools/filter", {}))

    before = deployed()
    assert len(before[0]) == len(STAGES) + 3
    assert before[0]["full-pipeline"] == "trajpilot-gpu"
    assert before[0]["ingest"] == "trajpilot-cpu"
    assert before[1] == [
        "TrajPilot: mark runs of dead workers as crashed",
        "TrajPilot: run when the data root changes",
    ]
    again = stack.popen("deployer", stack.services["deployer"]["command"], stack.environment("deployer"))
    assert again.wait(timeout=RUN_S) == 0, stack.tail("deployer")
    assert deployed() == before


def test_the_literal_command_runs_the_pipeline_to_its_report(client: Client, stack: Stack, say: Say) -> None:
    done = client.prefect("deployment", "run", "full-pipeline", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr + stack.tail("worker-no-gpu")
    (run,) = client.runs("full-pipeline")
    assert run["state"]["type"] == "COMPLETED"
    assert run["name"].startswith("full-pipeline · soak · ")
    assert set(STAGES) <= set(client.task_states(run["id"]))
    assert (stack.ground.folder / "artifacts" / "reports" / "report.html").is_file()
    (said,) = client.api("/artifacts/filter", {"artifacts": {"key": {"any_": ["configuration"]}}})
    assert said["description"].startswith("recipe soak, nothing changed; config ")
    say(f"prefect deployment run full-pipeline: completed, flow {run['total_run_time']:.0f} s")


def test_a_second_run_under_the_full_name_reuses_everything(client: Client, say: Say) -> None:
    done = client.prefect("deployment", "run", "full-pipeline/full-pipeline", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr
    run = client.runs("full-pipeline")[0]
    states = client.task_states(run["id"])
    assert {states[stage] for stage in STAGES} == {"Cached"}
    say(f"second run: every stage Cached, flow {run['total_run_time']:.0f} s")


def test_the_event_of_a_changed_data_root_runs_the_pipeline_once_its_trigger_is_on(client: Client, say: Say) -> None:
    (trigger,) = [a for a in client.api("/automations/filter", {}) if "data root" in a["name"]]
    assert trigger["enabled"] is False
    before = {run["id"] for run in client.runs("full-pipeline")}
    client.api(f"/automations/{trigger['id']}", {"enabled": True}, method="PATCH")
    try:
        time.sleep(5.0)
        look_until_told(client)
        limit = time.monotonic() + RUN_S
        while not (new := [r for r in client.runs("full-pipeline") if r["id"] not in before]):
            assert time.monotonic() < limit, "the event started no run"
            time.sleep(2.0)
    finally:
        client.api(f"/automations/{trigger['id']}", {"enabled": False}, method="PATCH")
    assert client.finished(new[0]["id"])["state"]["type"] == "COMPLETED"
    say("a changed download was noticed at the second look and the pipeline ran")


def look_until_told(client: Client) -> None:
    """Change an annotation, then look twice."""
    path = next((client.ground.folder / "data" / "annotations").glob("atomic_descriptions_train.json"))
    path.write_text(path.read_text() + "\n")
    for _ in range(2):
        assert client.finished(client.run_deployment("watch"))["state"]["type"] == "COMPLETED"


def test_one_stage_is_run_on_its_own_pool_with_a_change_and_the_run_says_which(client: Client) -> None:
    stated = {"config": {"ingest": {"min_overlap": 0.4}}, "run": {"only": ["ingest"]}}
    done = client.prefect("deployment", "run", "ingest", "--watch", "--params", json.dumps(stated))
    assert done.returncode == 0, done.stdout + done.stderr
    run = client.runs("ingest")[0]
    assert run["work_pool_name"] == "trajpilot-cpu"
    said = client.api("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}})
    (configuration,) = [a for a in said if a["key"] == "configuration"]
    assert "changed: ingest.min_overlap 0.5 -> 0.4" in configuration["description"]


def test_a_wrong_value_is_refused_by_name_before_anything_runs(client: Client) -> None:
    before = len(client.runs("ingest"))
    done = client.prefect("deployment", "run", "ingest", "--params", json.dumps({"run": {"workers": 0}}))
    assert done.returncode != 0
    assert "run.workers" in done.stdout + done.stderr
    assert len(client.runs("ingest")) == before


def test_a_benchmark_that_is_not_built_fails_and_names_its_missing_parts(client: Client) -> None:
    run = client.finished(client.run_deployment("ingest", run={"recipe": "keystep"}))
    assert run["state"]["type"] == "FAILED"
    assert "not built yet: reader of Ego-Exo4D keysteps" in run["state"]["message"]


def test_the_ui_shows_the_run_and_the_form_and_calls_nobody_outside(client: Client, say: Say, tmp_path: Path) -> None:
    run = next(r for r in client.runs("full-pipeline") if r["state"]["type"] == "COMPLETED")
    deployment = client.api("/deployments/name/full-pipeline/full-pipeline")
    url = client.ground.url
    with browser(tmp_path) as page:
        log_in(page, url, client.ground.login)
        page.open(f"{url}/flow-runs/flow-run/{run['id']}", run["name"].split(" · ")[0])
        page.wait(lambda text: "predictor" in text, "the run shows no stages", 60.0)
        page.photograph(KEPT / "flow-run.png")
        page.open(f"{url}/flow-runs/flow-run/{run['id']}?tab=Artifacts", "configuration")
        page.photograph(KEPT / "artifacts.png")
        text = page.open(f"{url}/deployments/deployment/{deployment['id']}/run", "Takes, segments")
        page.photograph(KEPT / "form.png")
        for wanted in ("config", "ingest", "recipe", "data_root", "from_stage", "Named experiment that holds"):
            assert wanted in text, wanted
        assert page.outside() == []
    say(f"UI checked; screenshots in {KEPT}")


def log_in(page: Page, url: str, login: str) -> None:
    """Be refused without the login, then enter it as a person does once."""
    page.open(f"{url}/login", "Login")
    page.run(f"localStorage.setItem('prefect-password', btoa({json.dumps(login)}))")


def test_a_killed_worker_s_run_is_marked_as_crashed_and_the_next_run_goes_on(
    client: Client, stack: Stack, say: Say
) -> None:
    run_id = client.run_deployment("full-pipeline", run={"force": ["features", "predictor"]})
    client.until(lambda run: "Running" in client.task_states(run["id"]).values(), run_id, RUN_S)
    killed = time.monotonic()
    stack.kill("worker-no-gpu")
    run = client.finished(run_id, CRASHED_S)
    assert run["state"]["type"] == "CRASHED", run["state"]
    say(f"worker and run killed; marked as crashed after {time.monotonic() - killed:.0f} s")
    stack.start("worker-no-gpu")
    stack.wait("worker-no-gpu", "service_healthy")
    done = client.prefect("deployment", "run", "full-pipeline", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr
    say("the next run completed")


def test_no_password_stands_in_a_log_or_in_the_database(client: Client, stack: Stack) -> None:
    ground = stack.ground
    secrets = (ground.password, ground.login.partition(":")[2])
    dump = stack.postgres("pg_dump", "--username=trajpilot", "--dbname=prefect", "--data-only")
    assert len(dump) > 10_000
    for path in [*stack.logs.iterdir(), *(p for p in (ground.folder / "artifacts").rglob("*") if p.is_file())]:
        content = path.read_bytes()
        assert [s for s in secrets if s.encode() in content] == [], path
    assert [s for s in secrets if s in dump] == []
