"""The job script of a Slurm worker, without Slurm: what must go gives its run back and leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from checkout import CHECKOUT
from compose_server import LOGIN, Served, told
from stack_processes import processes_of, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
JOB = CHECKOUT / "deployments/slurm/worker.sbatch"
WORKER = """#!{python}
import os, subprocess, sys, time
of_run = {{"PREFECT__FLOW_RUN_ID": "{run}"}} if "{run}" else {{}}
subprocess.Popen(["sleep", "600"], env={{**os.environ, **of_run}}, start_new_session=True)
print(*sys.argv[1:], flush=True)
time.sleep({s})
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def begun(folder: Path, url: str, run: str = "", s: float = 600.0) -> tuple[subprocess.Popen[str], str]:
    """Start the script in a folder whose worker holds a run in a session of its own, as Prefect's does."""
    program(folder / ".venv/bin/prefect", WORKER.format(python=sys.executable, run=run, s=s))
    program(folder / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program(folder / "bin/scontrol", '#!/bin/sh\necho scontrol "$@"\n')
    job = uuid4().hex
    stated = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": job,
        "SLURM_SUBMIT_DIR": str(folder),
        "PREFECT_API_URL": f"{url}/api",
        "PREFECT_API_AUTH_STRING": LOGIN,
    }
    process = subprocess.Popen(["bash", str(JOB)], env=stated, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    words = f"worker start --pool trajpilot-gpu --name slurm-{job} --limit 1\n"
    assert process.stdout.readline() == words
    return process, job


def living(job: str) -> int:
    return len(processes_of(Path(f"TRAJPILOT_WORKER=slurm-{job}")))


def made(served: Served, state: str) -> str:
    flow = told(served.url, "/flows/", {"name": "slurm"})
    return str(told(served.url, "/flow_runs/", {"flow_id": flow["id"], "state": {"type": state}})["id"])


@pytest.mark.slow
def test_what_is_told_to_go_gives_its_run_back_kills_it_and_is_requeued_when_its_time_is_up(
    served: Served, tmp_path: Path
) -> None:
    for number, state, after in (
        (signal.SIGTERM, "RUNNING", "AwaitingRetry"),
        (signal.SIGUSR1, "CRASHED", "AwaitingRetry"),
        (signal.SIGUSR1, "COMPLETED", "Completed"),
    ):
        run = made(served, state)
        process, job = begun(tmp_path / state, served.url, run)
        wait_for(lambda job=job: living(job) == 2)  # a process has its environment only once it runs its program
        process.send_signal(number)
        said = process.communicate(timeout=60)[0]
        assert (living(job), process.returncode) == (0, 0)
        assert f"runs given back: {run if after == 'AwaitingRetry' else 'none'}" in said
        assert (f"scontrol requeue {job}" in said) == (state == "CRASHED")
        assert told(served.url, f"/flow_runs/{run}")["state"]["name"] == after, "a run that ended must stay as it ended"


@pytest.mark.parametrize(
    ("run", "s", "ending", "after"),
    [
        ("", 600.0, "USR1", ""),
        ("", 0.5, "its worker", ""),
        pytest.param(str(UUID(int=0)), 600.0, "USR1", "scontrol requeue {job}\n", marks=pytest.mark.slow),
    ],
    ids=["without a run", "without a worker", "without a server"],
)
def test_a_job_leaves_no_process_and_returns_to_the_queue_where_the_server_of_its_run_does_not_answer(
    run: str, s: float, ending: str, after: str, tmp_path: Path
) -> None:
    process, job = begun(tmp_path, "http://127.0.0.1:9", run, s)
    if ending == "USR1":
        wait_for(lambda: living(job) == 2)
        process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=60)[0] == f"ended by {ending}; runs given back: none\n{after.format(job=job)}"
    assert living(job) == 0
