"""Fit E_tau for one chain and seed (paper, 3.3; docs/decisions/paper-gaps.md, D 19, 21, 23).

Shapes: S segments, V labels, E text width.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from schemas.training import AlignmentConfig
from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.models.predictor import TrajectoryEncoder, channel_scale
from trajpilot_core.training.dev_scores import recalls_at, row_training
from trajpilot_core.training.jobs import Fit, Task, TrainingJob
from trajpilot_core.training.loop import Training, seeded
from trajpilot_core.training.losses import alignment_loss, clamp_temperature


@dataclass(frozen=True)
class AlignmentTask(Task):
    """The tensors of one chain, on the device."""

    SHARED: ClassVar[tuple[str, ...]] = ("motions", "labels", "bank")

    motions: Tensor
    """(S, 16, 6) float32, raw."""
    labels: Tensor
    """(S,) long."""
    bank: Tensor
    """(V, E) unit norm."""
    fit: Tensor
    """(n,) long, segments of the fitted takes."""
    dev: Tensor
    """(m,) long."""


def alignment_training(job: TrainingJob, task: AlignmentTask, cfg: AlignmentConfig) -> Training:
    """Return the training of E_tau, with R@1 and R@5 of the labels in the whole bank after every epoch."""
    with seeded(job.seed):
        model = TrajectoryEncoder(cfg, task.bank.shape[1])
    model.scale.copy_(channel_scale(task.motions[task.fit]))
    model = model.to(job.device)

    def recalls(rows: Tensor) -> dict[str, float]:
        latents = trajectory_latents(model, task.motions[rows])
        return {f"R@{k}": value for k, value in recalls_at(latents, task.bank, task.labels[rows], (1, 5)).items()}

    def loss(rows: Tensor) -> Tensor:
        ids = task.labels[rows]
        z_BE = model(task.motions[rows] / model.scale)
        return alignment_loss(z_BE, task.bank[ids], ids, clamp_temperature(model.log_temperature))

    splits = {"train": task.fit, "dev": task.dev}
    return row_training(job, model, cfg.train, splits, loss, recalls, selected="dev/R@5")


FIT = Fit(AlignmentTask, AlignmentConfig, alignment_training)
