"""Shares a stage out over the workers of a pool: one deployed run per group of shards; the parent run works too.

The parent run occupies a worker while it waits, often the only one. So it claims groups that no worker has begun, the
last first, and computes them itself; without other workers it computes all (docs/decisions/fan-out.md).
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from uuid import UUID

import httpx
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from schemas.artifacts import ShardGroup
from schemas.config import PipelineConfig, RunOptions
from tasks.artifacts import artifact_key, is_away
from tasks.group_runs import DeployedRuns, Seen, group_deployment
from trajpilot_core.engine.execution.execute import ComputeContext, Elsewhere
from trajpilot_core.engine.execution.groups import compute_group, gather, handed, made, share_out, unfinished
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Source
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.incoming import literal
from trajpilot_core.stages import EVERY_STAGE

LOG = logging.getLogger("trajpilot")
ATTEMPTS = 3
"""Attempts before a group is given up."""
POLL_S = 2.0
LOOK_S = 10.0
"""Between two checks of the store for running groups, and between two updates of the table."""
DEAF_S = 600.0
"""How long the server may not answer, e.g. while it restarts."""
AHEAD = 8
"""Scheduled runs that wait for a worker at a time; others start when these begin. A busy server takes seconds per
request, during which this run would compute nothing."""
HERE = "this run"


@dataclass
class Row:
    """One group and its outcome."""

    group: ShardGroup
    run_id: UUID | None = None
    seen: Seen = field(default_factory=lambda: Seen("waiting", "not started"))
    here: bool = False
    failures: list[str] = field(default_factory=list)
    state: str = "waiting"
    """waiting, running, done or failed."""
    made: int = 0
    """Committed shards at the last check."""
    seconds: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the group is neither done nor failed."""
        return self.state not in ("done", "failed")

    def line(self) -> dict[str, str | int | float]:
        """Return the group's row of the table."""
        return {
            "group": f"{self.group.number} of {self.group.of}",
            "work": self.group.amount(),
            "state": self.state,
            "where": HERE if self.here else self.seen.where,
            "attempts": len(self.failures) + (0 if self.state in ("waiting", "failed") else 1),
            "seconds": round(self.seconds, 1),
            "why it failed": literal("; ".join(self.failures)),
        }


