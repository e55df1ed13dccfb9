"""Sends curves and figures of a finished stage to an experiment tracker. Reasons: docs/decisions/tracking.md."""

import importlib
from collections import defaultdict
from pathlib import PurePosixPath
from typing import Protocol

import polars as pl

from schemas.artifacts import ArtifactRef
from schemas.config import RunOptions
from tasks.artifacts import log_line
from trajpilot_core.opened import OpenRun, open_run

Steps = dict[int, dict[str, float]]
"""Epoch -> name of a curve -> value."""
PROJECT = "trajpilot"
FIGURES = "metrics"
"""The entry of means without curves."""


class TrackedRun(Protocol):
    """The used part of the object that W&B's `init` returns."""

    def log(self, values: dict[str, float], step: int) -> None:
        """Log the values of one step."""

    def finish(self) -> None:
        """End the run."""


def track(made: ArtifactRef, run: RunOptions) -> None:
    """Send the results of a stage, where `run.tracker` names a tracker; a failure is only logged."""
    if run.tracker is None:
        return
    try:
        send(made, run)
    except Exception as error:  # noqa: BLE001  whatever a tracker raises, the stage is done
        log_line(made.stage, f"{run.tracker} failed: {type(error).__name__}: {error}; the run goes on", 0.0)


def send(made: ArtifactRef, run: RunOptions) -> None:
    """Open a run of the tracker, log every epoch of the stage's curves and the means of its metrics, and close it."""
    opened = open_run(run.root)
    steps = steps_of(opened, made.stage)
    if not steps:
        return
    tracker = importlib.import_module(str(run.tracker))
    name = PurePosixPath(run.root.rstrip("/")).name
    tracked: TrackedRun = tracker.init(
        project=PROJECT,
        name=f"{name} {made.stage} {made.fingerprint[:8]}",
        group=name,
        config={
            "recipe": run.recipe,
            "stage": made.stage,
            "content": made.fingerprint,
            "simulated": bool(opened.warning),
        },
    )
    try:
        for step, values in sorted(steps.items()):
            tracked.log(values, step=step)
    finally:
        tracked.finish()


def steps_of(opened: OpenRun, stage: str) -> Steps:
    """Return the numbers of a stage's output by epoch; numbers without an epoch are at 0."""
    steps: Steps = defaultdict(dict)
    entries = opened.outputs[stage].entries
    if (curves := f"{stage}_curves") in entries:
        for point in opened.table(curves).iter_rows(named=True):
            name = "{model}/s{seed}/{split}/{quantity}".format_map(point)
            steps[point["epoch"]][name] = point["value"]
    if FIGURES in entries:
        figures = opened.table(FIGURES).filter(
            (pl.col("pooling") == "plain") & pl.all_horizontal(pl.col("reference", "horizon", "seed").is_null())
        )
        for one in figures.iter_rows(named=True):
            steps[0][f"{one['variant']}/{one['metric']}"] = one["value"]
    return dict(steps)
