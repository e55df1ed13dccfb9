"""The paper's table on pose sources: predictors trained on one source of head motion and asked with another.

As in the paper (Robustness to RGB-only camera-pose estimation): one frozen E_tau, fitted on pose files; only the
predictor's trajectories differ; every row receives the true middle trajectories, from the source it is evaluated on.
All rows use the same windows: those whose segments have motions from both sources. docs/decisions/poses.md.

Axes: S segments, N windows, H positions, T takes, E text space.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.observation import DOF, MOTIONS
from schemas.training import PredictorConfig
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.data.chains import alignment_config, chains_of, load_e_tau, trajectory_latents
from trajpilot_core.data.planning import PlanningData, load_planning_data
from trajpilot_core.engine.stage import Inputs, Runtime
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.bootstrap import cluster_sums, draw_weights, interval
from trajpilot_core.poses.sources.video import scaled, step_rms
from trajpilot_core.report.tables.table import Value
from trajpilot_core.stages.predictor import make_task
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.fit_predictor import (
    PredictorTask,
    new_predictor,
    task_tensors,
    train_predictor,
    variant_latents,
)
from trajpilot_core.training.jobs import OWN, SHARED, TrainingJob, job_result, put_tensors, run_jobs

TEST, BATCH = 2, 512
DRAWS, CONFIDENCE = 10_000, 0.95


class Setting(NamedTuple):
    """One row: which predictor, which trajectories it is asked with, and which row it is compared with."""

    name: str
    model: str
    asked: str
    against: str | None


SETTINGS = (
    Setting("files -> files", "files", "files", None),
    Setting("video -> video", "video", "video", "files -> files"),
    Setting("files -> video, lengths as estimated", "files", "raw", "files -> files"),
    Setting("files -> video, lengths by the scale rule", "files", "video", "files -> files"),
    Setting("files + video -> video", "both", "video", "video -> video"),
    Setting("no trajectory", "none", "video", "files -> files"),
)


@dataclass(frozen=True)
class RobustnessRow:
    """One row of the table: M@1 over the middles and over all positions, weighted by windows over all horizons.

    Values have intervals over takes, points of 100; infinite ones where takes are too few.
    """

    name: str
    mid: Value
    full: Value
    mid_difference: Value | None
    """Against the row that it is compared with, paired by take."""
    against: str | None


@dataclass(frozen=True)
class Robustness:
    """The table and what it rests on."""

    rows: tuple[RobustnessRow, ...]
    n_takes: int
    n_windows: int
    windows_lost: int
    """Test windows that one of the sources has no head motions for."""
    step_m: float
    """Median root mean square step of the training clips from pose files, to which the scale rule brings the others."""


@dataclass(frozen=True)
class WithMotions:
    """Inputs whose motions are others; satisfies `Inputs` as far as `load_planning_data` asks."""

    inputs: Inputs
    motions: pa.Table

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table; `motions` is the other one."""
        if name != "motions":
            return self.inputs.table(name, columns)
        return self.motions if columns is None else self.motions.select(list(columns))

    def vectors(self, name: str, column: str) -> NDArray[np.generic]:
        """Read a vector column (N, W) as `Inputs` does."""
        return self.inputs.vectors(name, column)

    def models(self, name: str) -> Models:
        """Open the models of an entry as `Inputs` does."""
        return self.inputs.models(name)

    def document(self, name: str) -> bytes:
        """Read a document as `Inputs` does."""
        return self.inputs.document(name)

    def parts(self, name: str) -> Mapping[str, str]:
        """Return the digests of the parts of an entry as `Inputs` does, of `motions` those of the ones replaced."""
        return self.inputs.parts(name)


def robustness(inputs: Inputs, video: pa.Table, cfg: PredictorConfig, runtime: Runtime) -> Robustness:
    """Train the predictors of the table and score them on the test windows.

    Args:
        inputs: those of the stage `predictor`, with motions from pose files and E_tau fitted on them.
        video: motions of the same segments from video, made with `scale` raw.
        cfg: settings of the predictors.
        runtime: device, workers, scratch.

    Raises:
        InputError: no segment has motions from both sources.
    """
    own, other = common(inputs.table("motions"), video)
    data = load_planning_data(WithMotions(inputs, own), "robustness")
    step_m = median_step_m(data.motions[torch.isin(data.segment_take, (data.take_split == 0).nonzero()[:, 0])])
    raw = load_planning_data(WithMotions(inputs, other), "robustness").motions
    motions = {"files": data.motions, "raw": raw, "video": rms_scaled(raw, step_m)}
    chain, e_tau = chains_of(data)[0], inputs.models("e_tau")
    seed = alignment_config(e_tau).seeds[0]
    encoder = load_e_tau(e_tau, chain, seed, runtime.device)
    latents = {name: trajectory_latents(encoder, c.to(runtime.device)).cpu() for name, c in motions.items()}
    files = make_task(data, e_tau, chain, seed, runtime.device)
    tasks = {"files": files, "video": replace(files, latents=latents["video"]), "none": files}
    tasks["both"] = union(files, latents["video"])
    models = _trained(tasks, cfg, seed, runtime)
    scores = {
        s.name: window_scores(models[s.model], data, latents[s.asked], "no_traj" if s.model == "none" else "traj")
        for s in SETTINGS
    }
    lost = sum(data.take_split[data.take_ids.index(row.take)] == TEST for row in data.rejects)
    takes = np.concatenate([w.take[w.split == TEST].numpy() for w in data.windows.values()])
    return Robustness(score_rows(scores, takes), len(np.unique(takes)), len(takes), int(lost), step_m)


