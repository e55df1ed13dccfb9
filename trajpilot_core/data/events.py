"""Events as tensors: shots with their outcomes, and actions with their classes; what was seen before each one.

Shapes: N events, T tokens of a feature for the probe, C tokens of a feature for the predictor, D feature width,
V labels, E text width. Source: docs/decisions/outcome.md, docs/decisions/epic-token.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from schemas.annotation import DOF, MOTIONS
from schemas.rejects import Reject
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.data.action_clips import ClipData, load_clips
from trajpilot_core.data.other_runs import shown
from trajpilot_core.data.planning import SPLITS, OnDevice, fold_tensor, load_planning_data, motions_tensor, read_bank
from trajpilot_core.errors import InputError, LeakError, StoreError
from trajpilot_core.metrics.epic_kitchens import PARTS, ActionPart
from trajpilot_core.poses.sources.base import check_one_source
from trajpilot_core.store.reading import Inputs

TRAIN, DEV, TEST = range(3)
"""Indices of the splits (data/planning.py, SPLITS)."""
BEFORE, DURING = range(2)
"""Parts of the head motion."""
PAIR = 2
"""Segments of a window of shots: the one before the shot, and the shot."""
FRAMES_A_TUBELET = 2
LATE_S = 1e-6
"""Tolerance for rounding."""


@dataclass(frozen=True)
class Events(OnDevice):
    """N events: what was seen before each one, and the head motion before and during it."""

    take_ids: tuple[str, ...]
    """All takes."""
    take: Tensor
    """(N,) long, index into take_ids."""
    split: Tensor
    """(N,) long."""
    take_split: Tensor
    """(takes,) long."""
    fold: Tensor
    """(takes,) long (data/planning.py, NO_FOLD)."""
    context: Tensor
    """(N, C, D) float16, raw: features before the event, input of the predictor."""
    motions: Tensor
    """(N, 2, 16, 6) float32, raw: head motion before and during the event; zeros if there is none."""
    has_motion: Tensor
    """(N, 2) bool."""

    def __len__(self) -> int:
        return len(self.take)

    def rows(self, split: int) -> Tensor:
        """Return (n,) long: the events of a split, ascending."""
        return (self.split == split).nonzero()[:, 0]

    def hidden(self, rows: Tensor, names: Sequence[str], parts: Sequence[int]) -> Self:
        """Return the same where events `rows` (n,), long, have fields and parts of the head motion of other ones."""
        other = rows.roll(1)
        changed = {name: getattr(self, name).clone() for name in (*names, "motions", "has_motion")}
        for name in names:
            changed[name][rows] = getattr(self, name)[other]
        for part in parts:
            changed["motions"][rows, part] = self.motions[other, part]
            changed["has_motion"][rows, part] = self.has_motion[other, part]
        return replace(self, **changed)


@dataclass(frozen=True)
class Shots(Events):
    """N shots in order of their ids. `context` is (N, 1, D): the mean of the tokens.

    Rows may read `tokens`, `context` and `motions`, if they declare it, but no later field.
    """

    tokens: Tensor
    """(N, T, D) float16, raw: features of the segment before the shot, input of the probe."""
    ids: tuple[str, ...]
    made: Tensor
    """(N,) bool, the outcome. Rows may read it for retrieved training shots only."""
    shot: Tensor
    """(N, T, D) float16: features of the shot itself."""
    labels: Tensor
    """(N, 2) long, labels of both segments."""


def load_shots(inputs: Inputs) -> tuple[Shots, list[Reject]]:
    """Read the shots whose two segments have features and motions; one reject for each other shot.

    Raises:
        InputError: the windows are not pairs, so that the corpus has no shots.
        LeakError: the segment before a shot ends after the shot, or a shot and its take are in different splits.
        StoreError: tables do not match, or the outcome of a shot is not made or missed.
    """
    data = load_planning_data(inputs, "outcome")
    if set(data.windows) - {PAIR}:
        raise InputError(
            f"windows of {', '.join(map(str, data.windows))} segments are not shots; outcomes are only predicted on "
            "ingest.corpus=egoexo4d_basketball"
        )
    if not data.windows:
        raise InputError("no shot has features and head motion; look at the rejects of trajectories and features")
    windows = data.windows[PAIR]
    if not torch.equal(windows.split, data.take_split[windows.take]):
        wrong = (windows.split != data.take_split[windows.take]).nonzero()[:, 0].tolist()
        names = [f"{windows.window_ids[i]} of {data.take_ids[int(windows.take[i])]}" for i in wrong]
        raise LeakError(f"shots are in another split than their take: {shown(names)}; run ingest again")
    columns = ("end_s", "anchor_s")
    rows = inputs.table("segments", ["segment_id", *columns]).to_pylist()
    time_of = {row["segment_id"]: [row[name] for name in columns] for row in rows}
    times = torch.tensor([time_of[segment] for segment in data.segment_ids], dtype=torch.float64).view(-1, len(columns))
    before, at = windows.segments.T
    refuse_late(windows.window_ids, times[before, 0], times[at, 1])
    details = inputs.table("details", ["segment_id", "event", "outcome"]).to_pylist()
    detail_of = {row["segment_id"]: row for row in details}
    of_shots = [detail_of[data.segment_ids[row]] for row in at.tolist()]
    for row in of_shots:
        if row["outcome"] not in ("made", "missed"):
            raise StoreError(f"{row['segment_id']} has the outcome {row['outcome']!r}, not made or missed; run ingest")
    shots = Shots(
        take_ids=data.take_ids,
        take=windows.take,
        split=windows.split,
        take_split=data.take_split,
        fold=data.fold,
        context=data.features[before].float().mean(1, keepdim=True).half(),
        motions=data.motions[windows.segments],
        has_motion=torch.ones(len(at), PAIR, dtype=torch.bool),
        tokens=data.features[before],
        ids=tuple(row["event"] for row in of_shots),
        made=torch.tensor([row["outcome"] == "made" for row in of_shots]),
        shot=data.features[at],
        labels=data.labels[windows.segments],
    )
    return shots, data.rejects


def refuse_late(ids: tuple[str, ...], seen_until_s: Tensor, moment_s: Tensor) -> None:
    """Raise LeakError where the segment before a shot ends, (N,) seconds, after the time of the shot, (N,)."""
    late = (seen_until_s > moment_s).nonzero()[:, 0].tolist()
    if late:
        names = [f"{ids[i]} (seen until {seen_until_s[i]:.2f} s, shot at {moment_s[i]:.2f} s)" for i in late]
        raise LeakError(f"the segment before a shot ends after the shot: {shown(names)}; run ingest again")


@dataclass(frozen=True)
class ActionEvents(Events):
    """N clips in the order of the features. `context` is (N, 1, D): the mean of the tubelets of the last seconds.

    Rows may read `tokens`, `context` and, if they declare it, `motions`, but no later field.
    """

    tokens: Tensor
    """(N, T, D) float16, input of the probe."""
    bank: Tensor
    """(V, E) float32, unit norm: texts of the labels."""
    labels: Tensor
    """(N,) long, index into bank: the action. Rows may read it for retrieved training clips only."""
    classes: Tensor
    """(N, 3) long: verb, noun and pair of the action."""


def load_events(inputs: Inputs, seen_s: float, gap_s: float = 0.0) -> tuple[ActionEvents, ClipData]:
    """Join clips, both sets of motions, labels and folds; a clip without motions is kept.

    Args:
        seen_s: seconds before the end of a clip that the predictor sees.
        gap_s: gap before the action; the head motion before it must end earlier.

    Raises:
        InputError: no training action has head motion.
        LeakError: head motion before an action reaches into the action or the gap.
    """
    data = load_clips(inputs)
    takes = sorted(inputs.table("takes").to_pylist(), key=lambda row: str(row["take_id"]))
    take_of = {row["take_id"]: at for at, row in enumerate(takes)}
    segments = {row["segment_id"]: row for row in inputs.table("segments").to_pylist()}
    rows = [segments[segment] for segment in data.segment_ids]
    _refuse_late_motion(data, np.array([row["end_s"] for row in rows], dtype=np.float64), gap_s)
    label_ids, bank = read_bank(inputs)
    label_of = {label: at for at, label in enumerate(label_ids)}
    tables = [inputs.table(name) for name in ("video_motions", "motions")]  # before the actions, during the actions
    check_one_source(*tables)
    motions = torch.zeros(len(rows), len(tables), MOTIONS, DOF)
    has_motion = torch.zeros(len(rows), len(tables), dtype=torch.bool)
    for part, table in enumerate(tables):
        known = set(table["segment_id"].to_pylist())
        clips = [at for at, segment in enumerate(data.segment_ids) if segment in known]
        if clips:
            motions[clips, part] = motions_tensor(table, [data.segment_ids[at] for at in clips])
            has_motion[clips, part] = True
    events = ActionEvents(
        take_ids=tuple(take_of),
        take=torch.tensor([take_of[row["take_id"]] for row in rows]),
        split=torch.from_numpy(data.split),
        take_split=torch.tensor([SPLITS.index(row["split"]) for row in takes]),
        fold=fold_tensor(inputs.table("folds"), take_of),
        bank=bank,
        tokens=torch.tensor(data.tokens),
        context=_last_tubelets(inputs, data, seen_s),
        motions=motions,
        has_motion=has_motion,
        labels=torch.tensor([label_of[row["label_id"]] for row in rows]),
        classes=torch.from_numpy(np.stack([data.clips.classes(part) for part in PARTS], axis=1)),
    )
    if not has_motion[events.rows(TRAIN), DURING].any():
        raise InputError("no training action has head motion; look at the rejects of trajectories")
    return events, data


def _refuse_late_motion(data: ClipData, end_s: Array, gap_s: float) -> None:
    """Raise LeakError where motions that end at `end_s` (N,) reach into the action, or into the gap before it."""
    late = end_s > data.action_s - gap_s + LATE_S
    if late.any():
        at = int(late.argmax())
        raise LeakError(
            f"head motion before {int(late.sum())} of {len(late)} actions ends later than {gap_s:g} s before their "
            f"start, e.g. that of {data.segment_ids[at]} ends at {end_s[at]:.3f} s, action at "
            f"{data.action_s[at]:.3f} s; set ingest.epic_kitchens.segment=observed and its anchor=start"
        )


def _last_tubelets(inputs: Inputs, data: ClipData, seen_s: float) -> Tensor:
    """Return (N, 1, D) float16: the mean of the tubelets in the last seconds, at least of the last one.

    Tokens after those of the tubelets, which a predictor computed, are left out.
    """
    times = inputs.table("features", ["frame_times_s"])["frame_times_s"].to_pylist()
    means = np.empty((len(times), 1, data.tokens.shape[2]), dtype=np.float16)
    for at, frames in enumerate(times):
        first = np.array(frames[::FRAMES_A_TUBELET])
        n_tubelets = min(len(first), data.tokens.shape[1])
        seen = first[:n_tubelets] >= frames[-1] - seen_s - LATE_S
        seen[-1] = True
        means[at, 0] = data.tokens[at, :n_tubelets][seen].astype(np.float32).mean(axis=0)
    return torch.from_numpy(means)


def columns_of(events: ActionEvents, classes: dict[ActionPart, Codes]) -> Tensor:
    """Return (N, 3) long: the columns of verb, noun and action in the heads of a probe; -1 if there is none.

    `classes` are, by part, those of the columns, (C,), ascending.
    """
    columns = []
    for at, part in enumerate(PARTS):
        known, true = classes[part], events.classes[:, at].cpu().numpy()
        column = np.searchsorted(known, true).clip(max=len(known) - 1)
        columns.append(np.where(known[column] == true, column, -1))
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.int64))
