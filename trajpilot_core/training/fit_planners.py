"""Fit one planner of another paper for one horizon, at several learning rates; dev chooses one of them.

Shapes: N windows of the horizon H, B windows of a batch.
Source: docs/decisions/planners.md.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from schemas.planners import PlannerName, PlannersConfig, PlannerTraining
from schemas.training import TrainConfig
from trajpilot_core.memory import in_parts
from trajpilot_core.models.planners.decoding import clamped_prior
from trajpilot_core.models.planners.matched import MatchedPlanner, decode
from trajpilot_core.models.planners.pdpp import learning_rate_multiplier
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.training.dev_scores import sampled_fit
from trajpilot_core.training.jobs import TrainingJob, job_tensors, run_trials
from trajpilot_core.training.loop import EpochDone, Training, index_batches, seeded
from trajpilot_core.training.planner_task import PlannerTask

AT_ONCE = 512
"""Windows that are planned at once."""
SELECTED = "dev/Mid mAcc"
"""The score that chooses epoch and learning rate."""


def variant_of(method: PlannerName, horizon: int) -> str:
    """Return the name of the training of a method and horizon."""
    return f"{method}_h{horizon}"


def parts_of(variant: str) -> tuple[PlannerName, int]:
    """Return method and horizon of a training."""
    method, _, horizon = variant.rpartition("_h")
    return cast(PlannerName, method), int(horizon)


def train_planner(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit every learning rate of the method and horizon that the job names; each writes its own checkpoint."""
    cfg = PlannersConfig.model_validate_json(job.config)
    task = PlannerTask.unpacked(job_tensors(job))
    run_trials(job, len(cfg.rates), lambda number: trial_of(job, task, cfg, cfg.rates[number]), epoch_done)


def trial_of(job: TrainingJob, task: PlannerTask, cfg: PlannersConfig, rate: float) -> tuple[Training, TrainConfig]:
    """Return the training at one learning rate; the models of all rates start with equal weights."""
    method, horizon = parts_of(job.variant)
    settings, windows = settings_of(cfg, method), task.fit[horizon]
    with seeded(job.seed):
        model = new_planner(task, cfg, method, horizon).to(job.device)
    each = steps_per_epoch(cfg, method, len(windows))
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
    training = Training(
        name=f"{job.name}, rate x{rate:.2g}",
        seed=job.seed,
        model=model,
        batches=lambda generator: batches_of(len(windows), settings.batch, each, generator, windows.device),
        loss=lambda rows: batch_loss(model, task, windows[rows]),
        measure=measurer(model, task, horizon, job.seed),
        selected=SELECTED,
        rate=rate_of(settings, each),
        stepped=model.after_step,
    )
    return training, train


def settings_of(cfg: PlannersConfig, method: PlannerName) -> PlannerTraining:
    """Return how the original of a method is trained."""
    settings = {
        "schema": cfg.schema_net.train,
        "pdpp": cfg.pdpp.train,
        "viterbi_plan_net": cfg.viterbi_plan_net.train,
    }
    return settings[method]


def new_planner(task: PlannerTask, cfg: PlannersConfig, method: PlannerName, horizon: int) -> MatchedPlanner:
    """Build a planner from the global random state, with the feature scale of the fitted takes."""
    model = MatchedPlanner(method, cfg, task.shape(), horizon)
    mean, scale = feature_scales(task.features[task.fit_rows][:, None])
    model.feature_mean.copy_(mean)
    model.feature_scale.copy_(scale)
    return model


def steps_per_epoch(cfg: PlannersConfig, method: PlannerName, windows: int) -> int:
    """Return the optimiser steps of an epoch: a pass over the windows, or what PDPP calls an epoch."""
    return cfg.pdpp.epoch_steps if method == "pdpp" else math.ceil(windows / settings_of(cfg, method).batch)


def batches_of(
    windows: int, batch: int, n_batches: int, generator: torch.Generator, device: torch.device
) -> list[Tensor]:
    """Return `n_batches` batches of window numbers (b,), long: passes over all windows, each in a new order."""
    batches: list[Tensor] = []
    while windows and len(batches) < n_batches:
        batches += index_batches(windows, batch, generator, device)
    return batches[:n_batches]


def rate_of(settings: PlannerTraining, each: int) -> Callable[[int, int, TrainConfig], float]:
    """Return the original's schedule: a step down every few epochs, or PDPP's warm-up and halvings.

    Args:
        settings: training of the method.
        each: optimiser steps of an epoch.
    """

    def rate(step: int, total: int, cfg: TrainConfig) -> float:
        if settings.step_epochs is None:
            return cfg.lr * learning_rate_multiplier(step, total)
        return float(cfg.lr * settings.gamma ** (step // each // settings.step_epochs))

    return rate


def batch_loss(model: MatchedPlanner, task: PlannerTask, segments_BH: Tensor) -> Tensor:
    """Return the loss of fitted windows, a scalar."""
    inputs = task.inputs(segments_BH, torch.arange(len(segments_BH), device=segments_BH.device))
    return model.loss(inputs, task.labels[segments_BH], task.tasks[segments_BH[:, 0]])


def measurer(model: MatchedPlanner, task: PlannerTask, horizon: int, seed: int) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: accuracy of the decoded middle steps on dev, and on as many fitted windows."""
    prior = clamped_prior(task.transition, model.cfg.transition_floor)
    fitted, dev = task.fit[horizon], task.dev[horizon]
    scored = {**sampled_fit({"train": fitted}, {"train": dev}, seed), "dev": dev}

    def accuracy(segments_NH: Tensor) -> float:
        def part(rows: slice) -> Tensor:
            numbers = torch.arange(len(segments_NH), device=segments_NH.device)[rows]
            plan = model.plan(task.inputs(segments_NH[rows], numbers), seed)
            return decode(model.method, plan, prior).decoded

        what = f"one window of {horizon} segments does not fit into the memory of {segments_NH.device}"
        decoded = torch.cat(in_parts(len(segments_NH), AT_ONCE, part, what, "choose another device"))
        return float((decoded[:, 1:-1] == task.labels[segments_NH][:, 1:-1]).double().mean())

    return lambda: {f"{split}/Mid mAcc": accuracy(windows) for split, windows in scored.items()}
