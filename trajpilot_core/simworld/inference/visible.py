"""Which true steps a planning window shows, and how much of each: a superset of what any row of the tables sees.

A segment shows every step that its interval overlaps, also the neighbours of its own. The look fades over a boundary
and so reaches further than the motion. Source: docs/decisions/ceiling.md.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from schemas.world import WorldConfig
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.errors import InputError
from trajpilot_core.simworld.inference.evidence import VisibleSteps
from trajpilot_core.simworld.layouts.base import TableSteps, layout_of
from trajpilot_core.simworld.world.appearance import FADE_S
from trajpilot_core.simworld.world.truth import TakeTruth, World

InputKind = Literal["no_traj", "endpoint_traj", "oracle", "start", "start_motion", "motion_to_goal"]
KINDS: tuple[InputKind, ...] = ("no_traj", "endpoint_traj", "oracle")
"""The rows whose inputs differ; every other row that is given a goal sees what one of them sees."""
KINDS_WITHOUT_GOAL: tuple[InputKind, ...] = ("start", "start_motion", "motion_to_goal")
"""What rows see that are given no goal."""
SAME_IN_PIXELS: Mapping[InputKind, InputKind] = {"endpoint_traj": "no_traj", "start_motion": "start"}
"""Kind -> another one that sees the same, because pixels show the motion of the head."""
MISLABELLED = 0.01
"""Most segments whose label may differ from that of their step: an annotator may be off by more than half a step."""
MISSPELT = 0.1
"""Most segments of time points whose label may be that of no step, where labels have classes: texts may have typos."""


@dataclass(frozen=True)
class TakeSteps:
    """One take of the tables, laid over the true one. K segments, in order of time."""

    take: TakeTruth
    take_id: str
    segment_ids: tuple[str, ...]
    step: Codes
    """(K,) true step of every segment, not falling."""
    look: Codes
    """(K, 2) first and last true step whose look or object place the segment's interval shows."""
    motion: Codes
    """(K, 2) first and last true step whose head motion it shows."""


class WindowGroup(NamedTuple):
    """Windows of one shape: equal horizon, and equal distances between their true steps."""

    rows: Codes
    """(W,) places of the windows in the list that was grouped."""
    segments: Codes
    """(W, H) segments, counted over all takes of the list."""
    offsets: tuple[int, ...]
    """H true steps, counted from the first."""


def reach_s(config: WorldConfig) -> float:
    """Return how far outside its interval a segment shows anything, seconds, apart from the fading of the look.

    A frame covers half a frame before and behind it and its coding may depend on its neighbour, and a pose is
    between two rows.
    """
    return max(1.0 / config.fps, 1.1 / config.trajectory_hz)


def steps_of(world: World) -> TableSteps:
    """Return how the tables of the world's layout show its steps. Raises InputError: they do not show them."""
    steps = layout_of(world.config.layout).steps
    if isinstance(steps, str):
        raise InputError(f"the layout {world.config.layout} does not show the steps of its world: {steps}")
    return steps


def unshown(world: World, segments: pa.Table, *, has_classes: bool) -> str | None:
    """Return why tables of a world have no exact ceiling; None: they have one. Raises InputError: not of this world."""
    steps = layout_of(world.config.layout).steps
    if isinstance(steps, str):
        return steps
    names, ids = set(steps.label_ids(world)), segments["label_id"].to_pylist()
    strangers = Counter(label for label in ids if label not in names)
    most = MISSPELT if steps.are_points else 0.0
    if (has_classes or not steps.are_points) and strangers.total() > most * len(ids):
        named = ", ".join(repr(label) for label, _ in strangers.most_common(3))
        return f"{strangers.total()} of {len(ids)} segments carry a label that no step of the world has ({named})"
    if steps.are_points:
        return None
    # What is left out by its label is evidence about the steps that are there; exact inference does not know it.
    label_of, placed = steps.label_ids(world), steps.takes(world)
    takes = [placed[take].take for take in _by_take(segments) if take in placed]
    gone = sorted({label_of[step.label] for take in takes for step in take.segments} - set(ids))
    shown = ", ".join(gone[:3])
    return f"{len(gone)} labels that were performed are left out of the tables ({shown})" if gone else None


