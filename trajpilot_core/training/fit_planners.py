"""Fit one planner of another paper for one horizon, at several learning rates; dev chooses one of them.

Shapes: S segments, D feature width, A actions, Z sentences per action, E text width, N windows of the horizon H, B
windows of a batch. Source: docs/decisions/planners.md.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from schemas.planners import PlannerName, PlannersConfig
from schemas.training import TrainConfig
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.data.transitions import fitted_bigrams, masks_of
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.memory import in_parts
from trajpilot_core.models.planners.decoding import PlannerShape, clamped_prior
from trajpilot_core.models.planners.matched import MatchedPlanner, PlannerInputs, scores_of, sequence
from trajpilot_core.models.planners.pdpp import learning_rate_multiplier
from trajpilot_core.store.reading import Inputs
from trajpilot_core.training.dev_scores import row_measure
from trajpilot_core.training.fit_predictor import standardise, windows_of_chain
from trajpilot_core.training.jobs import Fit, Task, TrainingJob
from trajpilot_core.training.loop import Training, index_batches, seeded

AT_ONCE = 512
"""Windows that are planned at once."""
SELECTED = "dev/Mid mAcc"
"""The score that chooses epoch and learning rate."""


@dataclass(frozen=True)
class PlannerTask(Task):
    """The tensors of one run, on the device."""

    SHARED: ClassVar[tuple[str, ...]] = ("features", "labels", "tasks", "descriptions", "transition", "n_tasks")

    features: Tensor
    """(S, D) float16, raw, tokens averaged."""
    labels: Tensor
    """(S,) long."""
    tasks: Tensor
    """(S,) long, scenario of each segment's take."""
    descriptions: Tensor
    """(A, Z, E)."""
    transition: Tensor
    """(A, A) float32, counts in the fitted takes."""
    fit_rows: Tensor
    """(n,) long, segments of the fitted takes."""
    fit: dict[int, Tensor]
    """Horizon -> (N, H) long."""
    dev: dict[int, Tensor]
    """Horizon -> (N, H) long."""
    n_tasks: int

    def shape(self) -> PlannerShape:
        """Return the sizes that follow from the data."""
        return PlannerShape(
            self.features.shape[1], self.descriptions.shape[2], len(self.descriptions), max(1, self.n_tasks)
        )

    def inputs(self, segments_BH: Tensor, windows_B: Tensor) -> PlannerInputs:
        """Return the inputs of a planner for windows."""
        ends_B2D = self.features[segments_BH[:, [0, -1]]]
        return PlannerInputs(ends_B2D, windows_B, self.descriptions, self.transition)


def planner_task(inputs: Inputs, data: PlanningData, chain: Chain) -> PlannerTask:
    """Read the data of a chain; tensors on the CPU. A horizon without windows to fit on or in dev is left out.

    Raises InputError: there are no descriptions.
    """
    fit_rows, fit, dev = windows_of_chain(data, chain)
    kept = [h for h in data.windows if len(fit[h]) and len(dev[h])]
    masks, n_labels = masks_of(inputs, data), len(data.label_ids)
    return PlannerTask(
        features=data.features.float().mean(1).half(),
        labels=data.labels,
        tasks=masks.of_take[data.segment_take],
        descriptions=read_descriptions(inputs.table("descriptions"), data.label_ids),
        transition=fitted_bigrams(inputs.table("segments"), data, chain, data.codes, n_labels).to_dense(),
        fit_rows=fit_rows,
        fit={h: fit[h] for h in kept},
        dev={h: dev[h] for h in kept},
        n_tasks=len(masks.scenarios),
    )


def read_descriptions(table: pa.Table, label_ids: tuple[str, ...]) -> Tensor:
    """Return (A, Z, E) float32: the sentences of each label, in the order of the bank; "before" comes first.

    Raises InputError: the text bank has no sentences; StoreError: a label has too few.
    """
    if not table.num_rows:
        raise InputError(
            "planners read sentences about the states before and after every label, but the text bank has none; set "
            "text_bank.descriptions to template or file"
        )
    ordered = table.sort_by([("label_id", "ascending"), ("place", "ascending")])
    each = len(pc.unique(table["place"]))
    described = ordered["label_id"].to_pylist()[::each]
    row_of = {label_id: row for row, label_id in enumerate(described)}
    missing = next((label_id for label_id in label_ids if label_id not in row_of), None)
    if missing is not None or len(described) * each != ordered.num_rows:
        raise StoreError(f"descriptions lack the label {missing!r}; run text_bank again")
    vectors = np.asarray(ordered["vector"].combine_chunks().flatten(), dtype=np.float32)
    sentences_AZE = torch.from_numpy(vectors.copy()).view(len(described), each, -1)
    return sentences_AZE[torch.tensor([row_of[label_id] for label_id in label_ids])]


