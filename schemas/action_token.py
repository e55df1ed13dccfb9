"""TrajPilot's token in the attentive probe of EPIC-KITCHENS-100: settings of its stage, and the rows of its table.

Source: paper, appendix on EPIC-KITCHENS-100; docs/decisions/epic-token.md.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.probe import ProbeConfig
from schemas.training import PredictorConfig, ScorerConfig, TrainConfig, WithScorer

TokenRow = Literal["visual", "constant", "zero", "shuffled", "no_traj", "scorer", "oracle"]
TOKEN_ROWS: tuple[TokenRow, ...] = ("visual", "constant", "zero", "shuffled", "no_traj", "scorer", "oracle")
"""All rows, in the order of the table."""
TOKEN_CONTROLS: tuple[TokenRow, ...] = ("visual", "constant", "zero", "shuffled")
"""Rows that are fine-tuned as long as the others and are told nothing of the clip: no token, a learned one, zeros, that
of another clip."""
TOKENS_READ: tuple[TokenRow, ...] = ("no_traj", "scorer", "oracle")
"""Rows whose token is a prediction of TrajPilot about the clip; the paper's."""


class ActionTokenConfig(WithScorer):
    """A predictor in event form, a scorer of retrieved head motion, and probes that read one token more. Source:
    docs/decisions/epic-token.md."""

    is_asked: bool = False
    """A run makes these rows next to the visual probe: `trajectories.span` names the head motion of the action,
    `video_motions` that before it."""
    seen_s: float = Field(1.0, gt=0)
    """The predictor sees the mean of the tubelets of so many last seconds of a clip. Source: paper (2 s to 1 s before
    the action)."""
    utility: tuple[float, float, float] = (0.1, 1.0, 0.5)
    """Weights of the cosine with the action's text, of being first and of being among five: what the scorer ranks
    candidates by; as D 30, without a sequence."""
    train: TrainConfig = TrainConfig(lr=3e-4, weight_decay=1e-4, batch=1024)
    """Of the predictors; the epoch with the most actions right on dev is kept."""
    rates: tuple[float, ...] = Field((1e-3, 3e-4, 1e-4), min_length=1)
    """Learning rates of the fine-tuning of the probe, of which dev chooses one for each row; the paper states none."""
    decays: tuple[float, ...] = Field((1e-2,), min_length=1)
    """Weight decays, likewise."""
    epochs: int = Field(10, ge=1)
    """Of the fine-tuning, the same for every row; the paper states none."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the fine-tuning; auto as in the other trainings."""
    shuffle_seed: int = 0
    """Draws the other clip of the shuffled row."""
    predictor: PredictorConfig | None = None
    """Sizes of the predictor, and the weights of another run with which it begins; set by the pipeline."""
    scorer: ScorerConfig | None = None
    """Retrieval and the scorer; set by the pipeline."""
    probe: ProbeConfig | None = None
    """Of the stage probe, with whose chosen probe every row begins; set by the pipeline."""

    @property
    def tuned(self) -> ProbeConfig:
        """Settings of the fine-tuning in the form of the probe's own."""
        assert self.probe is not None
        return self.probe.replace(rates=self.rates, decays=self.decays, epochs=self.epochs, precision=self.precision)


class TokenContrast(Record):
    """One row against another on the same tested clips, every clip of them, in points."""

    row: TokenRow
    against: TokenRow
    metric: str
    """Id of a record of trajpilot_core/metrics/epic_kitchens.py."""
    difference: float
    """Mean over the seeds."""
    low: float
    """Of the paired interval over videos; infinite where too few videos allow none."""
    high: float
    n_clips: int
    n_takes: int