@dataclass
class Board:
    """Follows the groups of one stage until each is done or given up."""

    runs: DeployedRuns
    rows: list[Row]
    compute: Callable[[ShardGroup, Progress], object]
    """Computes a group in this process."""
    unfinished: Callable[[ShardGroup], int]
    """Number of shards of a group that the store lacks."""
    made: Callable[[ShardGroup], int]
    """Number of committed shards of a group, from a quick check."""
    progress: Progress
    table: Callable[[list[dict[str, str | int | float]]], None]
    polled: float = 0.0
    looked: float = 0.0
    answered: float = field(default_factory=time.monotonic)

    def follow(self) -> None:
        """Return when every group is done or failed; runs that have not begun are cancelled."""
        try:
            self.poll()
            while any(row.is_open for row in self.rows):
                row = self.last_waiting()
                if row is not None:
                    self.compute_here(row)
                else:
                    time.sleep(POLL_S)
                self.poll()
        finally:
            for row in self.rows:  # a worker that claims one anyway finds its work done, or does it
                begun = row.seen.stage not in ("waiting", "claimed")
                if row.is_open and row.run_id is not None and not begun and not row.here:
                    with self.patience():
                        self.runs.take_back(row.run_id)
            with self.patience():
                self.show(force=True)

    def poll(self) -> None:
        """Check all runs, restart lost ones, and show progress."""
        self.polled = time.monotonic()
        with self.patience():
            for row in self._unstarted()[: max(0, AHEAD - len(self.waiting()))]:
                row.run_id = self.runs.start(row.group, len(row.failures) + 1)
            self.look()
            self.show()

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Tolerate a server that does not answer for a while; the next poll tries again."""
        try:
            yield
        except httpx.HTTPError as error:
            if not is_away(error) or time.monotonic() - self.answered > DEAF_S:
                raise
            LOG.warning("%-13s the Prefect server does not answer: %s", self.rows[0].group.stage, error)
        else:
            self.answered = time.monotonic()

    def look(self) -> None:
        """Query the state of the open runs."""
        open_ = {row.run_id: row for row in self.rows if row.is_open and row.run_id is not None and not row.here}
        states = self.runs.look([run_id for run_id in open_ if run_id is not None])
        for run_id, row in open_.items():
            row.seen = states[run_id] if run_id in states else Seen("ended", "Deleted", "the run was deleted")
            row.seconds = row.seen.seconds
            if row.seen.stage == "ended":
                self.judge(row, f"{row.seen.name}: {row.seen.message}")
            else:
                row.state = "running" if row.seen.stage == "running" else "waiting"

    def judge(self, row: Row, reason: str) -> None:
        """Decide by the store, not by the state of its run, whether a group that ended is done."""
        missing = self.unfinished(row.group)
        group, row.made = row.group, len(row.group.shards) - missing
        if not missing:
            row.state = "done"
            LOG.info("%-13s done: %s, %.0f s", group.stage, group.label(), row.seconds)
            return
        row.failures.append(f"{missing} of {len(group.shards)} {group.unit}s are missing: {reason}")
        row.state = "failed" if len(row.failures) >= ATTEMPTS else "waiting"
        row.run_id, row.here = None, False
        then = "given up" if row.state == "failed" else "started again"
        LOG.warning("%-13s failed, %s: %s: %s", group.stage, then, group.label(), reason)

    def waiting(self) -> list[Row]:
        """Return the groups with a run that no worker has begun."""
        return [row for row in self.rows if row.is_open and row.run_id is not None and row.seen.stage == "waiting"]

    def _unstarted(self) -> list[Row]:
        return [row for row in self.rows if row.is_open and row.run_id is None and not row.here]

    def last_waiting(self) -> Row | None:
        """Return the last group that no worker has begun; lost ones are restarted first."""
        fresh = [row for row in self._unstarted() if not row.failures]
        return max([*self.waiting(), *fresh], key=lambda row: row.group.number, default=None)

    def compute_here(self, row: Row) -> None:
        """Claim a group back from the pool and compute it, polling the others meanwhile."""
        mine = False
        with self.patience():
            mine = row.run_id is None or self.runs.take_back(row.run_id)
        if not mine:
            row.seen = Seen("claimed", "Pending")
            return
        clock, row.here, row.state, reason = time.monotonic(), True, "running", "computed"
        try:
            self.compute(row.group, lambda done, total, what: self.tick(row, clock))
        except (TrajPilotError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
        row.seconds = time.monotonic() - clock
        self.judge(row, reason)

    def tick(self, row: Row, clock: float) -> None:
        """Poll the other groups when a shard of this one is finished."""
        row.seconds = time.monotonic() - clock
        if time.monotonic() - self.polled >= POLL_S:
            self.poll()

    def show(self, *, force: bool = False) -> None:
        """Update progress and table, not too often."""
        now = time.monotonic()
        if not force and now - self.looked < LOOK_S:
            return
        self.looked = now
        for row in self.rows:
            if row.state == "running":
                row.made = self.made(row.group)
        total = sum(row.group.weight() for row in self.rows)
        done = sum(row.group.weight() * row.made / len(row.group.shards) for row in self.rows)
        finished = sum(row.state == "done" for row in self.rows)
        first = self.rows[0].group
        what = f"{first.unit}s" if first.video_s is None else "s of video"
        self.progress(round(done), max(1, round(total)), f"{what}, {finished} of {len(self.rows)} groups done")
        self.table([row.line() for row in self.rows])


def fan_out(config: PipelineConfig, run: RunOptions, progress: Progress) -> Elsewhere | None:
    """Return the function that shares a stage out over the pool; None where `run` sets no size of groups.

    It computes groups in the pool and in this run, and returns the sources left to this run. It raises StoreError where
    a group failed finally, with its name and the reasons.
    """
    target_s = run.group_video_s
    if target_s is None:
        return None

    def elsewhere(work: KeyedStage, job: ComputeContext, pending: tuple[Source, ...]) -> tuple[Source, ...]:
        stage, artifacts = work.resolved.stage, list[UUID]()
        if not stage.is_shared_out:
            return pending
        deployment = group_deployment(stage, work.resolved.config)

        def table(rows: list[dict[str, str | int | float]]) -> None:
            """Show the groups in the UI: one artifact, updated while the stage runs."""
            if artifacts:
                client.update_artifact(artifacts[0], ArtifactUpdate(data=json.dumps(rows)))
                return
            key, what = artifact_key(f"{stage.name}-groups"), f"**{stage.name}**: {len(rows)} groups"
            artifacts.append(cast(UUID, create_table_artifact(table=rows, key=key, description=what)))

        with get_client(sync_client=True) as client:
            groups = share_out(work, job, pending, target_s)
            if not groups:
                return pending
            last = groups[-1].amount()
            LOG.info("%-13s shared out in %d groups, the last of them %s", stage.name, len(groups), last)
            settings, options = handed(work, job, config)
            runs = DeployedRuns(client, stage.name, deployment, settings, options)
            if job.folder.local("x") is not None:  # no other process works on it: this run has the lock of the stage
                runs.clear()
            board = Board(
                runs=runs,
                rows=[Row(group) for group in groups],
                compute=partial(compute_group, settings, options, EVERY_STAGE),
                unfinished=lambda group: len(unfinished(work, job, group.shards)),
                made=lambda group: made(job.folder, group),
                progress=progress,
                table=table,
            )
            board.follow()
        reasons = {row.group.number: "; ".join(row.failures) for row in board.rows if row.failures}
        return gather(work, job, pending, groups, reasons)

    return elsewhere
