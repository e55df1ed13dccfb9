"""`trajpilot slurm` and `trajpilot pilot`: the script, what ends a worker, and that no run seems to be running then."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

import deployments.pilot as pilots
from deployments.pilot import Pilot, give_back, runs_of
from deployments.settings import FLOW_RUN, WORKER_MARK, slurm_job
from deployments.slurm import PilotArray, submit
from deployments.workers import Kept, WorkerPlan, marked
from trajpilot_core.errors import InputError

RUN = UUID("00000000-0000-4000-8000-000000000007")


def array(tmp_path: Path, *options: str, gpus: int = 1) -> PilotArray:
    return PilotArray(3, "trajpilot-gpu", gpus, 4, "24:00:00", 900, tmp_path / "logs", options)


def test_the_script_states_what_a_preempted_job_needs(tmp_path: Path) -> None:
    lines = array(tmp_path, "--partition=gpu").script().splitlines()
    assert lines[0] == "#!/bin/bash"
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    wanted = ("--array=0-2", "--requeue", "--signal=B:USR1@120", "--gres=gpu:1", "--open-mode=append")
    assert set(wanted) <= set(directives)
    assert directives[-1] == "--partition=gpu", "a user's option comes last, so that it overrides"
    assert lines[-1].startswith("exec "), "a shell in between would get the signals"
    assert "pilot --pool trajpilot-gpu --idle-s 900" in lines[-1]
    assert "gres" not in array(tmp_path, gpus=0).script()
    assert subprocess.run(["bash", "-n"], input=array(tmp_path).script(), text=True, check=False).returncode == 0


def test_what_the_script_runs_is_our_command(tmp_path: Path) -> None:
    program = shlex.split(array(tmp_path).script().splitlines()[-1].removeprefix("exec "))
    if not Path(program[0]).exists():
        pytest.skip("trajpilot is not installed next to this Python")
    done = subprocess.run([*program, "--help"], capture_output=True, text=True, check=False)
    assert "Work for a pool, one run at a time" in done.stdout, "a module without a main ends well and does nothing"


@pytest.mark.parametrize("option", ["--array=0-9", "--no-requeue", "partition=gpu", "--x\n#SBATCH --array=0-99"])
def test_options_that_would_break_the_script_are_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(InputError, match="--sbatch"):
        array(tmp_path, option).script()


def test_handing_in_says_what_slurm_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="no sbatch on this machine"):
        submit(array(tmp_path))
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\necho '77;cluster'\n")
    sbatch.chmod(0o755)
    job, file = submit(array(tmp_path))
    assert (job, file) == ("77", tmp_path / "logs" / "pilots.sbatch")
    assert file.read_text() == array(tmp_path).script()
    sbatch.write_text("#!/bin/sh\necho 'invalid partition' >&2\nexit 1\n")
    with pytest.raises(InputError, match="invalid partition"):
        submit(array(tmp_path))


def test_a_job_knows_its_number_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    assert slurm_job() is None
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert slurm_job() == ("12", "12")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "10")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert slurm_job() == ("12", "10_2")


class Worker(Kept):
    """A worker that sleeps in the place of Prefect's, with or without a run."""

    run: UUID | None = None
    program = "import time; time.sleep(60)"

    def start(self) -> None:
        held = {FLOW_RUN: str(self.run)} if self.run else {}
        stated = {**os.environ, WORKER_MARK: self.mark, **held}
        self.process = subprocess.Popen([sys.executable, "-c", self.program], env=stated, start_new_session=True)


def flown(tmp_path: Path, run: UUID | None = None, program: str = Worker.program, idle_s: float = 60.0) -> Pilot:
    worker = Worker(WorkerPlan("w", "trajpilot-cpu", 1), tmp_path / "log")
    worker.run, worker.program = run, program
    given: list[UUID] = []

    def take(ids: Sequence[UUID]) -> int:
        given.extend(ids)
        return len(ids)

    made = Pilot(worker, idle_s, lambda line: None, take)
    made.given = given  # type: ignore[attr-defined]
    return made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilots, "LOOK_S", 0.05)


def test_a_worker_that_must_go_gives_its_run_back_and_leaves_no_process(tmp_path: Path) -> None:
    pilot = flown(tmp_path, RUN)
    look: Callable[[str], list[UUID]] = runs_of

    def told_while_it_runs(mark: str) -> list[UUID]:
        held = look(mark)
        if held:
            pilot.asked = "told"
        return held

    pilots.runs_of = told_while_it_runs
    try:
        assert pilot.fly() == "told"
    finally:
        pilots.runs_of = look
    assert pilot.given == [RUN]  # type: ignore[attr-defined]
    assert not marked(pilot.worker.mark)


def test_a_worker_without_a_run_ends_and_one_with_a_run_does_not(tmp_path: Path) -> None:
    idle = flown(tmp_path, None, idle_s=0.2)
    assert idle.fly() == "idle"
    assert idle.given == []  # type: ignore[attr-defined]
    assert not marked(idle.worker.mark)
    busy = flown(tmp_path, RUN, "import time; time.sleep(1)", idle_s=0.2)
    assert busy.fly() == "died", "it ended by itself before it was idle"


def test_a_pilot_that_breaks_leaves_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pilot = flown(tmp_path, RUN)

    def broken(mark: str) -> list[UUID]:
        raise RuntimeError("planted")

    monkeypatch.setattr(pilots, "runs_of", broken)
    with pytest.raises(RuntimeError, match="planted"):
        pilot.fly()
    deadline = time.monotonic() + 5
    while marked(pilot.worker.mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not marked(pilot.worker.mark)


def test_only_runs_that_have_not_ended_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.client import orchestration
    from prefect.states import Completed, Running

    states: dict[UUID, Any] = {RUN: Running(), uuid4(): Completed()}
    told: dict[UUID, tuple[str, bool]] = {}

    class Client:
        def __enter__(self) -> "Client":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read_flow_run(self, run_id: UUID) -> SimpleNamespace:
            return SimpleNamespace(state=states[run_id])

        def set_flow_run_state(self, run_id: UUID, state: Any, *, force: bool) -> None:
            told[run_id] = (state.name, force)

    monkeypatch.setattr(orchestration, "get_client", lambda sync_client: Client())
    assert give_back(list(states)) == 1
    assert told == {RUN: ("AwaitingRetry", True)}, "a run that ended must stay as it ended"
