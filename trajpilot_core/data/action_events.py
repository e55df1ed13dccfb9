"""Actions as events: what is seen before each, head motion before and during it, and which action it was.

Shapes: N clips, T tokens, D width of a token, V labels, E text width. Source: docs/decisions/epic-token.md.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from schemas.observation import DOF, MOTIONS
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.data.action_clips import SPLITS, ClipData, load_clips
from trajpilot_core.data.planning import fold_tensor, motions_tensor, read_bank
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.metrics.epic_kitchens import PARTS, ActionPart
from trajpilot_core.poses.motion_table import check_one_source

TRAIN, DEV, TEST = range(3)
"""Codes of the splits (data/action_clips.py, SPLITS)."""
BEFORE, ACTION = range(2)
"""Parts of the head motion."""
FRAMES_A_TUBELET = 2
LATE_S = 1e-6
"""Of rounding."""


@dataclass(frozen=True)
class ActionEvents:
    """N clips in the order of the features. Rows may read `tokens`, `context` and, as far as they declare, `motions`;
    nothing below."""

    take_ids: tuple[str, ...]
    """Of all takes, ascending."""
    take: Tensor
    """(N,) long, index into take_ids."""
    split: Tensor
    """(N,) long."""
    take_split: Tensor
    """(takes,) long."""
    fold: Tensor
    """(takes,) long (data/planning.py, NO_FOLD)."""
    bank: Tensor
    """(V, E) float32, unit norm: texts of the labels."""
    tokens: Tensor
    """(N, T, D) float16: what the probe reads."""
    context: Tensor
    """(N, 1, D) float16: mean of the tubelets of the last seconds, which the predictor sees."""
    motions: Tensor
    """(N, 2, 16, 6) float32, raw: head motion before the action and during it; zeros where there is none."""
    has_motion: Tensor
    """(N, 2) bool."""
    labels: Tensor
    """(N,) long, index into bank: the action. Of training clips that were retrieved it may be read."""
    classes: Tensor
    """(N, 3) long: verb, noun and pair of the action."""
    seconds: Tensor
    """(N,) float32: how long it lasts."""

    def __len__(self) -> int:
        return len(self.take)

    def rows(self, split: int) -> Tensor:
        """Return (n,) long: the clips of a split, ascending."""
        return (self.split == split).nonzero()[:, 0]

    def to(self, device: str) -> Self:
        """Return the same with every tensor on `device`."""
        moved: dict[str, Any] = {name: value.to(device) for name, value in vars(self).items() if torch.is_tensor(value)}
        return replace(self, **moved)


def load_events(inputs: Inputs, seen_s: float, gap_s: float = 0.0) -> tuple[ActionEvents, ClipData]:
    """Join clips, both sets of motions, labels and folds; a clip without motions is kept.

    Args:
        inputs: takes, segments, details, features, motions, video_motions, text_bank and folds are read.
        seen_s: seconds before the end of a clip that the predictor sees.
        gap_s: before the action, in which no head motion before it may lie.

    Raises:
        InputError: no training action has head motion.
        LeakError: the interval of the motions before an action reaches into it, or into the gap.
    """
    data = load_clips(inputs)
    takes = sorted(inputs.table("takes").to_pylist(), key=lambda row: str(row["take_id"]))
    take_of = {row["take_id"]: at for at, row in enumerate(takes)}
    segments = {row["segment_id"]: row for row in inputs.table("segments").to_pylist()}
    own = [segments[one] for one in data.segment_ids]
    refuse_late(data, np.array([row["end_s"] for row in own], dtype=np.float64), gap_s)
    label_ids, bank = read_bank(inputs)
    label_of = {one: at for at, one in enumerate(label_ids)}
    tables = [inputs.table(name) for name in ("video_motions", "motions")]  # before the actions, and of them
    check_one_source(*tables)
    motions = torch.zeros(len(own), len(tables), MOTIONS, DOF)
    has_motion = torch.zeros(len(own), len(tables), dtype=torch.bool)
    for part, table in enumerate(tables):
        known = set(table["segment_id"].to_pylist())
        rows = [at for at, one in enumerate(data.segment_ids) if one in known]
        if rows:
            motions[rows, part] = motions_tensor(table, [data.segment_ids[at] for at in rows])
            has_motion[rows, part] = True
    events = ActionEvents(
        take_ids=tuple(take_of),
        take=torch.tensor([take_of[row["take_id"]] for row in own]),
        split=torch.from_numpy(data.split),
        take_split=torch.tensor([SPLITS.index(row["split"]) for row in takes]),
        fold=fold_tensor(inputs.table("folds"), take_of),
        bank=bank,
        tokens=torch.tensor(data.tokens),
        context=last_tubelets(inputs, data, seen_s),
        motions=motions,
        has_motion=has_motion,
        labels=torch.tensor([label_of[row["label_id"]] for row in own]),
        classes=torch.from_numpy(np.stack([data.clips.classes(part) for part in PARTS], axis=1)),
        seconds=torch.from_numpy(durations(inputs, data)).float(),
    )
    if not has_motion[events.rows(TRAIN), ACTION].any():
        raise InputError("no training action has head motion; look at the rejects of trajectories")
    return events, data


def refuse_late(data: ClipData, end_s: Array, gap_s: float) -> None:
    """Refuse head motion before an action that reaches into it, or into the gap before it.

    Args:
        end_s: (N,) ends of their intervals, seconds.

    Raises LeakError: names the first clip, and how many there are.
    """
    late = end_s > data.action_s - gap_s + LATE_S
    if late.any():
        at = int(late.argmax())
        raise LeakError(
            f"head motion before {int(late.sum())} of {len(late)} actions would be read until later than {gap_s:g} s "
            f"before they start, such as {data.segment_ids[at]}: until {end_s[at]:.3f} s, action at "
            f"{data.action_s[at]:.3f} s; set ingest.epic_kitchens.segment=observed and its anchor=start"
        )


def last_tubelets(inputs: Inputs, data: ClipData, seen_s: float) -> Tensor:
    """Return (N, 1, D) float16: the mean of the tubelets whose frames lie in the last seconds, at least of the last.

    Tokens after those of the tubelets, which a predictor made, are left out.
    """
    times = inputs.table("features", ["frame_times_s"])["frame_times_s"].to_pylist()
    found = np.empty((len(times), 1, data.tokens.shape[2]), dtype=np.float16)
    for at, frames in enumerate(times):
        first = np.array(frames[::FRAMES_A_TUBELET])
        n_tubelets = min(len(first), data.tokens.shape[1])
        seen = first[:n_tubelets] >= frames[-1] - seen_s - LATE_S
        seen[-1] = True
        found[at, 0] = data.tokens[at, :n_tubelets][seen].astype(np.float32).mean(axis=0)
    return torch.from_numpy(found)


def durations(inputs: Inputs, data: ClipData) -> Array:
    """Return (N,) seconds that the actions last."""
    ends = inputs.table("details", ["segment_id", "annotated_end_s"]).to_pylist()
    end_of = {row["segment_id"]: row["annotated_end_s"] for row in ends}
    found: Array = np.array([end_of[one] for one in data.segment_ids], dtype=np.float64) - data.action_s
    return found


def columns_of(events: ActionEvents, classes: dict[ActionPart, Codes]) -> Tensor:
    """Return (N, 3) long: the columns of verb, noun and action in the heads of a probe; -1 where it has none.

    Args:
        classes: part -> (C,) the class of each column, ascending.
    """
    found = []
    for at, part in enumerate(PARTS):
        known, own = classes[part], events.classes[:, at].cpu().numpy()
        place = np.searchsorted(known, own).clip(max=len(known) - 1)
        found.append(np.where(known[place] == own, place, -1))
    return torch.from_numpy(np.stack(found, axis=1).astype(np.int64))
