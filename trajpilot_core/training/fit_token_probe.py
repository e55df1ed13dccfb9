"""Fine-tune the chosen attentive probe with one more token, in the same way for every row.

All rows start with the weights of the visual probe and have the same clips, grid, epochs and batches; dev chooses one
trial of each row's grid. Source: docs/decisions/epic-token.md.

Shapes: N clips (fitted ones and dev), T tokens, D width, E text width.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from schemas.action_token import TOKEN_ROWS, ActionTokenConfig, TokenRow
from trajpilot_core.models.action_token import TokenProbe
from trajpilot_core.training.fit_probe import (
    ChosenProbe,
    ProbeTask,
    choose_probe,
    fit_grid,
)
from trajpilot_core.training.jobs import TrainingJob, job_tensors
from trajpilot_core.training.loop import EpochDone, seeded

PROBE = "probe"
"""Takes the place of the chain in the names of these trainings."""


@dataclass(frozen=True)
class TokenTask(ProbeTask):
    """The clips that one row is fine-tuned and measured on, with one more token."""

    SHARED: ClassVar[tuple[str, ...]] = ("tokens", "columns", "is_dev", "classes", "begun")
    token: Tensor
    """(N, E) float16: the additional token of each clip; zeros if the row has none."""
    begun: dict[str, Tensor]
    """Weights of the visual probe."""


def token_row(variant: str) -> TokenRow:
    """Return the row of a training's variant."""
    return next(row for row in TOKEN_ROWS if row == variant)


def new_token_probe(row: TokenRow, task: TokenTask, cfg: ActionTokenConfig) -> TokenProbe:
    """Build the model of a row from the global random state, and load the weights of the visual probe."""
    model = TokenProbe(row, task.shape(cfg.tuned), task.token.shape[1])
    model.probe.load_state_dict(task.begun)
    return model


def train_token_probe(job: TrainingJob, epoch_done: EpochDone) -> None:
    """Fine-tune every trial of the row that the job names; each writes its own checkpoint."""
    cfg = ActionTokenConfig.model_validate_json(job.config)
    task, row = TokenTask.unpacked(job_tensors(job)), token_row(job.variant)
    fit_grid(job, task, cfg.tuned, lambda: new_token_probe(row, task, cfg), epoch_done, task.token)


def tuned_probe(job: TrainingJob, task: TokenTask, cfg: ActionTokenConfig) -> tuple[TokenProbe, ChosenProbe]:
    """Return the model that dev chose from a row's grid, in evaluation mode on the job's device, and its trial.

    Raises:
        TrainingError: a trial is not complete.
    """
    chosen = choose_probe(job, cfg.tuned)
    with seeded(job.seed):
        model = new_token_probe(token_row(job.variant), task, cfg)
    model.load_state_dict(chosen.weights)
    return model.to(job.device).eval().requires_grad_(False), chosen


def name_of(row: TokenRow) -> str:
    """Return the name of a row's training."""
    return f"{PROBE}/{row}"
