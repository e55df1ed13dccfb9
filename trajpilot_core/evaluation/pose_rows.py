"""Rows of the table of pose sources and their scores (paper; docs/decisions/poses.md).

Shapes: N windows, S seeds, T takes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from schemas.poses import POSE_METRICS, CompletedPoseSources, PoseScore
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.evaluation.bootstrap import ends_of_means, rounded
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.readout import Readout
from trajpilot_core.training.fit_predictor import variant_latents

TEST, BATCH = 2, 512


class PoseRow(NamedTuple):
    """One row: its model of `POSE_MODELS`, its trajectories, and the row that it is compared with."""

    name: str
    model: str
    asked: str
    against: str | None
    published: str | None = None
    """Row of the paper's table, which has Aria and Pi3 only; rows of other sources are not in it."""


NONE = "no trajectory"
"""The row without trajectories."""


def trained_on(sources: Sequence[str]) -> dict[str, str]:
    """Return predictor of `POSE_MODELS` -> its training data, named after the sources of the run.

    The first source is that of `trajectories`, the second that of `video_motions`; equal names are numbered.
    """
    first, second = sources if len(set(sources)) == 2 else [f"{name} {n}" for n, name in enumerate(sources, 1)]
    both = f"{first} + {second}"
    return {"files": first, "video": second, "both": both, "both_equal": f"{both}, as many steps", "none": NONE}


def pose_rows(sources: Sequence[str]) -> tuple[PoseRow, ...]:
    """Return the rows, named after the sources of the run (`trained_on`): files, then video, then files for video."""
    first, second, mixture, *_ = trained_on(sources).values()
    same, video, both = f"{first} -> {first}", f"{second} -> {second}", f"{mixture} -> {second}"
    return (
        PoseRow(same, "files", "files", None, f"{first}_to_{first}"),
        PoseRow(video, "video", "by_rule", same, f"{second}_to_{second}"),
        PoseRow(f"{first} -> {second}, lengths as estimated", "files", "raw", same, f"{first}_to_{second}"),
        PoseRow(f"{first} -> {second}, lengths by the scale rule", "files", "by_rule", same),
        PoseRow(both, "both", "by_rule", video, f"{first}_and_{second}_to_{second}"),
        PoseRow(f"{both}, as many steps", "both_equal", "by_rule", video),
        PoseRow(NONE, "none", "by_rule", same),
    )


@torch.inference_mode()
def window_scores(
    model: CausalPredictor, readout: Readout, data: PlanningData, latents_SE: Tensor, variant: str
) -> Array:
    """Return (N, 2): share of right labels in the middles, and in all positions, of each test window of any horizon."""
    parts = [np.zeros((0, 2))]
    for horizon, windows in data.windows.items():
        tested = windows.split == TEST
        parts_of = [torch.split(column[tested], BATCH) for column in (windows.segments, windows.take)]
        for rows, takes in zip(*parts_of, strict=True):
            ends = (data.features[rows[:, at]] for at in (0, -1))
            plan = readout.plan(model, model(*ends, variant_latents(latents_SE[rows], variant), horizon))
            ranked = readout.ranked(plan, takes, 1)
            decoded = ranked.ids[..., 0] if ranked.decoded is None else ranked.decoded
            right = (decoded == data.labels[rows]).double()
            parts.append(torch.stack([right[:, 1:-1].mean(1), right.mean(1)], dim=1).cpu().numpy())
    return np.concatenate(parts)


def tested_takes(data: PlanningData) -> Codes:
    """Return (N,) the take of each test window, in the order of `window_scores`."""
    takes = [windows.take[windows.split == TEST].cpu().numpy() for windows in data.windows.values()]
    return np.concatenate([np.zeros(0, np.int64), *takes])


def scores_of(
    scores: Mapping[tuple[str, int], Array], sources: Sequence[str], take_N: Codes, cfg: CompletedPoseSources
) -> list[PoseScore]:
    """Return every row, and its difference to the row of its comparison, for each seed and the mean over the seeds.

    `scores`: (row, seed) -> (N, 2) per window; `take_N`: (N,) the take of each.
    """
    seeds = sorted({seed for _, seed in scores})
    figures = []
    for row in pose_rows(sources):
        for against in dict.fromkeys((None, row.against)):
            by_seed = {
                seed: scores[row.name, seed] - (0.0 if against is None else scores[against, seed]) for seed in seeds
            }
            every: list[tuple[int | None, Array]] = [*by_seed.items(), (None, np.mean(list(by_seed.values()), axis=0))]
            for seed, values_N2 in every:
                points_N2 = 100 * values_N2
                low, high, n_takes = ends_of_means(points_N2, take_N, cfg)
                for at, metric in enumerate(POSE_METRICS):
                    measured = rounded(value=points_N2[:, at].mean(), low=low[at], high=high[at])
                    where = {"sources": sources, "row": row.name, "against": against, "seed": seed, "metric": metric}
                    counts = {"n_windows": len(values_N2), "n_takes": n_takes}
                    figures.append(PoseScore.model_validate({**where, **measured, **counts}))
    return figures
