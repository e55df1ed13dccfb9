"""What a dead worker leaves: runs that it never started and tasks of crashed runs are marked, and nothing else.

Also what the kills of the stack take for a fault.
"""

from pathlib import Path

import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.server.events.schemas.automations import EventTrigger
from prefect.states import Crashed, Running
from stack_kills import committed, faults
from stack_processes import artifact_bytes

from deployments.deploy import TAKEN, crash_automation
from tasks.group_runs import OURS, mark_left_tasks

WITHIN_S = 10
"""The least that Prefect allows."""
PULLED = "prefect.flow-run.pull-step.executed"


def test_an_automation_that_does_not_know_the_pull_step_takes_it_for_a_sign_of_life() -> None:
    """Prefect counts an expected event as life unless the trigger starts again after it."""

    def ends_the_wait(after: set[str]) -> bool:
        body = crash_automation("unstarted", after, WITHIN_S, "never started").trigger.model_dump(mode="json")
        trigger = EventTrigger.model_validate(body)
        return trigger.expects(PULLED) and not trigger.starts_after(PULLED)

    assert ends_the_wait(TAKEN - {PULLED})
    assert not ends_the_wait(TAKEN)


def never() -> None:
    """Run by nobody."""


def started(client: SyncPrefectClient, *tags: str) -> tuple[object, object]:
    run = client.create_flow_run(flow(name="left")(never), state=Running(), tags=tags)
    return run.id, client.create_task_run(task(name="stage")(never), run.id, dynamic_key="0", state=Running()).id


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_tasks_of_crashed_runs_are_marked_and_those_of_a_living_run_are_not() -> None:
    with get_client(sync_client=True) as client:
        (dead, dead_task), (_, living_task) = started(client, OURS), started(client, OURS)
        foreign, foreign_task = started(client)
        assert mark_left_tasks() == 0
        for run_id in (dead, foreign):
            client.set_flow_run_state(run_id, Crashed(), force=True)
        assert mark_left_tasks() == 1
        names = [client.read_task_run(id_).state_name for id_ in (dead_task, living_task, foreign_task)]
    assert names == ["Crashed", "Running", "Running"]


SHARD, STAGE = "artifacts/features/shards/a/record.json", "artifacts/ingest/k/manifest.json"


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_a_finished_shard_that_is_written_again_and_files_that_differ_are_faults(tmp_path: Path) -> None:
    for name in (SHARD, STAGE):
        put(tmp_path / name)
    before, wanted = committed(tmp_path), artifact_bytes(tmp_path)
    put(tmp_path / "artifacts/ingest/k/run_record.json", "another day")
    assert faults(tmp_path, before, wanted) == []
    put(tmp_path / SHARD)
    assert faults(tmp_path, before, wanted) == [f"{SHARD} was finished and is written again"]
    (tmp_path / STAGE).unlink()
    put(tmp_path / "artifacts/more")
    names = (STAGE, "artifacts/more")
    assert faults(tmp_path, {}, wanted) == [f"{name} is not as it was to be" for name in sorted(names)]
