"""Fit the attentive probe of shots on the shots, epochs and rate of its neighbours; the last epoch is kept.

It reads tokens: where features hold one vector a clip there is nothing to attend to, and no probe.
Source: docs/decisions/outcome.md. Shapes: N shots, C tokens of a clip, D feature width, B batch.
"""

from torch import Tensor
from torch.nn import functional as F

from schemas.outcome import OutcomeConfig
from trajpilot_core.models.outcome import MADE, ShotProbe
from trajpilot_core.training.fit_event import fit_event
from trajpilot_core.training.fit_outcome import QUANTITY, SELECTED, OutcomeTask, train_outcome
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, seeded

PROBE = "probe"
"""Name of its training, of the chain `final` alone: nothing rests on it, so no fold has one."""


def has_tokens(context_NCD: Tensor) -> bool:
    """Return whether there is more than one token a clip."""
    return context_NCD.shape[1] > 1


def train_shot_model(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit the predictor or the probe that the job names."""
    (train_shot_probe if job.variant == PROBE else train_outcome)(job, epoch_done)


def train_shot_probe(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fit a probe and leave it in the job's checkpoint."""
    cfg = OutcomeConfig.model_validate_json(job.config)
    task = OutcomeTask(**job_tensors(job))
    with seeded(job.seed):
        model = new_shot_probe(task, cfg).to(job.device)

    def accuracy(rows: Tensor) -> float:
        if not len(rows):
            return 0.0
        return float((model(task.context[rows]).argmax(1) == MADE).eq(task.made[rows]).double().mean())

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(model(task.context[rows]), task.made[rows].long())

    def measure() -> dict[str, float]:
        return {f"{split}/{QUANTITY}": accuracy(rows) for split, rows in scored.items()}

    scored = task.scored(job.seed)

    fit_event(job, task, cfg.train, model, loss, measure, SELECTED, epoch_done, keeps_last=True)


def new_shot_probe(task: OutcomeTask, cfg: OutcomeConfig) -> ShotProbe:
    """Build a probe from the global random state, with the feature scale of the fitting takes."""
    model = ShotProbe(cfg, task.context.shape[2])
    task.standardise(model)
    return model
