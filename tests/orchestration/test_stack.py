"""The whole stack: the processes of docker-compose.yml with their environment, over a PostgreSQL cluster of our own.

`make stack-test` runs it; `make test` leaves it out; KILLS is how many kills it makes. Every process is ended by the id
of its group, also on failure. Screenshots and logs stay under runs/stack-test.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stack_kills import RUN_S, SERVICE, Client, Killer
from stack_processes import CHECKOUT, PATIENCE, Ground, Stack, postgres_programs, processes_of

from deployments.declared import prefect_file
from deployments.recipes.simulated import soak
from schemas.world import soak_world
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages import STAGES

if not any(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
    pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)", allow_module_level=True)
pytestmark = [pytest.mark.stack, pytest.mark.timeout(int(1500 * PATIENCE))]
KEPT = CHECKOUT / "runs" / "stack-test"
Say = Callable[[str], None]


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
        shutil.copytree(running.logs, KEPT / "logs", dirs_exist_ok=True)
        left = processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    assert left == {}, "a process outlived the stack"


@pytest.fixture(scope="module")
def client(stack: Stack) -> Client:
    return Client(stack)


def test_everything_is_deployed_once_and_deploying_again_changes_nothing(client: Client, stack: Stack) -> None:
    def deployed() -> tuple[dict[str, str], list[str], list[str]]:
        pools = {d["name"]: d["work_pool_name"] for d in client.api("/deployments/filter", {})}
        automations = [a["name"] for a in client.api("/automations/filter", {})]
        return pools, sorted(automations), sorted(p["name"] for p in client.api("/work_pools/filter", {}))

    before = deployed()
    assert sorted(before[0]) == sorted(item["name"] for item in prefect_file(soak())["deployments"])
    assert before[0]["full-pipeline"] == "trajpilot-gpu"
    assert before[0]["ingest"] == "trajpilot-cpu"
    assert before[1] == [
        "TrajPilot: mark runs of dead workers as crashed",
        "TrajPilot: mark runs that a worker took and never started as crashed",
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


def test_one_stage_is_run_on_its_own_pool_with_a_change_and_the_run_says_which(client: Client) -> None:
    stated = {"config": {"ingest": {"min_overlap": 0.4}}, "run": {"only": ["ingest"]}}
    done = client.prefect("deployment", "run", "ingest", "--watch", "--params", json.dumps(stated))
    assert done.returncode == 0, done.stdout + done.stderr
    run = client.runs("ingest")[0]
    assert run["work_pool_name"] == "trajpilot-cpu"
    said = client.api("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}})
    (configuration,) = [a for a in said if a["key"] == "configuration"]
    assert "changed: ingest.min_overlap 0.5 -> 0.4" in configuration["description"]


@pytest.fixture(scope="module")
def killer(client: Client, stack: Stack, say: Say) -> Killer:
    """Who kills, and knows an undisturbed run."""
    made = Killer(stack, client)
    say(f"undisturbed run into a new root: {len(made.wanted)} files, {made.span_s:.0f} s")
    return made


@pytest.mark.parametrize("number", range(int(os.environ.get("KILLS", len(SERVICE)))))
def test_after_a_kill_nothing_is_lost_done_twice_or_left_behind(number: int, killer: Killer, say: Say) -> None:
    kill = killer.kill(number)
    say(kill.line)
    assert kill.faults == []
    assert (kill.crashed_s or 0.0) < 300.0
    assert number % len(SERVICE) or kill.crashed_s is not None, "a run without its worker went on"


def test_runs_that_completed_stay_completed_while_the_automations_listen(client: Client) -> None:
    """The automations mark a run of which nothing is heard after a heartbeat, and a run that has ended sends none."""
    ended = [run for run in client.runs("full-pipeline") if run["end_time"]]
    assert {run["state"]["type"] for run in ended} <= {"COMPLETED", "CRASHED"}
    crashed = [run for run in ended if run["state"]["type"] == "CRASHED"]
    heard = {"event": {"name": ["prefect.flow-run.heartbeat"]}}
    assert client.api("/events/filter", {"filter": heard, "limit": 1})["total"] > 0
    asleep = [a["name"] for a in client.api("/automations/filter", {}) if "crashed" in a["name"] and not a["enabled"]]
    assert asleep == []
    for run in crashed:
        states = {state["type"] for state in client.api(f"/flow_run_states/?flow_run_id={run['id']}")}
        assert "COMPLETED" not in states, f"{run['name']} had completed"


def test_no_password_stands_in_a_log_or_in_the_database(client: Client, stack: Stack) -> None:
    ground = stack.ground
    secrets = (ground.password, ground.login.partition(":")[2])
    dump = stack.postgres("pg_dump", "--username=trajpilot", "--dbname=prefect", "--data-only")
    assert len(dump) > 10_000
    for path in [*stack.logs.iterdir(), *(p for p in (ground.folder / "artifacts").rglob("*") if p.is_file())]:
        content = path.read_bytes()
        assert [s for s in secrets if s.encode() in content] == [], path
    assert [s for s in secrets if s in dump] == []
