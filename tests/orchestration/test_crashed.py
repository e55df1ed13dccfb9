"""Tasks that a crashed run left running are marked; those of a living run, and of other projects, are not."""

import pytest
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Running


@flow(name="left")
def left() -> None:
    """Never run."""


@task(name="stage")
def stage() -> None:
    """Never run."""


def started(client: SyncPrefectClient, *tags: str) -> tuple[object, object]:
    """A run with one running task."""
    run = client.create_flow_run(left, state=Running(), tags=tags)
    return run.id, client.create_task_run(stage, run.id, dynamic_key="0", state=Running()).id


@pytest.mark.slow
def test_tasks_of_crashed_runs_are_marked_and_those_of_a_living_run_are_not(prefect_server: str) -> None:
    from tasks.crashed import OURS, mark_left_tasks

    with temporary_settings({PREFECT_API_URL: prefect_server}), get_client(sync_client=True) as client:
        (dead, dead_task), (_, living_task) = started(client, OURS), started(client, OURS)
        foreign, foreign_task = started(client)
        assert mark_left_tasks() == 0
        for run_id in (dead, foreign):
            client.set_flow_run_state(run_id, Crashed(), force=True)
        assert mark_left_tasks() == 1
        names = [client.read_task_run(id_).state_name for id_ in (dead_task, living_task, foreign_task)]
    assert names == ["Crashed", "Running", "Running"]
