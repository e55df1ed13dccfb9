"""What the run that shares a stage out does about its groups, over a pool that is played by the test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

import tasks.fan_out as fan_out
from schemas.artifacts import ShardGroup
from tasks.fan_out import Board, Row
from tasks.group_runs import Seen
from trajpilot_core.errors import StoreError


def group(number: int, of: int) -> ShardGroup:
    shards = {f"t{number}": f"k{number}"}
    return ShardGroup(stage="features", version=1, number=number, of=of, unit="take", shards=shards, video_s=60.0)


@dataclass
class Pool:
    """Plays workers: what happens to the n-th attempt at a group is scripted; a look moves it on by one state."""

    script: dict[int, list[str]]
    """Group -> fate of each attempt: `done`, `killed`, `lies` (completed, nothing made) or `waits`."""
    made: set[int] = field(default_factory=set)
    here: list[int] = field(default_factory=list)
    started: list[tuple[int, int]] = field(default_factory=list)
    live: dict[UUID, list[Any]] = field(default_factory=dict)
    """Run -> [group, fate, looks]."""
    cancelled: list[int] = field(default_factory=list)
    outages: int = 0
    """So many looks are not answered."""

    def start(self, group: ShardGroup, attempt: int) -> UUID:
        self.started.append((group.number, attempt))
        run_id = uuid4()
        self.live[run_id] = [group.number, self.script[group.number][attempt - 1], 0]
        return run_id

    def look(self, ids: Sequence[UUID]) -> dict[UUID, Seen]:
        if self.outages:
            self.outages -= 1
            raise httpx.ConnectError("nobody answers")
        return {run_id: self.state_of(self.live[run_id]) for run_id in ids if run_id in self.live}

    def state_of(self, run: list[Any]) -> Seen:
        number, fate, looks = run
        run[2] += 1
        if fate == "waits":
            return Seen("waiting", "Late")
        if looks < 1:
            return Seen("running", "Running", where="far:1")
        if fate == "done":
            self.made.add(number)
        return Seen("ended", "Crashed" if fate == "killed" else "Completed", f"it was {fate}", "far:1", 5.0)

    def take_back(self, run_id: UUID) -> bool:
        self.cancelled.append(self.live[run_id][0])
        return bool(self.live[run_id][1] == "waits")

    def clear(self) -> None:
        raise AssertionError

    def compute(self, group: ShardGroup, told: Callable[[int, int, str], None]) -> None:
        self.here.append(group.number)
        told(1, 1, "take")
        self.made.add(group.number)


def board(pool: Pool, **changes: Any) -> Board:
    stated: dict[str, Any] = {
        "runs": pool,
        "rows": [Row(group(number, len(pool.script))) for number in pool.script],
        "compute": pool.compute,
        "unfinished": lambda group: int(group.number not in pool.made),
        "made": lambda group: int(group.number in pool.made),
        "progress": lambda *said: None,
        "table": lambda rows: None,
    }
    return Board(**{**stated, **changes})


def followed(pool: Pool, **changes: Any) -> list[dict[str, Any]]:
    """Follow to the end; return the rows of the last table."""
    tables: list[Any] = []
    board(pool, table=tables.append, **changes).follow()
    return list(tables[-1])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "POLL_S", 0.0)
    monkeypatch.setattr(fan_out, "LOOK_S", 0.0)


def test_with_workers_at_every_group_the_run_only_waits() -> None:
    pool, told = Pool({1: ["done"], 2: ["done"]}), list[Any]()
    rows = followed(pool, progress=lambda *said: told.append(said))
    assert (pool.here, pool.cancelled) == ([], [])
    assert [(row["state"], row["where"]) for row in rows] == [("done", "far:1")] * 2
    assert told[-1] == (120, 120, "s of video, 2 of 2 groups done")


def test_a_lost_group_is_started_again_and_says_why_and_is_given_up_after_three_times() -> None:
    pool = Pool({1: ["killed", "killed", "done"], 2: ["done"]})
    lost, _ = followed(pool)
    assert pool.started == [(1, 1), (2, 1), (1, 2), (1, 3)]
    assert (lost["state"], lost["attempts"]) == ("done", 3)
    assert lost["why it failed"].count("Crashed: it was killed") == 2
    lost, other = followed(Pool({1: ["killed"] * 3, 2: ["done"]}))
    assert (lost["state"], lost["attempts"], other["state"]) == ("failed", 3, "done")


def test_a_run_that_completes_without_its_shards_is_not_believed() -> None:
    pool = Pool({1: ["lies", "done"], 2: ["done"]})
    assert "1 of 1 takes are missing: Completed: it was lies" in followed(pool)[0]["why it failed"]
    assert pool.made == {1, 2}


def test_a_run_that_somebody_deleted_is_started_again() -> None:
    pool = Pool({1: ["done", "done"], 2: ["done"]})
    watched = board(pool)
    watched.poll()
    del pool.live[next(run_id for run_id, run in pool.live.items() if run[0] == 1)]
    watched.follow()
    assert (1, 2) in pool.started


def test_what_fails_in_this_process_counts_like_what_fails_elsewhere() -> None:
    def broken(group: ShardGroup, told: Callable[[int, int, str], None]) -> None:
        raise StoreError("the disk is full")

    failed, _ = followed(Pool({1: ["waits"] * 3, 2: ["done"]}), compute=broken)
    assert failed["state"] == "failed"
    assert failed["why it failed"].count("StoreError: the disk is full") == 3


def test_a_server_that_is_silent_for_a_moment_costs_nothing_and_one_that_stays_silent_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [row["attempts"] for row in followed(Pool({1: ["done"], 2: ["done"]}, outages=4))] == [1, 1]
    monkeypatch.setattr(fan_out, "DEAF_S", -1.0)
    with pytest.raises(httpx.ConnectError):
        followed(Pool({1: ["done"], 2: ["done"]}, outages=10**6))


def test_runs_that_nobody_has_begun_are_cancelled_when_the_run_breaks_off() -> None:
    def bug(group: ShardGroup, told: Callable[[int, int, str], None]) -> None:
        raise ZeroDivisionError

    pool = Pool({1: ["waits"], 2: ["waits"]})
    with pytest.raises(ZeroDivisionError):
        followed(pool, compute=bug)
    assert pool.cancelled == [2, 1]


@pytest.mark.parametrize("ahead", [4, 12])
def test_without_a_worker_the_run_computes_every_group_the_last_first_and_only_a_few_wait_before_it(ahead: int) -> None:
    pool, started = Pool({number: ["waits"] for number in range(1, 13)}), list[int]()

    def noting(group: ShardGroup, told: Callable[[int, int, str], None]) -> None:
        started.append(len(pool.started))
        pool.compute(group, told)

    assert {row["where"] for row in followed(pool, compute=noting, ahead=ahead)} == {"this run"}
    assert started[0] == ahead
    assert pool.here == list(range(12, 0, -1))