def variant_of(method: PlannerName, horizon: int) -> str:
    """Return the name of the training of a method and horizon."""
    return f"{method}_h{horizon}"


def parts_of(variant: str) -> tuple[PlannerName, int]:
    """Return method and horizon of a training."""
    method, _, horizon = variant.rpartition("_h")
    return cast(PlannerName, method), int(horizon)


def planner_training(job: TrainingJob, task: PlannerTask, cfg: PlannersConfig) -> Training:
    """Return the training of the method and horizon that the job names at one learning rate; the models of all rates
    start with equal weights."""
    (method, horizon), rate = parts_of(job.variant), cfg.rates[job.trial]
    originals = {"schema": cfg.schema_net.train, "pdpp": cfg.pdpp.train, "viterbi_plan_net": cfg.viterbi_plan_net.train}
    settings, splits = originals[method], {"train": task.fit[horizon], "dev": task.dev[horizon]}
    windows = splits["train"]
    with seeded(job.seed):
        model = MatchedPlanner(method, cfg, task.shape(), horizon)
    standardise(model, task.features[task.fit_rows][:, None])
    model = model.to(job.device)
    each = cfg.pdpp.epoch_steps if method == "pdpp" else math.ceil(len(windows) / settings.batch)  # PDPP's own epoch
    epochs = settings.epochs if cfg.most_steps is None else max(1, min(settings.epochs, cfg.most_steps // each))
    train = TrainConfig(
        epochs=epochs,
        patience=cfg.patience,
        batch=settings.batch,
        lr=rate * settings.lr,
        min_lr=0.0,
        weight_decay=settings.weight_decay,
        betas=settings.betas,
        warmup=0.0,
        clip=None,
        precision="fp32",
    )

    def batches(generator: torch.Generator) -> list[Tensor]:
        """Return `each` batches of window numbers, long: passes over all windows, each in a new order."""
        passes: list[Tensor] = []
        while len(windows) and len(passes) < each:
            passes += index_batches(len(windows), settings.batch, generator, windows.device)
        return passes[:each]

    def loss(rows: Tensor) -> Tensor:
        segments_BH = windows[rows]
        inputs = task.inputs(segments_BH, torch.arange(len(segments_BH), device=segments_BH.device))
        return model.loss(inputs, task.labels[segments_BH], task.tasks[segments_BH[:, 0]])

    def scheduled(step: int, total: int, cfg: TrainConfig) -> float:
        """Return the original's rate: a step down every few epochs, or PDPP's warm-up and halvings."""
        if settings.step_epochs is None:
            return cfg.lr * learning_rate_multiplier(step, total)
        return float(cfg.lr * settings.gamma ** (step // each // settings.step_epochs))

    return Training(
        name=f"{job.name}, rate x{rate:.2g}",
        seed=job.seed,
        model=model,
        cfg=train,
        batches=batches,
        loss=loss,
        measure=row_measure(splits, job.seed, partial(accuracy, model, task, horizon, job.seed)),
        selected=SELECTED,
        rate=scheduled,
        stepped=model.after_step,
    )


def _n_rates(cfg: PlannersConfig) -> int:
    return len(cfg.rates)


FIT = Fit(PlannerTask, PlannersConfig, planner_training, _n_rates)


def accuracy(
    model: MatchedPlanner, task: PlannerTask, horizon: int, seed: int, segments_NH: Tensor
) -> dict[str, float]:
    """Return the accuracy of the decoded middle steps of windows (N, H)."""
    prior = clamped_prior(task.transition, model.cfg.transition_floor)

    def part(rows: slice) -> Tensor:
        numbers = torch.arange(len(segments_NH), device=segments_NH.device)[rows]
        plan = model.plan(task.inputs(segments_NH[rows], numbers), seed)
        return sequence(model.method, scores_of(model.method, plan), prior)

    decoded = torch.cat(in_parts(len(segments_NH), AT_ONCE, part))
    return {"Mid mAcc": float((decoded[:, 1:-1] == task.labels[segments_NH][:, 1:-1]).double().mean())}
