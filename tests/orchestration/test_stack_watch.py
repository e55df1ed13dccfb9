"""What the watch over completed runs of the stack takes for a fault, with each fault planted."""

import pytest
from stack_watch import blind, marked

from deployments.deploy import CRASHED, UNSTARTED

COMPLETED = {"a": "COMPLETED", "b": "COMPLETED"}


def test_runs_that_stay_completed_are_no_fault() -> None:
    assert marked(COMPLETED, dict(COMPLETED)) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [({"a": "COMPLETED", "b": "CRASHED"}, "b: COMPLETED became CRASHED"), ({"a": "COMPLETED"}, "became gone")],
)
def test_a_run_that_is_marked_or_gone_is_told(now: dict[str, str], said: str) -> None:
    (fault,) = marked(COMPLETED, now)
    assert said in fault


def test_a_watch_that_could_see_nothing_is_a_fault() -> None:
    both = {CRASHED: True, UNSTARTED: True}
    assert blind(both, heartbeats=3) == []
    assert blind(both, heartbeats=0) == ["no heartbeat of any watched run was heard"]
    (asleep,) = blind({**both, CRASHED: False}, heartbeats=3)
    assert CRASHED in asleep
    (missing,) = blind({CRASHED: True}, heartbeats=3)
    assert UNSTARTED in missing
