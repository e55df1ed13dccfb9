"""Rows of the table of pose sources, their scores, and what is claimed of them (paper; docs/decisions/poses.md).

Shapes: N windows, S seeds, T takes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from schemas.pose_sources import POSE_METRICS, PoseScore, PoseSourcesConfig
from schemas.results import Judgement
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.evaluation.bootstrap import cluster_sums, draw_weights, interval
from trajpilot_core.evaluation.trained_rows import TRAINED
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.readout import Readout
from trajpilot_core.training.fit_predictor import variant_latents

TEST, BATCH, DIGITS = 2, 512, 9


class PoseRow(NamedTuple):
    """One row: which of `POSE_MODELS`, which trajectories it is asked with, and which row it is compared with."""

    name: str
    model: str
    asked: str
    against: str | None
    published: str | None = None
    """Row of the paper's table."""


SAME, VIDEO, RAW, RULE, NONE = (
    "files -> files",
    "video -> video",
    "files -> video, lengths as estimated",
    "files -> video, lengths by the scale rule",
    "no trajectory",
)
ROWS = (
    PoseRow(SAME, "files", "files", None, "aria_to_aria"),
    PoseRow(VIDEO, "video", "by_rule", SAME, "pi3_to_pi3"),
    PoseRow(RAW, "files", "raw", SAME, "aria_to_pi3"),
    PoseRow(RULE, "files", "by_rule", SAME),
    PoseRow("files + video -> video", "both", "by_rule", VIDEO, "aria_and_pi3_to_pi3"),
    PoseRow("files + video -> video, as many steps", "both_equal", "by_rule", VIDEO),
    PoseRow(NONE, "none", "by_rule", SAME),
)


@torch.inference_mode()
def window_scores(
    model: CausalPredictor, readout: Readout, data: PlanningData, latents_SE: Tensor, variant: str
) -> Array:
    """Return (N, 2): share of right labels in the middles, and in all positions, of each test window of any horizon.

    Args:
        model: on the device of the latents.
        readout: how its predictions become labels.
        data: on that device.
        latents_SE: trajectories with which it is asked.
        variant: `no_traj` hides them.
    """
    parts = [np.zeros((0, 2))]
    for horizon, windows in data.windows.items():
        tested = windows.split == TEST
        parts_of = [torch.split(one[tested], BATCH) for one in (windows.segments, windows.take)]
        for rows, takes in zip(*parts_of, strict=True):
            ends = (data.features[rows[:, at]] for at in (0, -1))
            plan = readout.plan(model, model(*ends, variant_latents(latents_SE[rows], variant), horizon))
            found = readout.ranked(plan, takes, 1)
            decoded = found.ids[..., 0] if found.decoded is None else found.decoded
            right = (decoded == data.labels[rows]).double()
            parts.append(torch.stack([right[:, 1:-1].mean(1), right.mean(1)], dim=1).cpu().numpy())
    return np.concatenate(parts)


def tested_takes(data: PlanningData) -> Codes:
    """Return (N,) the take of each test window, in the order of `window_scores`."""
    takes = [windows.take[windows.split == TEST].cpu().numpy() for windows in data.windows.values()]
    return np.concatenate([np.zeros(0, np.int64), *takes])


def scores_of(scores: Mapping[tuple[str, int], Array], take_N: Codes, cfg: PoseSourcesConfig) -> list[PoseScore]:
    """Return every row, and its difference to the row that it is compared with, by seed and in the mean over the seeds.

    Args:
        scores: (row, seed) -> (N, 2) per window.
        take_N: (N,) the take of each window.
        cfg: draws, level and seed of the bootstrap.
    """
    seeds = sorted({seed for _, seed in scores})
    found = []
    for row in ROWS:
        for against in dict.fromkeys((None, row.against)):
            by_seed = {
                seed: scores[row.name, seed] - (0.0 if against is None else scores[against, seed]) for seed in seeds
            }
            every: list[tuple[int | None, Array]] = [*by_seed.items(), (None, np.mean(list(by_seed.values()), axis=0))]
            for seed, values_N2 in every:
                found += _scores(row.name, against, seed, values_N2, take_N, cfg)
    return found