def take_steps(world: World, segments: pa.Table) -> list[TakeSteps]:
    """Lay the takes of a segments table over those of the world, in order of take id.

    A segment belongs to the true step whose time point is nearest to its own, or in which the middle of its interval
    lies: segments may be missing from the table.

    Raises InputError: the table is not one of this world, or its layout does not show the steps.
    """
    steps = steps_of(world)
    placed, names = steps.takes(world), steps.label_ids(world)
    known, reach = set(names), reach_s(world.config)
    of_takes, wrong, n = [], 0, 0
    for name, rows in _by_take(segments).items():
        if name not in placed:
            raise InputError(f"take {name} is not in the simulated world of world.json; run ingest on this data root")
        take, begin_s = placed[name]
        anchor_s, start_s, end_s = (
            np.array([row[column] for row in rows]) + begin_s for column in ("anchor_s", "start_s", "end_s")
        )
        if steps.are_points:
            time_s = np.array([segment.time_s for segment in take.segments])
            step = np.abs(anchor_s[:, None] - time_s).argmin(axis=1)
        else:
            step = overlapped(take, anchor_s, anchor_s)[:, 0]
        shown = [overlapped(take, start_s - more, end_s + more) for more in (reach + FADE_S / 2, reach)]
        of_takes.append(TakeSteps(take, name, tuple(row["segment_id"] for row in rows), step, *shown))
        labels = [names[take.segments[at].label] for at in step.tolist()]
        wrong += sum(row["label_id"] in known - {label} for row, label in zip(rows, labels, strict=True))
        n += len(rows)
    if wrong > MISLABELLED * n:
        raise InputError(
            f"{wrong} of {n} segments carry another label than their step in the simulated world of world.json; "
            "run ingest on this data root"
        )
    return of_takes


def _by_take(segments: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Return take id -> its segments in order of time, takes sorted."""
    columns = ["take_id", "segment_id", "start_s", "end_s", "anchor_s", "label_id"]
    order = [("take_id", "ascending"), ("anchor_s", "ascending"), ("segment_id", "ascending")]
    takes: dict[str, list[dict[str, Any]]] = {}
    for row in segments.select(columns).sort_by(order).to_pylist():
        takes.setdefault(row["take_id"], []).append(row)
    return takes


def overlapped(take: TakeTruth, start_s: Array, end_s: Array) -> Codes:
    """Return the first and the last step, (K, 2), that share time with the open intervals (start_s, end_s), (K,).

    What is before the first step belongs to it, and what is behind the last to that.
    """
    inner = np.array([segment.end_s for segment in take.segments[:-1]])
    return np.stack([np.searchsorted(inner, start_s, side="right"), np.searchsorted(inner, end_s, side="left")], axis=1)


def window_groups(takes: Sequence[TakeSteps], windows: Sequence[Sequence[str]]) -> Iterator[WindowGroup]:
    """Yield the windows, given as lists of segment ids, by shape."""
    number = {segment: i for i, segment in enumerate(s for take in takes for s in take.segment_ids)}
    step = np.concatenate([take.step for take in takes])
    for horizon in sorted({len(window) for window in windows}):
        rows = np.array([i for i, window in enumerate(windows) if len(window) == horizon])
        segments = np.array([[number[segment] for segment in windows[i]] for i in rows])
        offsets = step[segments] - step[segments[:, :1]]
        shapes, member = np.unique(offsets, axis=0, return_inverse=True)
        for i, shape in enumerate(shapes):
            inside = member.reshape(-1) == i
            yield WindowGroup(rows[inside], segments[inside], tuple(shape.tolist()))


def seen_by(takes: Sequence[TakeSteps], group: WindowGroup, kind: InputKind) -> VisibleSteps:
    """Return what windows of one shape show to the rows of one kind.

    Args:
        takes: the list that the group counts segments and steps over.
        kind: no_traj and endpoint_traj: the two end segments, whose head motion pixels show too; oracle: with the head
            motion of all segments. start and start_motion: the first segment; motion_to_goal: with the head motion of
            all segments but the last.
    """
    every = group.segments
    ends = every[:, :1] if kind in KINDS_WITHOUT_GOAL else every[:, [0, -1]]
    moving = {"oracle": every, "motion_to_goal": every[:, :-1]}.get(kind, ends)
    look, motion = (np.concatenate([getattr(take, name) for take in takes]) for name in ("look", "motion"))
    first = np.concatenate([take.step for take in takes])[group.segments[:, 0]]
    shown = np.concatenate([look[ends], motion[moving]], axis=1)
    before = max(0, int((first[:, None] - shown[..., 0]).max()))
    behind = max(0, int((shown[..., 1] - first[:, None]).max()) - group.offsets[-1])
    columns = np.arange(-before, group.offsets[-1] + behind + 1)
    step = first[:, None] + columns
    # The evidence is that of all takes, one after the other; -1 is outside of the window's own.
    n_steps = np.array([len(take.take.segments) for take in takes])
    owner = np.repeat(np.arange(len(takes)), [len(take.segment_ids) for take in takes])[every[:, :1]]
    base = np.cumsum(n_steps) - n_steps
    rows = np.where((step >= 0) & (step < n_steps[owner]), base[owner] + step, -1)
    return VisibleSteps(
        rows, _covered(step, look[ends]), _covered(step, motion[moving]), tuple(before + o for o in group.offsets)
    )


def _covered(step: Codes, shown: Codes) -> Mask:
    """Return (W, S): true where a step is in one of the window's (W, n, 2) ranges."""
    inside = (step[:, :, None] >= shown[:, None, :, 0]) & (step[:, :, None] <= shown[:, None, :, 1])
    return np.asarray(inside.any(axis=2))
