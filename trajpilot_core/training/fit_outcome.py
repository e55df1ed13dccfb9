"""Fit one predictor of outcomes, or the attentive probe of shots: all epochs are run, the last one is kept (D 39).

The probe has the same shots, epochs and rate as the predictors. It reads tokens: if features have one vector per clip,
there is nothing to attend to, and no probe. Source: docs/decisions/outcome.md.

Shapes: N shots, B batch, C tokens of a clip, D feature width, E text width.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from schemas.outcome import OutcomeConfig
from trajpilot_core.models.outcome import MADE, OutcomePredictor, ShotProbe
from trajpilot_core.training.fit_event import EventTask, fit_event, start_backbone
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, seeded

PROBE = "probe"
"""Name of its training. Only the chain `final` has one: no other model depends on it."""


@dataclass(frozen=True)
class OutcomeTask(EventTask):
    """Shots, with their outcomes."""

    SHARED: ClassVar[tuple[str, ...]] = ("context", "tokens", "made")

    tokens: Tensor
    """(N, T, D) float16, raw, for the probe."""
    made: Tensor
    """(N,) bool."""


def train_shot_model(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit the variant or the probe that the job names and leave it in the job's checkpoint."""
    cfg = OutcomeConfig.model_validate_json(job.config)
    task = OutcomeTask.unpacked(job_tensors(job))
    with seeded(job.seed):
        model = (new_shot_probe if job.variant == PROBE else new_outcome_predictor)(task, cfg).to(job.device)
    if isinstance(model, OutcomePredictor):
        start_backbone(model.backbone, cfg.net, job)

    def logits(rows: Tensor, *, is_step: bool) -> Tensor:
        """Return (B, 2) logits; a training step has dropout of trajectories (D 13)."""
        if job.variant == PROBE:
            logits_B2: Tensor = model(task.tokens[rows])
            return logits_B2
        latents_B2E = task.dropped(rows, job.variant, cfg.net) if is_step else task.given(rows, job.variant)
        logits_B2 = model(task.context[rows], latents_B2E)
        return logits_B2

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(logits(rows, is_step=True), task.made[rows].long())

    def right(rows: Tensor) -> Tensor:
        return (logits(rows, is_step=False).argmax(1) == MADE) == task.made[rows]

    fit_event(job, task, cfg.train, model, loss, right, "accuracy", epoch_done, keeps_last=True)


def new_outcome_predictor(task: OutcomeTask, cfg: OutcomeConfig) -> OutcomePredictor:
    """Build a model from the global random state, with the feature scale of the fitted takes."""
    model = OutcomePredictor(cfg.net.replace(head="open"), task.shape(cfg.net))
    task.standardise(model.backbone, task.context)
    return model


def new_shot_probe(task: OutcomeTask, cfg: OutcomeConfig) -> ShotProbe:
    """Build a probe from the global random state, with the feature scale of the fitted takes."""
    model = ShotProbe(cfg, task.tokens.shape[2])
    task.standardise(model, task.tokens)
    return model