def _scores(
    row: str, against: str | None, seed: int | None, values_N2: Array, take_N: Codes, cfg: PoseSourcesConfig
) -> list[PoseScore]:
    """Return both metrics of (N, 2) values per window, with intervals over takes."""
    cluster = np.unique(take_N, return_inverse=True)[1].astype(np.int64)
    n_takes = int(cluster.max()) + 1
    sums, counts = cluster_sums(100 * values_N2, cluster, n_takes)
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    draws = (weights @ sums) / (weights @ counts)[:, None]
    low, high = interval(draws[:, None], np.array([n_takes]), cfg.confidence)
    return [
        PoseScore(
            row=row,
            against=against,
            seed=seed,
            metric=metric,
            value=round(float(sums[:, at].sum() / counts.sum()), DIGITS),
            low=round(float(low[0, at]), DIGITS),
            high=round(float(high[0, at]), DIGITS),
            n_windows=len(values_N2),
            n_takes=n_takes,
        )
        for at, metric in enumerate(POSE_METRICS)
    ]


def judge_poses(
    scores: Sequence[PoseScore], cfg: PoseSourcesConfig, trained: Sequence[Judgement] = ()
) -> list[Judgement]:
    """Judge the paper's claim: poses from video serve as well if trained on, and a mismatch costs accuracy.

    A verdict is withheld where a predictor behind it is not trained, and where the row without trajectories is not
    below that of the pose files, so that motion tells nothing that could be lost.

    Args:
        scores: of every row.
        cfg: the margin.
        trained: one judgement a training, `trained: <row of POSE_MODELS>, seed N`.
    """
    found = {one.row: one for one in scores if one.against == SAME and one.seed is None and one.metric == "mid"}
    judged = []
    if VIDEO in found:
        one = found[VIDEO]
        inside, outside = -cfg.margin <= one.low and one.high <= cfg.margin, one.high < -cfg.margin
        said = f"{words(one)} points of the middles; as well means within {cfg.margin:g}"
        judged.append(
            _judged("claim: poses from video serve as well where they were trained on", inside, outside, said)
        )
    for row in (RAW, RULE):
        if row in found:
            one = found[row]
            check = f"claim: a mismatch costs accuracy ({row})"
            judged.append(_judged(check, one.high < 0, one.low > 0, f"{words(one)} points of the middles"))
    models = {judged[0].check: ("files", "video")} if VIDEO in found else {}
    return [_withheld(one, models.get(one.check, ("files",)), trained, found.get(NONE)) for one in judged]


def _withheld(
    judged: Judgement, models: Sequence[str], trained: Sequence[Judgement], nothing: PoseScore | None
) -> Judgement:
    """Withhold a verdict that rests on predictors that are not trained, or on motion that tells nothing."""
    names = [f"{TRAINED}{model}," for model in models]
    weak = [row.check for row in trained if row.verdict != "holds" and row.check.startswith(tuple(names))]
    said = f"by the intervals: {judged.verdict}; {judged.detail}"
    if weak:
        which = ", ".join(one.removeprefix(TRAINED) for one in weak)
        return judged.replace(verdict="undertrained", detail=f"UNDERTRAINED: {which}; {said}")
    if nothing is not None and not nothing.high < 0:
        return judged.replace(verdict="underpowered", detail=f"without trajectories {words(nothing)}; {said}")
    return judged


def words(one: PoseScore) -> str:
    """Print a difference with its interval."""
    return f"{one.value:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"


def _judged(check: str, holds: bool, fails: bool, detail: str) -> Judgement:
    return Judgement(check=check, verdict="holds" if holds else "fails" if fails else "undecided", detail=detail)
