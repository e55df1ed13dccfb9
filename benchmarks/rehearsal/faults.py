"""Faults that the check of growth must find: planted into one stage of a rehearsal, off unless a test asks."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict

import numpy as np

from trajpilot_core.engine.stage import AnyStage, Work

Kind = Literal["slow", "large", "leak"]
SLOW_S, LARGE_BYTES, LEAKED_BYTES = 6e-4, 2**15, 2**16
"""For each pair of takes, each pair of takes, each segment."""
SEEN_S = 1.0
"""A peak is sampled: it must last."""
HELD: list[Any] = []
"""What the planted leak never lets go."""


class Fault(TypedDict):
    """What is wrong with which stage."""

    stage: str
    kind: Kind
    """slow, large: time or memory grow with the square of the takes; leak: what was read stays in memory."""


def with_fault(stages: Mapping[str, AnyStage], fault: Fault | None) -> dict[str, AnyStage]:
    """Return the stages, one of them with the fault before its own work."""
    if fault is None:
        return dict(stages)
    sound = stages[fault["stage"]]

    def run(work: Work[Any]) -> None:
        plant(fault["kind"], work)
        sound.run(work)

    return {**stages, fault["stage"]: replace(sound, run=run)}


def plant(kind: Kind, work: Work[Any]) -> None:
    """Do what the fault does."""
    n = work.inputs.table("takes", ["take_id"]).num_rows
    if kind == "slow":
        began = time.process_time()
        while time.process_time() - began < SLOW_S * n * n:
            pass
    elif kind == "large":
        table = np.ones((n, n, LARGE_BYTES), np.uint8)
        time.sleep(SEEN_S)
        del table
    else:
        HELD.append(np.ones((work.inputs.table("segments", ["take_id"]).num_rows, LEAKED_BYTES), np.uint8))
