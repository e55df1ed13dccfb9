"""Fit one predictor of outcomes: all epochs, the last is kept (D 39; docs/decisions/outcome.md).

Shapes: N shots, B batch, C tokens of a clip, D feature width, E text width.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.outcome import OutcomeConfig
from trajpilot_core.data.cross_fitting import TWIN
from trajpilot_core.models.outcome import EVENT, MADE, OutcomePredictor
from trajpilot_core.models.predictor import PredictorShape, feature_scales
from trajpilot_core.training.fit_predictor import kept, variant_latents
from trajpilot_core.training.initial_weights import places_for, start_weights
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, Training, fit, index_batches, seeded

SELECTED = "dev/accuracy"
"""Shown as it goes; it selects nothing."""


@dataclass(frozen=True)
class OutcomeTask:
    """The tensors of one chain and seed, on the device."""

    context: Tensor
    """(N, C, D) float16, raw."""
    latents: Tensor
    """(N, 2, E) of this chain's E_tau, before the shot and during it."""
    made: Tensor
    """(N,) bool."""
    fit: Tensor
    """(n,) long, shots of the fitting takes."""
    dev: Tensor
    """(m,) long."""

    def shape(self, cfg: OutcomeConfig) -> PredictorShape:
        """Return the sizes that the data decide, and the weights that a training begins with."""
        tokens, width = self.context.shape[1:]
        return PredictorShape(width, tokens, self.latents.shape[2], places_for(EVENT, cfg.net))


def train_outcome(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit the variant that the job names and leave it in the job's checkpoint."""
    cfg = OutcomeConfig.model_validate_json(job.config)
    task = OutcomeTask(**job_tensors(job))
    with seeded(job.seed):
        model = new_outcome_predictor(task, cfg).to(job.device)
    start_weights(model.backbone, cfg.net, f"{job.key}{TWIN}")  # a masked Goal is what twins have learned
    training = Training(
        name=job.name,
        seed=job.seed,
        model=model,
        batches=lambda generator: [
            task.fit[rows] for rows in index_batches(len(task.fit), cfg.train.batch, generator, job.device)
        ],
        loss=lambda rows: outcome_loss(model, task, cfg, job.variant, rows),
        measure=measurer(model, task, job.variant),
        selected=SELECTED,
        keeps_last=True,
    )
    fit(training, cfg.train, job.folder, job.device, epoch_done, job.checkpoint_s)


def new_outcome_predictor(task: OutcomeTask, cfg: OutcomeConfig) -> OutcomePredictor:
    """Build a model from the global random state, with the feature scale of the fitting takes."""
    model = OutcomePredictor(cfg.net.replace(head="open"), task.shape(cfg))
    mean, scale = feature_scales(task.context[task.fit])
    model.backbone.feature_mean.copy_(mean)
    model.backbone.feature_scale.copy_(scale)
    return model


def outcome_loss(model: OutcomePredictor, task: OutcomeTask, cfg: OutcomeConfig, variant: str, rows: Tensor) -> Tensor:
    """Return the cross-entropy, a scalar, of shots `rows`, long of shape (B,), with dropout of trajectories (D 13)."""
    latents_B2E = given(task.latents[rows], variant)
    if variant != "no_traj":
        is_kept_B = kept(len(rows), cfg.net.trajectory_dropout, latents_B2E.device)
        latents_B2E = latents_B2E * is_kept_B[:, None, None]
    return F.cross_entropy(model(task.context[rows], latents_B2E), task.made[rows].long())


def given(latents_B2E: Tensor, variant: str) -> Tensor:
    """Return what a variant is given of the latents before the shot and during it: all, the first, or none.

    Of shape (B, 2, E). As in planning (`fit_predictor.variant_latents`), where the masked Goal stands last.
    """
    goal_B1E = torch.zeros_like(latents_B2E[:, :1])
    return variant_latents(torch.cat([latents_B2E, goal_B1E], dim=1), variant)[:, :2]


def measurer(model: OutcomePredictor, task: OutcomeTask, variant: str) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: the share of right outcomes on dev and on the fitted shots."""

    def accuracy(rows: Tensor) -> float:
        logits_B2 = model(task.context[rows], given(task.latents[rows], variant))
        return float((logits_B2.argmax(1) == MADE).eq(task.made[rows]).double().mean()) if len(rows) else 0.0

    return lambda: {SELECTED: accuracy(task.dev), "train/accuracy": accuracy(task.fit)}


def task_tensors(task: OutcomeTask) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of a task by name, shapes as in OutcomeTask: those that all chains share, and its own."""
    shared = {"context": task.context, "made": task.made}
    return shared, {"latents": task.latents, "fit": task.fit, "dev": task.dev}
