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
"""Rows that are fine-tuned as long as the others without information on the clip: no token, a learned one, zeros, or
the token of another clip."""
TOKENS_READ: tuple[TokenRow, ...] = ("no_traj", "scorer", "oracle")
"""Rows whose token is TrajPilot's prediction for the clip, as in the paper."""


class ActionTokenConfig(WithScorer):
    """A predictor in event form, a scorer of retrieved head motion, and probes that read one additional token. Source:
    docs/decisions/epic-token.md."""

    is_asked: bool = False
    """Compute these rows next to the visual probe: `trajectories.span` selects the head motion of the action,
    `video_motions` that before it."""
    seen_s: float = Field(1.0, gt=0)
    """The predictor sees the mean of the tubelets in this many last seconds of a clip. Source: paper (2 s to 1 s before
    the action)."""
    utility: tuple[float, float, float] = (0.1, 1.0, 0.5)
    """Weights in the utility by which the scorer ranks candidates: cosine with the action's text, first, among the
    first five; as D 30, without a sequence."""
    train: TrainConfig = TrainConfig(lr=3e-4, weight_decay=1e-4, batch=1024)
    """Training of the predictors; the epoch with the most correct actions on dev is kept."""
    rates: tuple[float, ...] = Field((1e-3, 3e-4, 1e-4), min_length=1)
    """Learning rates for fine-tuning the probe; dev selects one per row. The paper states none."""
    decays: tuple[float, ...] = Field((1e-2,), min_length=1)
    """Weight decays, selected likewise."""
    epochs: int = Field(10, ge=1)
    """Epochs of fine-tuning, the same for every row; the paper states none."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the fine-tuning; auto as in the other trainings."""
    shuffle_seed: int = 0
    """Samples the other clip of the shuffled row."""
    predictor: PredictorConfig | None = None
    """Sizes of the predictor, and the weights of another run that initialise it; set by the pipeline."""
    scorer: ScorerConfig | None = None
    """Retrieval and the scorer; set by the pipeline."""
    probe: ProbeConfig | None = None
    """Settings of the stage probe, whose selected probe initialises every row; set by the pipeline."""

    @property
    def tuned(self) -> ProbeConfig:
        """Settings of fine-tuning as a `ProbeConfig`."""
        assert self.probe is not None
        return self.probe.replace(rates=self.rates, decays=self.decays, epochs=self.epochs, precision=self.precision)


class TokenContrast(Record):
    """Difference of two rows on the same test clips, in points."""

    row: TokenRow
    against: TokenRow
    metric: str
    """Id of a record of trajpilot_core/metrics/epic_kitchens.py."""
    difference: float
    """Mean over the seeds."""
    low: float
    """Lower end of the paired interval over videos; infinite if there are too few videos."""
    high: float
    n_clips: int
    n_takes: int
