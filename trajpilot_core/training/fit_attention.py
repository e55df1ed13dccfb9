"""Fit retrieval attention (docs/decisions/retrieval-attention.md).

Shapes: B batch, H horizon, S segments, K neighbours, A width of E_tau's states.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from schemas.training import AttentionConfig, AttentionVariant
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.models.retrieval_attention import (
    AttentionShape,
    FoundWindows,
    RetrievalAttention,
    SegmentTables,
    ShownInputs,
    inputs_of,
)
from trajpilot_core.retrieval.neighbours import Neighbours, cosine_scales, found_windows
from trajpilot_core.training.dev_scores import mid_accuracy, nearest_labels
from trajpilot_core.training.fit_predictor import (
    PredictorBatch,
    PredictorTask,
    dev_arithmetic,
    kept,
    mixed_batches,
    predictor_shape,
    task_of,
    task_tensors,
    window_batches,
)
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, Training, fit, seeded
from trajpilot_core.training.losses import PredictedWindows, clamp_temperature, pooled_prediction_loss
from trajpilot_core.training.train_sample import train_sample

WINDOWS_AT_ONCE = 128
"""That are answered together where nothing is learned: each brings K x H retrieved tokens."""
NEAR = "near"
"""Begins the names of the neighbours' tensors: `near/<fit or dev>/<H>/<entry or cosine>`."""


@dataclass(frozen=True)
class AttentionTask:
    """The tensors of one seed, on the device."""

    plan: PredictorTask
    """Windows, features, latents and labels, as a predictor of the same chain and seed reads them."""
    states: Tensor
    """(S, A) that the head of this chain's E_tau reads."""
    near: Mapping[str, Mapping[int, Neighbours]]
    """fit or dev -> horizon -> neighbours of its windows, among the fitted windows of that horizon."""

    @property
    def tables(self) -> SegmentTables:
        """What segments bring."""
        return SegmentTables(self.plan.features, self.plan.latents, self.states, self.plan.labels)

    def windows(self, part: str) -> dict[int, Tensor]:
        """Return horizon -> (N, H) long, the windows of fit or dev."""
        return self.plan.fit if part == "fit" else self.plan.dev

    def found(self, part: str, horizon: int, rows: Tensor) -> FoundWindows:
        """Return the windows `rows` (B,), long, of fit or dev with their neighbours."""
        windows = self.windows(part)[horizon]
        near = Neighbours(*(of_all[rows] for of_all in self.near[part][horizon]))
        return found_windows(windows[rows], near, self.plan.fit.get(horizon, windows[:0]))


class AttentionFit(NamedTuple):
    """What one training adjusts, and on what."""

    model: RetrievalAttention
    task: AttentionTask
    cfg: AttentionConfig
    variant: AttentionVariant


