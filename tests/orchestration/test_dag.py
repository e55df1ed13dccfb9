"""The flow is the graph of what stages read: arrows, stages side by side, branches that fail, and the log's order."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from stack_processes import artifact_bytes

from schemas.artifacts import ArtifactRef
from schemas.base import Record
from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, ReportConfig, RunOptions, TextConfig
from schemas.poses import TrajectoryConfig
from trajpilot_core.engine.stage import AnyStage, Stage, Work
from trajpilot_core.errors import InputError, StagesFailedError, TrajPilotError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("prefect_server")]
PATIENCE_S = 200.0


@dataclass
class Seen:
    now: set[str] = field(default_factory=set)
    together: list[frozenset[str]] = field(default_factory=list)
    meet: threading.Barrier | None = None
    """Stages that must be at work at the same time, before one of them may end."""
    faults: dict[str, Exception] = field(default_factory=dict)

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        self.now.add(name)
        self.together.append(frozenset(self.now))
        try:
            if self.meet is not None and name in ("left", "right"):
                self.meet.wait(PATIENCE_S)
            if name in self.faults:
                raise self.faults[name]
            yield
        finally:
            self.now.discard(name)


def toys(seen: Seen) -> dict[str, AnyStage]:
    """A diamond and a tail: source, then left and right, then join and alone, which reads left only."""

    def stage(name: str, reads: tuple[str, ...], config: type[Record]) -> AnyStage:
        def run(work: Work) -> None:
            with seen.working(name):
                total = sum(work.inputs.table(entry)["n"][0].as_py() for entry in reads)
                work.sink.table(name, pa.table({"n": [total + 1]}))
                work.sink.count(1, 1)

        return Stage(name, reads, (name,), config, run, 1, "toy")

    made = (
        stage("source", (), IngestConfig),
        stage("left", ("source",), TrajectoryConfig),
        stage("right", ("source",), FeatureConfig),
        stage("alone", ("left",), TextConfig),
        stage("join", ("left", "right"), ReportConfig),
    )
    return {toy.name: toy for toy in made}


class Ran(NamedTuple):
    flow_run: UUID
    refs: dict[str, ArtifactRef]
    error: Exception | None


def run_flow(names: Sequence[str], run: RunOptions) -> Ran:
    from prefect import flow, runtime

    from flows.pipeline import run_stages

    found: list[UUID] = []

    @flow(name="dag", persist_result=False)
    def dag() -> dict[str, ArtifactRef]:
        found.append(UUID(str(runtime.flow_run.id)))
        return run_stages(names, PipelineConfig(), run)

    try:
        refs = dag()
    except (TrajPilotError, RuntimeError) as error:
        return Ran(found[0], {}, error)
    return Ran(found[0], refs, None)


class Task(NamedTuple):
    """A task run, as the server tells of it."""

    state: str
    read: set[str]
    """Names of the task runs that its arrows come from."""


def tasks_of(flow_run: UUID, count: int) -> dict[str, Task]:
    """Return the task runs of a flow run by name, once the server has heard of all."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.objects import TaskRunResult

    limit = time.monotonic() + PATIENCE_S
    with get_client(sync_client=True) as client:
        while True:
            chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
            found = client.read_task_runs(flow_run_filter=chosen)
            states = {task.name: task.state.name or "" for task in found if task.state is not None}
            if len(found) == count and not {"Running", "Pending"} & set(states.values()):
                break
            assert time.monotonic() < limit, states
            time.sleep(0.2)
    names = {task.id: task.name for task in found}
    inputs = {task.name: task.task_inputs.get("wait_for", []) for task in found}
    read = {name: {names[one.id] for one in given if isinstance(one, TaskRunResult)} for name, given in inputs.items()}
    return {name: Task(state, read[name]) for name, state in states.items()}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The toys in place of the real stages."""
    from flows import pipeline
    from tasks import stage

    seen = Seen()
    stages = toys(seen)
    for module in (pipeline, stage):
        monkeypatch.setattr(module, "EVERY_STAGE", stages)
    return seen


def options(root: Path, at_once: int) -> RunOptions:
    return RunOptions(root=str(root), device="cpu", workers=1, stages_at_once=at_once)


TOYS = ("source", "left", "right", "alone", "join")


def test_stages_that_do_not_need_each_other_overlap_and_write_and_tell_what_one_at_a_time_does(
    tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    alone = run_flow(TOYS, options(tmp_path / "one", 1))
    assert max(map(len, seen.together)) == 1
    seen.meet = threading.Barrier(2)  # neither of them ends before the other has begun
    with caplog.at_level("INFO", "trajpilot"):
        beside = run_flow(TOYS, options(tmp_path / "three", 3))
    assert frozenset(("left", "right")) in seen.together
    assert alone.error is beside.error is None
    assert list(alone.refs) == list(beside.refs) == list(TOYS)
    assert {n: r.fingerprint for n, r in alone.refs.items()} == {n: r.fingerprint for n, r in beside.refs.items()}
    assert artifact_bytes(tmp_path / "one") == artifact_bytes(tmp_path / "three")
    lines = [record.getMessage() for record in caplog.records if record.name == "trajpilot"]
    assert {line.split()[0] for line in lines} == set(TOYS)
    begins = {name: lines.index(f"{name:<13} started") for name in TOYS}
    ends = {name: next(k for k, line in enumerate(lines) if line.startswith(f"{name:<13} computed")) for name in TOYS}
    for arrow in ("source left", "source right", "left alone", "left join", "right join"):
        before, after = arrow.split()
        assert begins[before] < ends[before] < begins[after]


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_branch_that_fails_lets_the_others_finish_and_is_named(
    at_once: int, tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    seen.faults["right"] = InputError("planted")
    ran = run_flow(TOYS, options(tmp_path, at_once))
    assert isinstance(ran.error, StagesFailedError)
    assert str(ran.error) == "right failed: InputError: planted. Not run because of that: join"
    assert "join" not in {name for together in seen.together for name in together}
    assert (tmp_path / "artifacts" / "alone" / "current").exists()
    told = tasks_of(ran.flow_run, len(TOYS))
    assert {name: task.read for name, task in told.items()} == {
        name: set(toy.reads) for name, toy in toys(seen).items()
    }
    states = dict.fromkeys(TOYS, "Completed") | {"right": "Failed", "join": "NotReady"}
    assert {name: task.state for name, task in told.items()} == states
    assert "right         failed: InputError: planted" in caplog.messages
    assert "join          not run: it reads right" in caplog.messages


def test_two_branches_that_fail_are_both_named_and_a_fault_of_the_program_keeps_its_traceback(
    tmp_path: Path, seen: Seen
) -> None:
    seen.faults |= {"left": InputError("planted"), "right": ZeroDivisionError("ours")}
    error = run_flow(TOYS, options(tmp_path, 3)).error
    assert type(error) is RuntimeError
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "left failed: InputError: planted; right failed: ZeroDivisionError: ours" in str(error)
    assert str(error).endswith("Not run because of that: alone, join")


def test_arrows_come_only_from_stages_that_the_run_asks_for(tmp_path: Path, seen: Seen) -> None:
    assert run_flow(TOYS, options(tmp_path, 3)).error is None
    told = tasks_of(run_flow(["source", "alone", "join"], options(tmp_path, 1)).flow_run, 3)
    assert told == {"source": Task("Cached", set()), "alone": Task("Cached", set()), "join": Task("Cached", set())}
