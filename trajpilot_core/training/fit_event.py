"""What trainings on single events share: an action or a shot, with the features before it.

Shapes: N events, B batch, C tokens of a clip, D feature width, E text width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from schemas.training import PredictorConfig, TrainConfig
from trajpilot_core.data.cross_fitting import TWIN
from trajpilot_core.models.outcome import EVENT
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape, feature_scales
from trajpilot_core.training.dev_scores import sampled_fit
from trajpilot_core.training.fit_predictor import kept, variant_latents
from trajpilot_core.training.initial_weights import places_for, start_weights
from trajpilot_core.training.jobs import Task, TrainingJob
from trajpilot_core.training.loop import EpochDone, Training, fit, index_batches


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

    def standardise(self, module: nn.Module, raw_NCD: Tensor) -> None:
        """Set the buffers `feature_mean` and `feature_scale` (D,) of a module to those of its raw input, fitted takes
        only."""
        mean, scale = feature_scales(raw_NCD[self.fit])
        for name, value in (("feature_mean", mean), ("feature_scale", scale)):
            module.get_buffer(name).copy_(value)

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


def start_backbone(backbone: CausalPredictor, net: PredictorConfig, job: TrainingJob) -> None:
    """Load the weights of another run, if one is set: those of a twin, which was trained with a masked Goal."""
    start_weights(backbone, net, f"{job.key}{TWIN}")


def fit_event(
    job: TrainingJob,
    task: EventTask,
    train: TrainConfig,
    model: nn.Module,
    loss: Callable[[Tensor], Tensor],
    right: Callable[[Tensor], Tensor],
    quantity: str,
    epoch_done: EpochDone,
    keeps_last: bool = False,
) -> None:
    """Fit a model on batches of fitted events and leave it in the job's checkpoint.

    Args:
        job: names the training, its folder and device.
        task: the events.
        train: epochs, batch, rates.
        model: on the job's device.
        loss: events (B,), long -> scalar.
        right: events (B,), long -> (B,) bool, whether the model is right: its mean on dev, and on as many fitted
            events, is measured after each epoch, and dev chooses the epoch.
        quantity: name of that mean.
        epoch_done: called after each epoch.
        keeps_last: the last epoch is kept, regardless of its score.
    """
    scored = {"dev": task.dev, **sampled_fit({"train": task.fit}, {"train": task.dev}, job.seed)}
    training = Training(
        name=job.name,
        seed=job.seed,
        model=model,
        batches=lambda generator: [
            task.fit[rows] for rows in index_batches(len(task.fit), train.batch, generator, job.device)
        ],
        loss=loss,
        measure=lambda: {
            f"{split}/{quantity}": float(right(rows).double().mean()) if len(rows) else 0.0
            for split, rows in scored.items()
        },
        selected=f"dev/{quantity}",
        keeps_last=keeps_last,
    )
    fit(training, train, job.folder, job.device, epoch_done, job.checkpoint_s)