def common(own: pa.Table, other: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both tables whose segments stand in both.

    Raises:
        InputError: there are none.
    """
    both = pc.unique(own["segment_id"].filter(pc.is_in(own["segment_id"], value_set=other["segment_id"])))
    if not len(both):
        raise InputError("no segment has motions from both sources; run the stage trajectories with each of them")
    kept = [table.filter(pc.is_in(table["segment_id"], value_set=both)) for table in (own, other)]
    return kept[0], kept[1]


def median_step_m(motions: Tensor) -> float:
    """Return the median of the clips' root mean square steps of (S, 16, 6) motions: the unit of their lengths."""
    return float(np.median([step_rms(clip[:, :3]) for clip in motions.double().numpy()]))


def rms_scaled(motions: Tensor, step_m: float) -> Tensor:
    """Return (S, 16, 6) motions whose clips all have the root mean square step `step_m` (D 20)."""
    clips = motions.double().numpy().reshape(-1, MOTIONS, DOF).copy()
    for clip in clips:
        clip[:, :3] = scaled(clip[:, :3], "rms", step_m)
    return torch.from_numpy(clips).float()


def union(task: PredictorTask, latents: Tensor) -> PredictorTask:
    """Return the task that is fitted on every window twice, with its (S, E) latents and with others, which dev has."""
    n = len(task.latents)
    return replace(
        task,
        features=torch.cat([task.features, task.features]),
        latents=torch.cat([task.latents, latents]),
        labels=torch.cat([task.labels, task.labels]),
        fit={h: torch.cat([rows, rows + n]) for h, rows in task.fit.items()},
        dev={h: rows + n for h, rows in task.dev.items()},
    )


def _trained(
    tasks: Mapping[str, PredictorTask], cfg: PredictorConfig, seed: int, runtime: Runtime
) -> dict[str, torch.nn.Module]:
    """Fit one predictor per task, side by side."""
    jobs: dict[str, TrainingJob] = {}
    for name, task in tasks.items():
        folder, variant = runtime.scratch / "pose-robustness" / name, "no_traj" if name == "none" else "traj"
        for part, tensors in zip((SHARED, OWN), task_tensors(task), strict=True):
            put_tensors(folder, part, tensors)
        jobs[name] = TrainingJob(
            name=f"{name}/{variant}",
            seed=seed,
            variant=variant,
            folder=folder / "fit",
            own=folder,
            shared=folder,
            config=cfg.model_dump_json(),
            device=runtime.device,
        )
    run_jobs(list(jobs.values()), train_predictor, runtime)
    models: dict[str, torch.nn.Module] = {}
    for name, job in jobs.items():
        model = new_predictor(tasks[name], cfg)
        model.load_state_dict(job_result(job)[0], strict=True)
        models[name] = model.to(runtime.device).eval().requires_grad_(False)
    return models


@torch.inference_mode()
def window_scores(model: torch.nn.Module, data: PlanningData, latents: Tensor, variant: str) -> Array:
    """Return (N, 2): share of right labels in the middles, and in all positions, of each test window of any horizon."""
    device, parts = next(model.parameters()).device, [np.zeros((0, 2))]
    bank = data.bank.to(device)
    for horizon, windows in data.windows.items():
        for rows in torch.split(windows.segments[windows.split == TEST], BATCH):
            given = variant_latents(latents[rows], variant).to(device)
            ends = (data.features[rows[:, at]].to(device) for at in (0, -1))
            right = ((model(*ends, given, horizon) @ bank.T).argmax(-1).cpu() == data.labels[rows]).double()
            parts.append(torch.stack([right[:, 1:-1].mean(1), right.mean(1)], dim=1).numpy())
    return np.concatenate(parts)


def score_rows(scores: Mapping[str, Array], take_N: Codes) -> tuple[RobustnessRow, ...]:
    """Return the rows with intervals over takes; differences are paired by window.

    Args:
        scores: row -> (N, 2) per window.
        take_N: (N,) the take of each window.
    """
    cluster = np.unique(take_N, return_inverse=True)[1].astype(np.int64)
    n_takes = int(cluster.max()) + 1
    weights = draw_weights(n_takes, DRAWS, seed=0)

    def figures(values_N2: Array, is_signed: bool = False) -> list[Value]:
        """Return the mean over the windows of either score, (N, 2), in points, with its interval."""
        sums, counts = cluster_sums(100 * values_N2, cluster, n_takes)
        draws = (weights @ sums) / (weights @ counts)[:, None]
        low, high = interval(draws[:, None], np.array([n_takes]), CONFIDENCE)
        found = zip(sums.sum(axis=0) / counts.sum(), low[0], high[0], strict=True)
        return [Value(float(v), float(least), float(most), is_signed=is_signed) for v, least, most in found]

    rows = []
    for name, _, _, against in SETTINGS:
        difference = None if against is None else figures(scores[name] - scores[against], is_signed=True)[0]
        mid, full = figures(scores[name])
        rows.append(RobustnessRow(name, mid, full, difference, against))
    return tuple(rows)
