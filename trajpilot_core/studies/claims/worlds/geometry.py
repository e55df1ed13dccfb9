"""What distances between features say: kinds of pairs of segments, and whether true plans come closer to the goal with
every step (paper, appendices on diagnostics and on goal progress).

Pairs, distance, readings and reasons: docs/decisions/claims-checks.md. Axes: N test segments, R of them, D feature
width; of goal progress: N windows of one horizon H, M = H - 2 middle steps.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from schemas.checks import GeometryConfig
from schemas.results import GoalProgress
from trajpilot_core.arrays import Codes, Mask
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.models.predictor import feature_scales

KINDS = ("adjacent", "same_take_far", "other_take_same_action", "random")
"""Kinds of pairs in the order in which the paper puts their distances."""


@dataclass(frozen=True)
class ScoredSegments:
    """The segments of the test takes that have a feature, N of them, in order of their ids."""

    ids: tuple[str, ...]
    features: Tensor
    """(N, D) float32, pooled and standardised."""
    take_ids: tuple[str, ...]
    """The test takes, sorted."""
    take: Codes
    """(N,) index into take_ids."""
    capture: Codes
    """(N,)."""
    run: Codes
    """(N,) run within the take; a lost segment starts a new one."""
    position: Codes
    """(N,) position in the take."""
    label: Codes
    """(N,)."""


def goal_progress(inputs: Inputs) -> list[GoalProgress]:
    """Count the test windows whose middle steps approach the Goal monotonically, per horizon and take.

    Windows with a segment that has no feature are left out, as they are by every row.

    Args:
        inputs: takes, segments, windows and features.
    """
    segments = scored_segments(inputs)
    at = {name: row for row, name in enumerate(segments.ids)}
    windows = inputs.table("windows", ["horizon", "segment_ids"]).to_pylist()
    tested = [row for row in windows if all(name in at for name in row["segment_ids"])]
    found: list[GoalProgress] = []
    for horizon in sorted({row["horizon"] for row in tested}):
        rows_NH = np.array([[at[name] for name in row["segment_ids"]] for row in tested if row["horizon"] == horizon])
        take_N = segments.take[rows_NH[:, 0]]
        n_T, monotone_T = np.bincount(take_N), np.bincount(take_N, approaches(segments.features[rows_NH]))
        for take in np.flatnonzero(n_T):
            counts = {"n_windows": int(n_T[take]), "monotone": int(monotone_T[take])}
            found.append(GoalProgress(take_id=segments.take_ids[take], horizon=horizon, **counts))
    return found


def approaches(features_NHD: Tensor) -> Mask:
    """Return (N,): true where the l1 distance to the last step falls at every middle step.

    Start is not in the chain, so that a single middle step always counts, as in the paper's table.

    Args:
        features_NHD: (N, H, D) of the steps, standardised.
    """
    distance_NM = (features_NHD[:, 1:-1] - features_NHD[:, -1:]).abs().mean(-1)
    falls: Mask = (distance_NM.diff(dim=1) < 0).all(1).numpy()
    return falls


def scored_segments(inputs: Inputs) -> ScoredSegments:
    """Collect the test segments; their features are standardised per component on the training takes."""
    takes = {row["take_id"]: row for row in inputs.table("takes", ["take_id", "split", "capture"]).to_pylist()}
    columns = ["segment_id", "take_id", "run", "position", "label_id"]
    of_segment = {row["segment_id"]: row for row in inputs.table("segments", columns).to_pylist()}
    ids, features = pooled_features(inputs)
    split = np.array([takes[of_segment[name]["take_id"]]["split"] for name in ids])
    mean, scale = feature_scales(features[split == "train"][:, None])
    rows = sorted(np.flatnonzero(split == "test").tolist(), key=lambda row: ids[row])
    mine = [of_segment[ids[row]] for row in rows]
    tested = tuple(sorted(name for name, row in takes.items() if row["split"] == "test"))
    return ScoredSegments(
        ids=tuple(ids[row] for row in rows),
        features=(features[rows] - mean) / scale,
        take_ids=tested,
        take=np.searchsorted(tested, [row["take_id"] for row in mine]),
        capture=codes([takes[row["take_id"]]["capture"] for row in mine]),
        run=np.array([row["run"] for row in mine], np.int64),
        position=np.array([row["position"] for row in mine], np.int64),
        label=codes([row["label_id"] for row in mine]),
    )


def pooled_features(inputs: Inputs) -> tuple[list[str], Tensor]:
    """Return the segments that have a feature, and their features (S, D), float32, the mean over their tokens."""
    table = inputs.table("features")
    tokens = int((table.schema.metadata or {}).get(b"tokens", b"1"))
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    values = torch.from_numpy(flat.astype(np.float32)).view(table.num_rows, tokens, -1)
    return table["segment_id"].to_pylist(), values.mean(1)


def codes(names: list[str]) -> Codes:
    """Return (N,) numbers, equal for equal names."""
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def distances(first_RD: Tensor, second_ND: Tensor) -> Tensor:
    """Return (R, N) l1 distances, their mean over the D components (the paper's measure)."""
    return torch.cdist(first_RD, second_ND, p=1) / first_RD.shape[1]


def pairs_of(segments: ScoredSegments, rows: Codes, kind: str, config: GeometryConfig) -> Mask:
    """Return (R, N): true where a segment of `rows` (R,) and any other form a pair of the kind.

    adjacent: neighbours of one run. same_take_far: one take, another label, at least `far_steps` positions later.
    other_take_same_action: another capture (another room), the same label. random: another capture, another label.
    """
    later = segments.position - segments.position[rows, None]
    same_take = segments.take == segments.take[rows, None]
    same_label = segments.label == segments.label[rows, None]
    other_room = segments.capture != segments.capture[rows, None]
    if kind == "adjacent":
        return np.asarray(same_take & (segments.run == segments.run[rows, None]) & (later == 1))
    if kind == "same_take_far":
        return np.asarray(same_take & ~same_label & (later >= config.far_steps))
    return np.asarray(other_room & (same_label if kind == "other_take_same_action" else ~same_label))
