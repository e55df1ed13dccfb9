"""Fit one predictor of outcomes: all epochs, the last is kept (D 39; docs/decisions/outcome.md).

Shapes: N shots, B batch, C tokens of a clip, D feature width, E text width.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from schemas.outcome import OutcomeConfig
from trajpilot_core.models.outcome import MADE, OutcomePredictor
from trajpilot_core.training.fit_event import EventTask, fit_event, start_backbone
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, seeded

QUANTITY = "accuracy"
"""Share of right outcomes."""
SELECTED = f"dev/{QUANTITY}"
"""Shown as it goes; it selects nothing."""


@dataclass(frozen=True)
class OutcomeTask(EventTask):
    """Shots, with their outcomes."""

    made: Tensor
    """(N,) bool."""


def train_outcome(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit the variant that the job names and leave it in the job's checkpoint."""
    cfg = OutcomeConfig.model_validate_json(job.config)
    task = OutcomeTask(**job_tensors(job))
    with seeded(job.seed):
        model = new_outcome_predictor(task, cfg).to(job.device)
    start_backbone(model.backbone, cfg.net, job)

    def loss(rows: Tensor) -> Tensor:
        return outcome_loss(model, task, cfg, job.variant, rows)

    measure = measurer(model, task, job)
    fit_event(job, task, cfg.train, model, loss, measure, SELECTED, epoch_done, keeps_last=True)


def new_outcome_predictor(task: OutcomeTask, cfg: OutcomeConfig) -> OutcomePredictor:
    """Build a model from the global random state, with the feature scale of the fitting takes."""
    model = OutcomePredictor(cfg.net.replace(head="open"), task.shape(cfg.net))
    task.standardise(model.backbone)
    return model


def outcome_loss(model: OutcomePredictor, task: OutcomeTask, cfg: OutcomeConfig, variant: str, rows: Tensor) -> Tensor:
    """Return the cross-entropy, a scalar, of shots `rows`, long of shape (B,), with dropout of trajectories (D 13)."""
    logits_B2 = model(task.context[rows], task.dropped(rows, variant, cfg.net))
    return F.cross_entropy(logits_B2, task.made[rows].long())


def measurer(model: OutcomePredictor, task: OutcomeTask, job: TrainingJob) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: the share of right outcomes on dev and on as many fitted shots.

    Args:
        model: what is measured.
        task: its shots.
        job: whose variant decides what the model is given, and whose seed samples the fitted shots.
    """

    def accuracy(rows: Tensor) -> float:
        logits_B2 = model(task.context[rows], task.given(rows, job.variant))
        return float((logits_B2.argmax(1) == MADE).eq(task.made[rows]).double().mean()) if len(rows) else 0.0

    scored = task.scored(job.seed)
    return lambda: {f"{split}/{QUANTITY}": accuracy(rows) for split, rows in scored.items()}


def task_tensors(task: OutcomeTask) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of a task by name, shapes as in OutcomeTask: those that all chains share, and its own."""
    shared = {"context": task.context, "made": task.made}
    return shared, {"latents": task.latents, "fit": task.fit, "dev": task.dev}
