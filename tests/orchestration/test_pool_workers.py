"""`trajpilot workers`: what it starts, that it says what is missing, restarts what dies, and leaves
nothing behind; and what `trajpilot doctor` finds of the server."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_server import HEADER, LOGIN, Fake
from stack_processes import processes_of, wait_for

import deployments.workers as workers
from deployments.embedded import check_server, require_server
from deployments.settings import POOLS, authorization, named_gpus, server_login, worker_environment
from deployments.workers import Keeper, WorkerPlan, planned, refuse_unready
from trajpilot_core.errors import InputError

LIMIT_S = 60.0


def test_each_gpu_gets_a_worker_of_its_own_with_one_run_at_a_time() -> None:
    plans = planned(["0", "GPU-77"], None, 1, 4)
    assert [(p.pool, p.limit, p.gpu) for p in plans] == [
        ("trajpilot-gpu", 1, "0"),
        ("trajpilot-gpu", 1, "GPU-77"),
        ("trajpilot-cpu", 4, ""),
    ]
    assert len({plan.name for plan in plans}) == 3
    assert plans[-1].describe().endswith("pool trajpilot-cpu, 4 runs at a time, on the CPU")
    (alone,) = planned(["0"], 0, 1, 2)
    assert alone.gpu is None, "nobody else uses the GPU"
    assert plans[0].command()[-8:] == f"--pool trajpilot-gpu --name {plans[0].name} --limit 1 --type process".split()


def test_without_a_gpu_one_worker_of_the_gpu_pool_runs_on_the_cpu_and_more_workers_than_gpus_are_refused() -> None:
    plan, _ = planned([], None, 1, 2)
    assert (plan.pool, plan.limit, plan.gpu) == ("trajpilot-gpu", 1, None)
    with pytest.raises(InputError, match="3 GPU workers are requested, but 2 GPUs are visible"):
        planned(["0", "1"], 3, 1, 2)


def test_a_worker_sees_its_gpu_alone_and_no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    monkeypatch.setenv("PREFECT_PLUGINS_ENABLED", "1")
    assert named_gpus(2) == ["4", "6"]
    seen = worker_environment("6", "m")
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["PREFECT_PLUGINS_ENABLED"]) == ("6", "0")
    assert worker_environment(None, "m")["CUDA_VISIBLE_DEVICES"] == "4, 6"


def test_a_server_is_refused_with_what_it_lacks_and_one_with_both_pools_is_not(fake: type[Fake]) -> None:
    refuse_unready(fake.url, HEADER, POOLS)
    with pytest.raises(InputError, match="PREFECT_API_URL is not set"):
        require_server(None, None)
    with pytest.raises(InputError, match=r"the Prefect server at http://127.0.0.1:9/api: server: no answer"):
        require_server("http://127.0.0.1:9/api", None)
    fake.pools = {"trajpilot-cpu": "process"}
    with pytest.raises(InputError, match="has no work pool trajpilot-gpu; run `trajpilot deploy` first"):
        refuse_unready(fake.url, HEADER, POOLS)
    fake.pools = {"trajpilot-cpu": "process", "trajpilot-gpu": "docker"}
    with pytest.raises(InputError, match="trajpilot-gpu is of type docker"):
        refuse_unready(fake.url, HEADER, POOLS)
    with pytest.raises(InputError, match="rejects this login"):
        require_server(fake.url, authorization("admin:wrong", None))


def verdicts(url: str | None, login: str | None = LOGIN, key: str | None = None) -> dict[str, str]:
    """What `trajpilot doctor` finds of a server over HTTP; no password is ever shown."""
    found = check_server(url, authorization(login, key))
    assert "canary" not in str(found)
    return {row.what: row.verdict for row in found}


def test_a_server_with_login_pool_and_worker_is_ok_and_one_without_or_with_another_login_is_not(
    fake: type[Fake],
) -> None:
    others = dict.fromkeys(("login", "server", "pool trajpilot-cpu", "deployments"), "ok")
    assert verdicts(fake.url) == {**others, "pool trajpilot-gpu": "note"}
    assert [verdicts(fake.url, login) for login in (None, "admin:canary-wrong")] == [{"login": "bad"}] * 2
    fake.header = None
    assert verdicts(fake.url)["login"] == "note"


def test_the_key_of_a_cloud_that_tells_no_version_is_sent_and_a_login_beside_it_is_refused(
    fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.header, fake.version = "Bearer canary-key", None
    found = verdicts(fake.url, None, "canary-key")
    assert (found["login"], found["server"], found["deployments"]) == ("ok", "ok", "ok")
    assert verdicts(fake.url, None, "canary-other") == {"login": "bad"}
    monkeypatch.setenv("PREFECT_API_URL", fake.url)
    monkeypatch.setenv("PREFECT_API_KEY", "canary-key")
    monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)
    assert server_login() == fake.header
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", LOGIN)
    with pytest.raises(InputError, match="are both set"):
        server_login()


def test_another_version_no_pools_and_no_deployments_are_noted_and_a_server_that_answers_otherwise_is_bad(
    fake: type[Fake],
) -> None:
    fake.version, fake.workers, fake.deployments = "3.0.0", {}, []
    others = dict.fromkeys(("server", "pool trajpilot-cpu", "pool trajpilot-gpu", "deployments"), "note")
    assert verdicts(fake.url) == {**others, "login": "ok"}
    assert verdicts(None) == {"server": "ok"}, "none is needed"
    assert verdicts("http://127.0.0.1:9/api") == verdicts("file:///etc/passwd") == {"server": "bad"}
    fake.moved_to = fake.url.replace("/api", "/elsewhere")
    (found,) = check_server(fake.url, HEADER)
    assert (found.verdict, found.found) == ("bad", "HTTP 302"), "a login is not sent elsewhere"


CHILD = "import time; time.sleep(600)"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], start_new_session=True)"


class Idle(WorkerPlan):
    """Starts a child in a session of its own, as Prefect's does, and waits; its `gpu` is a mark in both commands."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", PARENT, CHILD, str(self.gpu)]


class Dead(WorkerPlan):
    def command(self) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit(3)"]


class Enough(Exception):
    """Ends the keeping."""


def test_ending_takes_workers_and_all_that_they_started(tmp_path: Path) -> None:
    mark, said = tmp_path / "mark", list[str]()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            wait_for(lambda: len(processes_of(mark)) >= 4)
            raise Enough

    with pytest.raises(Enough):
        Keeper([Idle(name, "trajpilot-cpu", 1, str(mark)) for name in ("one", "two")], tmp_path, say).keep()
    assert processes_of(mark) == {}


def test_a_worker_that_dies_is_said_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LOOK_S", 0.01)
    monkeypatch.setattr(workers, "PAUSE_S", 0.1)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if sum("exited with status 3" in told for told in said) == 3:
            raise Enough

    with pytest.raises(Enough):
        Keeper([Dead("dead", "trajpilot-cpu", 1)], tmp_path, say).keep()
    assert sum("restarted" in line for line in said) == 2


def test_the_command_ends_its_worker_on_ctrl_c(fake: type[Fake], tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "trajpilot"), "workers", "--cpu-workers", "1", "--gpu-workers", "0"]
    named = {"PREFECT_API_URL": fake.url, "PREFECT_API_AUTH_STRING": LOGIN}
    environment = {**os.environ, **named, "PREFECT_HOME": str(tmp_path / "home")}
    process = subprocess.Popen(
        [*command, "--logs", str(tmp_path / "logs")], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    assert "pool trajpilot-cpu, 2 runs at a time; log " in lines[1]
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert "1 worker stopped" in rest
    assert processes_of(tmp_path) == {}
