"""What the leak checks read: the tables of one run, the truth of its world, and how a check is worded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from schemas.checks import LeakConfig
from schemas.results import LeakCheck
from schemas.world import WorldConfig
from trajpilot_core.arrays import Codes
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.data.planning import PlanningData, load_planning_data
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.simworld.inference.visible import overlapped, reach_s
from trajpilot_core.simworld.world.appearance import FADE_S
from trajpilot_core.simworld.world.truth import TakeTruth, World

READER = "leak checks"


class Provenance(NamedTuple):
    """Which world was asked for, which one lies there, and when what was fixed and computed."""

    stored: WorldConfig
    """As `world.json` of the data root says."""
    dated: WorldConfig
    """As the dated configuration asks for it."""
    fixed_on: str
    """Date on which that configuration was fixed, YYYY-MM-DD."""
    computed_on: str | None
    """Date on which the run began, YYYY-MM-DD; None where it was not noted."""


@dataclass(frozen=True)
class Steps:
    """Segments of unbroken takes whose label is one of the world's, in order of their ids. N of them."""

    row: Codes
    """(N,) row of PlanningData."""
    label: Codes
    """(N,) index into the world's labels."""
    take: Codes
    """(N,) index into PlanningData.take_ids."""
    split: Codes
    """(N,) 0 train, 1 dev, 2 test."""
    at: Codes
    """(N,) step of the take's truth whose time point is nearest."""
    appearance: Codes
    """(N, 2) first and last step whose appearance the segment's interval shows."""
    motion: Codes
    """(N, 2) first and last step whose head motion it shows."""


@dataclass(frozen=True)
class LeakContext:
    """One run and its world."""

    inputs: Inputs
    world: World
    provenance: Provenance
    config: LeakConfig
    without: frozenset[str]
    """Entries that this kind of run does not have."""
    data: PlanningData
    takes: tuple[dict[str, Any], ...]
    """Rows of the takes table, in the order of PlanningData.take_ids."""
    segments: tuple[dict[str, Any], ...]
    """Rows of the segments table, in the order of PlanningData.segment_ids."""
    truths: tuple[TakeTruth | None, ...]
    """Of each take; None where the world does not know it."""
    steps: Steps

    def has(self, *names: str) -> bool:
        """Return whether the run has all these entries."""
        return not self.without.intersection(names)

    def sound(self) -> Codes:
        """Return the (T,) takes that the world knows and did not break, as indices into PlanningData.take_ids."""
        return np.array([i for i, t in enumerate(self.truths) if t is not None and t.fault is None], np.int64)


def load_material(
    inputs: Inputs, world: World, provenance: Provenance, config: LeakConfig, without: Sequence[str] = ()
) -> LeakContext:
    """Read the tables and find the truth of every take and segment.

    Args:
        inputs: what the evaluation stage reads, and `predictions`.
        world: sampled from `provenance.stored`.
        provenance: which world was asked for, and when.
        config: bounds.
        without: entries that this kind of run does not have.
    """
    data = load_planning_data(inputs, READER)
    takes = {row["take_id"]: row for row in inputs.table("takes").to_pylist()}
    segments = {row["segment_id"]: row for row in inputs.table("segments").to_pylist()}
    known = {take_id(take.uid): take for take in world.takes}
    truths = tuple(known.get(name) for name in data.take_ids)
    rows = tuple(segments[name] for name in data.segment_ids)
    return LeakContext(
        inputs=inputs,
        world=world,
        provenance=provenance,
        config=config,
        without=frozenset(without),
        data=data,
        takes=tuple(takes[name] for name in data.take_ids),
        segments=rows,
        truths=truths,
        steps=_steps(data, rows, truths, world),
    )


def _steps(
    data: PlanningData, segments: Sequence[dict[str, Any]], truths: Sequence[TakeTruth | None], world: World
) -> Steps:
    """Find the step of every segment that counts."""
    label_of = {label.label_id: i for i, label in enumerate(world.labels)}
    take_of = data.segment_take.tolist()
    reach = reach_s(world.config)
    found = []
    for row, (segment, take) in enumerate(zip(segments, take_of, strict=True)):
        truth, label = truths[take], label_of.get(segment["label_id"])
        if truth is not None and truth.fault is None and label is not None:
            at = int(np.abs(np.array([step.time_s for step in truth.segments]) - segment["anchor_s"]).argmin())
            spans = [_shown(truth, segment, at, seen) for seen in (reach + FADE_S / 2, reach)]
            found.append((row, label, take, at, *spans[0], *spans[1]))
    table = np.array(found, np.int64).reshape(-1, 8)
    row, label, take, at = table[:, :4].T
    return Steps(row, label, take, data.take_split.numpy()[take], at, appearance=table[:, 4:6], motion=table[:, 6:])


def _shown(truth: TakeTruth, segment: dict[str, Any], at: int, reach: float) -> tuple[int, int]:
    """Return the first and the last step that share time with a segment, its own included; `reach` in seconds."""
    span_s = np.array([segment["start_s"] - reach]), np.array([segment["end_s"] + reach])
    first, last = overlapped(truth, *span_s)[0].tolist()
    return min(first, at), max(last, at)


def at_most(check: str, value: float, bound: float, detail: str) -> LeakCheck:
    """Word a check whose value may not exceed its bound."""
    verdict = "holds" if value <= bound else "fails"
    return LeakCheck(check=f"leak: {check}", value=value, bound=bound, verdict=verdict, detail=detail)


def at_least(check: str, value: float, bound: float, detail: str) -> LeakCheck:
    """Word a check whose value, a p-value, may not lie below its bound."""
    return at_most(check, value, bound, detail).replace(verdict="holds" if value >= bound else "fails")


class Miss(NamedTuple):
    """One model or choice: by how many points of dev it misses what it should have, and the figures."""

    name: str
    points: float
    figures: str


def worst_of(check: str, found: Sequence[Miss], bound: float, what: str) -> LeakCheck:
    """Word a check of several models or choices by the one that misses most."""
    worst = max(found, key=lambda row: row.points)
    return at_most(check, worst.points, bound, f"{what}, {worst.name} of {len(found)}: {worst.figures}")


def none_of(check: str, faults: Sequence[str], holds: str) -> LeakCheck:
    """Word an exact rule: the number of its violations, which must be 0; the first three are named."""
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    detail = "; ".join(faults[:3]) + more if faults else holds
    return at_most(check, float(len(faults)), 0.0, detail)


def not_run(check: str, why: str) -> LeakCheck:
    """Word a check that could not be made."""
    return LeakCheck(check=f"leak: {check}", value=0.0, bound=None, verdict="not run", detail=why)
