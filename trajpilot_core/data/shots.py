"""The shots of a run as tensors: the segment before each one, and its outcome.

Shapes: N shots, T tokens per feature, D feature width. Source: docs/decisions/outcome.md.
"""

from dataclasses import dataclass

import pyarrow as pa
import torch
from torch import Tensor

from schemas.rejects import Reject
from trajpilot_core.data.events import Events
from trajpilot_core.data.other_runs import shown
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import InputError, LeakError, StoreError

PAIR = 2
"""Segments of a window: the one before the shot, and the shot."""


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
    seconds: Tensor
    """(N, 2) float32, durations of both segments."""
    labels: Tensor
    """(N, 2) long, labels of both segments."""
    evidence: Tensor
    """(N,) float32: seconds from the shot to the evidence of its outcome."""


def load_shots(inputs: Inputs) -> tuple[Shots, list[Reject]]:
    """Read the shots whose two segments have features and motions; one reject for each other shot.

    Args:
        inputs: takes, segments, details, windows, motions, features, text_bank and folds are read.

    Raises:
        InputError: the windows are not pairs, so that the corpus has no shots.
        LeakError: the segment before a shot ends after the shot, or a shot and its take are in different splits.
        StoreError: tables do not match.
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
    columns = ("start_s", "end_s", "anchor_s")
    rows = inputs.table("segments", ["segment_id", *columns]).to_pylist()
    time_of = {row["segment_id"]: [row[name] for name in columns] for row in rows}
    times = torch.tensor([time_of[segment] for segment in data.segment_ids], dtype=torch.float64).view(
        -1, 3
    )  # (S, 3) seconds
    details = details_of(inputs.table("details", ["segment_id", "event", "outcome", "evidence_s"]), data.segment_ids)
    before, at = windows.segments.T
    refuse_late(windows.window_ids, times[before, 1], times[at, 2])
    outcomes = [details[row] for row in at.tolist()]
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
        ids=tuple(event for event, _, _ in outcomes),
        made=torch.tensor([outcome == "made" for _, outcome, _ in outcomes]),
        shot=data.features[at],
        seconds=(times[windows.segments][..., 1] - times[windows.segments][..., 0]).float(),
        labels=data.labels[windows.segments],
        evidence=(torch.tensor([s for _, _, s in outcomes], dtype=torch.float64) - times[at, 2]).float(),
    )
    return shots, data.rejects


def details_of(details: pa.Table, ids: tuple[str, ...]) -> dict[int, tuple[str, str, float]]:
    """Return row of a segment -> shot, outcome and time of its evidence in seconds, for segments that are shots.

    Raises StoreError: the outcome of a shot is not made or missed.
    """
    row_of, shots = {segment: row for row, segment in enumerate(ids)}, dict[int, tuple[str, str, float]]()
    for row in details.to_pylist():
        if row["outcome"] is None or row["segment_id"] not in row_of:
            continue
        if row["outcome"] not in ("made", "missed"):
            raise StoreError(f"{row['segment_id']} has the outcome {row['outcome']!r}, not made or missed; run ingest")
        shots[row_of[row["segment_id"]]] = (row["event"], row["outcome"], row["evidence_s"])
    return shots


def refuse_late(ids: tuple[str, ...], seen_until_s: Tensor, moment_s: Tensor) -> None:
    """Refuse shots whose preceding segment ends after their annotated time.

    Args:
        seen_until_s: (N,) end of the preceding segment, seconds.
        moment_s: (N,) annotated time of the shot, seconds.

    Raises LeakError: there are such shots; names them.
    """
    late = (seen_until_s > moment_s).nonzero()[:, 0].tolist()
    if late:
        names = [f"{ids[i]} (seen until {seen_until_s[i]:.2f} s, shot at {moment_s[i]:.2f} s)" for i in late]
        raise LeakError(f"the segment before a shot ends after the shot: {shown(names)}; run ingest again")
