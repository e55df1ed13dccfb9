"""Fit models of single events: a predictor of actions, a predictor of outcomes, or the attentive probe of shots.

All epochs of shots are run and the last is kept (D 39). The probe has the same shots, epochs and rate as the
predictors; if features have one vector per clip, there is nothing to attend to, and no probe.
Source: docs/decisions/outcome.md, docs/decisions/epic-token.md.

Shapes: N events, B batch, C tokens of a clip, D feature width, V labels, E text width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.events import CompletedActionToken, CompletedOutcome
from schemas.training import PredictorConfig
from trajpilot_core.data.cross_fitting import twin_of
from trajpilot_core.models.events import EVENT, MADE, ActionPredictor, OutcomePredictor, ShotProbe
from trajpilot_core.models.predictor import PredictorShape
from trajpilot_core.training.dev_scores import row_training
from trajpilot_core.training.fit_predictor import kept, places_for, standardise, start_weights, variant_latents
from trajpilot_core.training.jobs import Fit, Task, TrainingJob
from trajpilot_core.training.loop import Training, seeded
from trajpilot_core.training.losses import alignment_loss, clamp_temperature

P = TypeVar("P", bound=ActionPredictor | OutcomePredictor)
PROBE = "probe"
"""Name of its training. Only the chain `final` has one: no other model depends on it."""


@dataclass(frozen=True)
class EventTask(Task):
    """The tensors of one chain and seed, on the device."""

    SHARED: ClassVar[tuple[str, ...]] = ("context",)

    context: Tensor
    """(N, C, D) float16, raw."""
    latents: Tensor
    """(N, 2, E) from this chain's E_tau, before and during the event; zeros if there is no motion."""
    fit: Tensor
    """(n,) long, events of the fitted takes."""
    dev: Tensor
    """(m,) long."""

    def shape(self, net: PredictorConfig) -> PredictorShape:
        """Return the sizes that follow from the data and from the initial weights."""
        tokens, width = self.context.shape[1:]
        return PredictorShape(width, tokens, self.latents.shape[2], places_for(EVENT, net))

    def splits(self) -> dict[str, Tensor]:
        """Return `dev` and `train` -> (n,) long, the numbers of its events."""
        return {"dev": self.dev, "train": self.fit}

    def given(self, rows: Tensor, variant: str) -> Tensor:
        """Return the latents (B, 2, E) of `rows` (B,) that a variant receives: both, the first one, or none.

        As in planning (`fit_predictor.variant_latents`), where the masked Goal comes last.
        """
        latents_B2E = self.latents[rows]
        goal_B1E = torch.zeros_like(latents_B2E[:, :1])
        return variant_latents(torch.cat([latents_B2E, goal_B1E], dim=1), variant)[:, :2]

    def dropped(self, rows: Tensor, variant: str, net: PredictorConfig) -> Tensor:
        """Return `given` for a training step, with dropout of trajectories (D 13)."""
        latents_B2E = self.given(rows, variant)
        if variant == "no_traj":
            return latents_B2E
        return latents_B2E * kept(len(rows), net.trajectory_dropout, latents_B2E.device)[:, None, None]


def new_event_predictor(
    kind: Callable[[PredictorConfig, PredictorShape], P], task: EventTask, net: PredictorConfig
) -> P:
    """Build a model of this kind from the global random state, with the feature scale of the fitted takes."""
    model = kind(net.replace(head="open"), task.shape(net))
    standardise(model.backbone, task.context[task.fit])
    return model


def share_of(quantity: str, right: Callable[[Tensor], Tensor]) -> Callable[[Tensor], dict[str, float]]:
    """Return the score of events (B,), long: the share that is `right`, (B,) bool, by its name; 0 of none."""
    return lambda rows: {quantity: float(right(rows).double().mean()) if len(rows) else 0.0}


@dataclass(frozen=True)
class ActionTask(EventTask):
    """Actions, with the texts to predict."""

    SHARED: ClassVar[tuple[str, ...]] = ("context", "labels", "bank")

    labels: Tensor
    """(N,) long, index into bank."""
    bank: Tensor
    """(V, E) float32, unit norm."""


def action_training(job: TrainingJob, task: ActionTask, cfg: CompletedActionToken) -> Training:
    """Return the training of the variant that the job names."""
    with seeded(job.seed):
        model = new_event_predictor(ActionPredictor, task, cfg.predictor).to(job.device)
    start_weights(model.backbone, cfg.predictor, twin_of(job.key))  # a twin was trained with a masked Goal

    def right(rows: Tensor) -> Tensor:
        predicted_BE: Tensor = model(task.context[rows], task.given(rows, job.variant))
        return (predicted_BE @ task.bank.T).argmax(1) == task.labels[rows]

    def loss(rows: Tensor) -> Tensor:
        """Return L_pred, a scalar: the segment before has no label and the Goal is masked, so only the Mid counts."""
        latents_B2E = task.dropped(rows, job.variant, cfg.predictor)
        predicted_BE, ids_B = model(task.context[rows], latents_B2E), task.labels[rows]
        target_BE = task.bank[ids_B]
        temperature = clamp_temperature(model.backbone.log_temperature)
        pooled = alignment_loss(predicted_BE, target_BE, ids_B, temperature)
        cosine = (1 - (predicted_BE * target_BE).sum(-1)).mean()
        total: Tensor = cosine + cfg.predictor.infonce_weight * pooled
        return total

    scores = share_of("action", right)
    return row_training(job, model, cfg.train, task.splits(), loss, scores, selected="dev/action")


ACTION_FIT = Fit(ActionTask, CompletedActionToken, action_training)


@dataclass(frozen=True)
class OutcomeTask(EventTask):
    """Shots, with their outcomes."""

    SHARED: ClassVar[tuple[str, ...]] = ("context", "tokens", "made")

    tokens: Tensor
    """(N, T, D) float16, raw, for the probe."""
    made: Tensor
    """(N,) bool."""


def shot_training(job: TrainingJob, task: OutcomeTask, cfg: CompletedOutcome) -> Training:
    """Return the training of the variant or the probe that the job names."""
    with seeded(job.seed):
        is_probe = job.variant == PROBE
        model = new_shot_probe(task, cfg) if is_probe else new_event_predictor(OutcomePredictor, task, cfg.predictor)
    model = model.to(job.device)
    if isinstance(model, OutcomePredictor):
        start_weights(model.backbone, cfg.predictor, twin_of(job.key))

    def logits(rows: Tensor, *, is_step: bool) -> Tensor:
        """Return (B, 2) logits; a training step has dropout of trajectories (D 13)."""
        if is_probe:
            inputs: tuple[Tensor, ...] = (task.tokens[rows],)
        else:
            given = task.dropped(rows, job.variant, cfg.predictor) if is_step else task.given(rows, job.variant)
            inputs = task.context[rows], given
        logits_B2: Tensor = model(*inputs)
        return logits_B2

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(logits(rows, is_step=True), task.made[rows].long())

    def right(rows: Tensor) -> Tensor:
        return (logits(rows, is_step=False).argmax(1) == MADE) == task.made[rows]

    splits, scores = task.splits(), share_of("accuracy", right)
    return row_training(job, model, cfg.train, splits, loss, scores, selected="dev/accuracy", keeps_last=True)


SHOT_FIT = Fit(OutcomeTask, CompletedOutcome, shot_training)


def new_shot_probe(task: OutcomeTask, cfg: CompletedOutcome) -> ShotProbe:
    """Build a probe from the global random state, with the feature scale of the fitted takes."""
    model = ShotProbe(cfg, task.tokens.shape[2])
    standardise(model, task.tokens[task.fit])
    return model