def train_attention(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit the variant that the job names and leave it in the job's checkpoint."""
    cfg = AttentionConfig.model_validate_json(job.config)
    task = attention_task_of(job_tensors(job))
    with seeded(job.seed):
        model = new_attention(task, cfg).to(job.device)
    draw = mixed_batches if cfg.mixed_horizons else window_batches
    own = AttentionFit(model, task, cfg, cast(AttentionVariant, job.variant))
    training = Training(
        name=job.name,
        seed=job.seed,
        model=model,
        batches=lambda generator: draw(task.plan.fit, cfg.train.batch, generator),
        loss=lambda batch: attention_loss(own, batch),
        measure=measurer(own, job.seed, dev_arithmetic(task.plan, cfg.train, job.device)),
        selected="dev/M@1",
    )
    fit(training, cfg.train, job.folder, job.device, epoch_done, job.checkpoint_s)


def attention_shape(task: AttentionTask) -> AttentionShape:
    """Return the sizes that the data decide."""
    return AttentionShape(*predictor_shape(task.plan)[:4], task.states.shape[1])


def new_attention(task: AttentionTask, cfg: AttentionConfig) -> RetrievalAttention:
    """Build a model from the global random state, with the scales of the fitting takes: all variants begin alike."""
    model = RetrievalAttention(cfg, attention_shape(task))
    mean, scale = feature_scales(task.plan.features[task.plan.fit_rows])
    model.planner.feature_mean.copy_(mean)
    model.planner.feature_scale.copy_(scale)
    mean, scale = cosine_scales(list(task.near["fit"].values()))
    model.cosine_mean.copy_(mean)
    model.cosine_scale.copy_(scale)
    return model


def attention_loss(own: AttentionFit, batch: PredictorBatch) -> Tensor:
    """Return L_pred of one batch, a scalar (shape ()), with dropout of motion and of retrieval."""
    cfg, plan = own.cfg, own.task.plan
    parts = []
    for horizon, rows in batch:
        found = own.task.found("fit", horizon, rows)
        shown = ShownInputs(*(kept(len(rows), p, rows.device) for p in (cfg.motion_dropout, cfg.retrieval_dropout)))
        predicted_BHE = own.model(*inputs_of(own.task.tables, found, own.variant, shown), plan.bank, horizon)
        ids_BH = plan.labels[found.segments]
        parts.append(PredictedWindows(predicted_BHE, plan.bank[ids_BH], ids_BH, None))
    temperature = clamp_temperature(own.model.planner.log_temperature)
    return pooled_prediction_loss(parts, temperature, cfg.infonce_weight, len(plan.bank), cfg.cosine_weights)


def measurer(
    own: AttentionFit,
    seed: int,
    arithmetic: AbstractContextManager[object] = nullcontext(),  # noqa: B008
) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: M@1 of dev and of as many fitted windows, per H and as their plain mean.

    Args:
        own: what is measured.
        seed: draws the fitted windows that are scored (`train_sample`), the same ones for all variants.
        arithmetic: of the model; its answers are fp32 and are compared with the bank in fp32.
    """
    plan = own.task.plan
    n_fit, n_dev = ({h: len(windows) for h, windows in part.items()} for part in (plan.fit, plan.dev))
    of_dev = {h: torch.arange(n) for h, n in n_dev.items()}
    scored = {"train": ("fit", train_sample(n_fit, n_dev, seed)), "dev": ("dev", of_dev)}

    def predictor_of(part: str, horizon: int) -> Callable[[Tensor], Tensor]:
        """Return what predicts windows of fit or dev, from their numbers (n,) to (n, H, E)."""

        def predict(rows: Tensor) -> Tensor:
            found = []
            for some in torch.split(rows, WINDOWS_AT_ONCE):
                inputs = inputs_of(own.task.tables, own.task.found(part, horizon, some), own.variant)
                with arithmetic:
                    found.append(own.model(*inputs, plan.bank, horizon))
            return torch.cat(found)

        return predict

    def measure() -> dict[str, float]:
        """Score both parts."""
        measured: dict[str, float] = {}
        for split, (part, rows_of) in scored.items():
            answers: dict[int, Tensor] = {}
            truth: dict[int, Tensor] = {}
            for horizon, rows in rows_of.items():
                numbers = {horizon: rows.to(plan.labels.device)}
                answers |= nearest_labels(predictor_of(part, horizon), numbers, lambda plan_xE: plan_xE @ plan.bank.T)
                truth[horizon] = plan.labels[own.task.windows(part)[horizon][numbers[horizon]]]
            if rows_of:
                measured |= {f"{split}/{name}": value for name, value in mid_accuracy(answers, truth).items()}
        return measured

    return measure


def attention_tensors(task: AttentionTask) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of a task by name: those that all seeds share, neighbours among them, and its own."""
    shared, own = task_tensors(task.plan)
    for part, horizons in task.near.items():
        for horizon, near in horizons.items():
            shared |= {f"{NEAR}/{part}/{horizon}/{name}": value for name, value in near._asdict().items()}
    return shared, own | {"states": task.states}


def attention_task_of(tensors: dict[str, Tensor]) -> AttentionTask:
    """Build the task back from its tensors by name."""
    near: dict[str, dict[int, Neighbours]] = {"fit": {}, "dev": {}}
    for name in tensors:
        if name.startswith(f"{NEAR}/") and name.endswith("/entry"):
            _, part, horizon, _ = name.split("/")
            near[part][int(horizon)] = Neighbours(tensors[name], tensors[name.replace("/entry", "/cosine")])
    return AttentionTask(task_of(tensors), tensors["states"], near)
