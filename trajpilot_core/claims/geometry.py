"""Scene geometry: whether features lie together by recording rather than by action (paper, appendix on diagnostics).

Pairs, distance and reasons: docs/decisions/claims-checks.md. Axes: N test segments, R of them, D feature width.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.checks import GeometryConfig
from schemas.results import GeometryScore
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.stages.stage import Inputs
from trajpilot_core.training.data import SPLITS, PlanningData, load_planning_data, rows_of_takes

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kind = Literal["adjacent", "same_take_far", "other_take_same_action", "random"]
KINDS: tuple[Kind, ...] = ("adjacent", "same_take_far", "other_take_same_action", "random")
READER = "scene geometry"


@dataclass(frozen=True)
class ScoredSegments:
    """The segments of the test takes that have a feature and controls, N of them."""

    features: Tensor
    """(N, D) float32, pooled and standardised."""
    take: Codes
    """(N,) index into PlanningData.take_ids."""
    capture: Codes
    """(N,)."""
    run: Codes
    """(N,) run within the take; a lost segment starts a new one."""
    position: Codes
    """(N,) place in the take."""
    label: Codes
    """(N,)."""


def scene_geometry(inputs: Inputs, config: GeometryConfig) -> list[GeometryScore]:
    """Measure distances between features of four kinds of pairs of test segments, summed per take.

    A pair within a take counts once; a pair across takes counts in the take of each of its two segments.

    Args:
        inputs: takes, segments, windows, controls, features, text_bank and folds.
        config: how far is far, and how much is held in memory.

    Returns:
        One row per test take and kind, takes in order of their ids; n = 0 where a take has no such pair.
    """
    data = load_planning_data(inputs, READER)
    segments = scored_segments(inputs, data)
    sums = np.zeros((len(KINDS), len(data.take_ids)))
    counts = np.zeros(sums.shape, np.int64)
    n = len(segments.take)
    for rows in np.split(np.arange(n), range(config.rows, n, config.rows)):
        far = distances(segments.features[rows], segments.features).numpy()
        for kind, name in enumerate(KINDS):
            pairs = pairs_of(segments, rows, name, config)
            np.add.at(sums[kind], segments.take[rows], np.where(pairs, far, 0.0).sum(axis=1))
            np.add.at(counts[kind], segments.take[rows], pairs.sum(axis=1))
    test = np.flatnonzero(data.take_split.numpy() == SPLITS.index("test"))
    return [
        GeometryScore(take_id=data.take_ids[t], kind=name, distance=float(sums[kind, t]), n=int(counts[kind, t]))
        for t in test
        for kind, name in enumerate(KINDS)
    ]


def scored_segments(inputs: Inputs, data: PlanningData) -> ScoredSegments:
    """Collect the test segments; their features are standardised per component on the training takes."""
    test, train = ((data.take_split == SPLITS.index(name)).nonzero()[:, 0] for name in ("test", "train"))
    rows = rows_of_takes(data.segment_take, test)
    mean, scale = feature_scales(data.features[rows_of_takes(data.segment_take, train)])
    columns = inputs.table("segments", ["segment_id", "run", "position"]).to_pylist()
    place = {row["segment_id"]: (row["run"], row["position"]) for row in columns}
    run, position = np.array([place[data.segment_ids[i]] for i in rows.tolist()], np.int64).reshape(-1, 2).T
    take = data.segment_take[rows].numpy()
    capture = np.unique(data.captures, return_inverse=True)[1]
    features = (data.features[rows].float().mean(1) - mean) / scale
    return ScoredSegments(features, take, capture[take], run, position, data.labels[rows].numpy())


def distances(first_RD: Tensor, second_ND: Tensor) -> Tensor:
    """Return (R, N) l1 distances, their mean over the D components (the paper's measure)."""
    return torch.cdist(first_RD, second_ND, p=1) / first_RD.shape[1]


def pairs_of(segments: ScoredSegments, rows: Codes, kind: Kind, config: GeometryConfig) -> Mask:
    """Return (R, N): true where a segment of `rows` (R,) and any other form a pair of the kind.

    adjacent: neighbours of one run. same_take_far: one take, another label, at least `far_steps` places later.
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
