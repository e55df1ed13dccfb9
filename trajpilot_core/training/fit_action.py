"""Fit one predictor of actions in event form (docs/decisions/epic-token.md).

Shapes: N clips, B batch, C tokens of a clip, D feature width, V labels, E text width.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from schemas.action_token import ActionTokenConfig
from trajpilot_core.models.action_token import ActionPredictor
from trajpilot_core.training.fit_event import EventTask, fit_event, start_backbone
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, seeded
from trajpilot_core.training.losses import alignment_loss, clamp_temperature


@dataclass(frozen=True)
class ActionTask(EventTask):
    """Actions, with the texts to predict."""

    SHARED: ClassVar[tuple[str, ...]] = ("context", "labels", "bank")

    labels: Tensor
    """(N,) long, index into bank."""
    bank: Tensor
    """(V, E) float32, unit norm."""


def train_action(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit the variant that the job names and leave it in the job's checkpoint."""
    cfg = ActionTokenConfig.model_validate_json(job.config)
    task = ActionTask.unpacked(job_tensors(job))
    with seeded(job.seed):
        model = new_action_predictor(task, cfg).to(job.device)
    start_backbone(model.backbone, cfg.net, job)

    def right(rows: Tensor) -> Tensor:
        """Return (B,) bool: the action's text is the nearest one."""
        predicted_BE: Tensor = model(task.context[rows], task.given(rows, job.variant))
        return (predicted_BE @ task.bank.T).argmax(1) == task.labels[rows]

    def loss(rows: Tensor) -> Tensor:
        return action_loss(model, task, cfg, job.variant, rows)

    fit_event(job, task, cfg.train, model, loss, right, "action", epoch_done)


def new_action_predictor(task: ActionTask, cfg: ActionTokenConfig) -> ActionPredictor:
    """Build a model from the global random state, with the feature scale of the fitted takes."""
    model = ActionPredictor(cfg.net.replace(head="open"), task.shape(cfg.net))
    task.standardise(model.backbone, task.context)
    return model


def action_loss(model: ActionPredictor, task: ActionTask, cfg: ActionTokenConfig, variant: str, rows: Tensor) -> Tensor:
    """Return L_pred of the actions `rows` (B,), long, a scalar, with dropout of trajectories (D 13).

    The segment before an action has no label and the Goal is masked, so only the Mid is a target.
    """
    latents_B2E = task.dropped(rows, variant, cfg.net)
    predicted_BE, ids_B = model(task.context[rows], latents_B2E), task.labels[rows]
    target_BE = task.bank[ids_B]
    temperature = clamp_temperature(model.backbone.log_temperature)
    pooled = alignment_loss(predicted_BE, target_BE, ids_B, temperature, len(task.bank))
    cosine = (1 - (predicted_BE * target_BE).sum(-1)).mean()
    loss: Tensor = cfg.net.cosine_weights[1] * cosine + cfg.net.infonce_weight * pooled
    return loss
