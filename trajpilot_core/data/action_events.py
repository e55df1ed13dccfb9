"""Actions as events: features before each one, head motion before and during it, and its class.

Shapes: N clips, T tokens, D width of a token, V labels, E text width. Source: docs/decisions/epic-token.md.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from schemas.annotation import DOF, MOTIONS
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.data.action_clips import SPLITS, ClipData, load_clips
from trajpilot_core.data.events import DURING, TRAIN, Events
from trajpilot_core.data.planning import fold_tensor, motions_tensor, read_bank
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.metrics.epic_kitchens import PARTS, ActionPart
from trajpilot_core.poses.sources.base import check_one_source

FRAMES_A_TUBELET = 2
LATE_S = 1e-6
"""Tolerance for rounding."""


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
    seconds: Tensor
    """(N,) float32, duration of the action."""


def load_events(inputs: Inputs, seen_s: float, gap_s: float = 0.0) -> tuple[ActionEvents, ClipData]:
    """Join clips, both sets of motions, labels and folds; a clip without motions is kept.

    Args:
        inputs: takes, segments, details, features, motions, video_motions, text_bank and folds are read.
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
    refuse_late(data, np.array([row["end_s"] for row in rows], dtype=np.float64), gap_s)
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
    details = inputs.table("details", ["segment_id", "annotated_end_s"]).to_pylist()
    end_of = {row["segment_id"]: row["annotated_end_s"] for row in details}
    ended_s = np.array([end_of[segment] for segment in data.segment_ids], dtype=np.float64)
    events = ActionEvents(
        take_ids=tuple(take_of),
        take=torch.tensor([take_of[row["take_id"]] for row in rows]),
        split=torch.from_numpy(data.split),
        take_split=torch.tensor([SPLITS.index(row["split"]) for row in takes]),
        fold=fold_tensor(inputs.table("folds"), take_of),
        bank=bank,
        tokens=torch.tensor(data.tokens),
        context=last_tubelets(inputs, data, seen_s),
        motions=motions,
        has_motion=has_motion,
        labels=torch.tensor([label_of[row["label_id"]] for row in rows]),
        classes=torch.from_numpy(np.stack([data.clips.classes(part) for part in PARTS], axis=1)),
        seconds=torch.from_numpy(ended_s - data.action_s).float(),
    )
    if not has_motion[events.rows(TRAIN), DURING].any():
        raise InputError("no training action has head motion; look at the rejects of trajectories")
    return events, data


def refuse_late(data: ClipData, end_s: Array, gap_s: float) -> None:
    """Refuse head motion before an action that reaches into it, or into the gap before it.

    Args:
        end_s: (N,) ends of the motions, seconds.

    Raises LeakError: motions end too late; names the first clip, and their number.
    """
    late = end_s > data.action_s - gap_s + LATE_S
    if late.any():
        at = int(late.argmax())
        raise LeakError(
            f"head motion before {int(late.sum())} of {len(late)} actions ends later than {gap_s:g} s before their "
            f"start, e.g. that of {data.segment_ids[at]} ends at {end_s[at]:.3f} s, action at "
            f"{data.action_s[at]:.3f} s; set ingest.epic_kitchens.segment=observed and its anchor=start"
        )


def last_tubelets(inputs: Inputs, data: ClipData, seen_s: float) -> Tensor:
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

    Args:
        classes: part -> (C,) the class of each column, ascending.
    """
    columns = []
    for at, part in enumerate(PARTS):
        known, true = classes[part], events.classes[:, at].cpu().numpy()
        column = np.searchsorted(known, true).clip(max=len(known) - 1)
        columns.append(np.where(known[column] == true, column, -1))
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.int64))
