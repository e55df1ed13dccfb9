"""Fit E_tau for one chain and seed (paper, 3.3; docs/decisions/paper-gaps.md, D 19, 21, 23).

Shapes: S segments, V labels, E text width.
"""

from collections.abc import Callable

from torch import Tensor

from schemas.training import AlignmentConfig
from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.models.predictor import TrajectoryEncoder, channel_scale
from trajpilot_core.training.dev_scores import measured, recalls_at, sampled_fit
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, Training, fit, index_batches, seeded
from trajpilot_core.training.losses import alignment_loss, clamp_temperature


def train_alignment(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit E_tau on the job's segments and leave it in the job's checkpoint."""
    cfg = AlignmentConfig.model_validate_json(job.config)
    data = job_tensors(job)
    with seeded(job.seed):
        model = TrajectoryEncoder(cfg, data["bank"].shape[1])
    model.scale.copy_(channel_scale(data["motions"][data["fit"]]))
    model = model.to(job.device)
    n_fit = len(data["fit"])
    training = Training(
        name=job.name,
        seed=job.seed,
        model=model,
        batches=lambda generator: index_batches(n_fit, cfg.train.batch, generator, job.device),
        loss=lambda rows: segment_loss(model, data, data["fit"][rows]),
        measure=measurer(model, data, job.seed),
        selected="dev/R@5",
    )
    fit(training, cfg.train, job.folder, job.device, epoch_done, job.checkpoint_s)


def segment_loss(model: TrajectoryEncoder, data: dict[str, Tensor], rows: Tensor) -> Tensor:
    """Return the alignment loss of the segments `rows` (B,) long."""
    ids = data["labels"][rows]
    z_BE = model(data["motions"][rows] / model.scale)
    bank_VE, temperature = data["bank"], clamp_temperature(model.log_temperature)
    return alignment_loss(z_BE, bank_VE[ids], ids, temperature, len(bank_VE))


def measurer(model: TrajectoryEncoder, data: dict[str, Tensor], seed: int) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: R@1 and R@5 of the segments' labels in the whole bank, on dev and on as many
    fitted segments, sampled by `seed`."""
    scored = {**sampled_fit({"train": data["fit"]}, {"train": data["dev"]}, seed), "dev": data["dev"]}

    def recalls(rows: Tensor) -> dict[str, float]:
        latents, ids = trajectory_latents(model, data["motions"][rows]), data["labels"][rows]
        return {f"R@{k}": value for k, value in recalls_at(latents, data["bank"], ids, (1, 5)).items()}

    return lambda: measured(scored, recalls)
