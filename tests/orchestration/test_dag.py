"""The flow is the graph of what stages read: arrows, the order of the log, and branches that fail."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest

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
    names: list[str] = field(default_factory=list)
    """Stages that were at work, in order."""
    faults: dict[str, Exception] = field(default_factory=dict)


def toys(seen: Seen) -> dict[str, AnyStage]:
    """A diamond and a tail: source, then left and right, then join and alone, which reads left only."""

    def stage(name: str, reads: tuple[str, ...], config: type[Record]) -> AnyStage:
        def run(work: Work) -> None:
            seen.names.append(name)
            if name in seen.faults:
                raise seen.faults[name]
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


def options(root: Path) -> RunOptions:
    return RunOptions(root=str(root), device="cpu", workers=1)


TOYS = ("source", "left", "right", "alone", "join")


def test_stages_run_one_by_one_in_order(tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "trajpilot"):
        ran = run_flow(TOYS, options(tmp_path))
    assert ran.error is None
    assert list(ran.refs) == seen.names == list(TOYS)
    lines = [record.getMessage().split()[:2] for record in caplog.records if record.name == "trajpilot"]
    assert [[name, what.strip(",")] for name, what in lines] == [
        [name, what] for name in TOYS for what in ("started", "computed")
    ]


def test_a_branch_that_fails_lets_the_others_finish_and_is_named(
    tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    seen.faults["right"] = InputError("planted")
    ran = run_flow(TOYS, options(tmp_path))
    assert isinstance(ran.error, StagesFailedError)
    assert str(ran.error) == "right failed: InputError: planted. Not run because of that: join"
    assert seen.names == ["source", "left", "right", "alone"]
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
    error = run_flow(TOYS, options(tmp_path)).error
    assert type(error) is RuntimeError
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "left failed: InputError: planted; right failed: ZeroDivisionError: ours" in str(error)
    assert str(error).endswith("Not run because of that: alone, join")


def test_arrows_come_only_from_stages_that_the_run_asks_for(tmp_path: Path, seen: Seen) -> None:
    assert run_flow(TOYS, options(tmp_path)).error is None
    told = tasks_of(run_flow(["source", "alone", "join"], options(tmp_path)).flow_run, 3)
    assert told == {"source": Task("Cached", set()), "alone": Task("Cached", set()), "join": Task("Cached", set())}
