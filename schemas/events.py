"""Single events: settings and table rows of EPIC-KITCHENS-100's attentive probe, with and without TrajPilot's token,
and of the outcome of a shot.

"V-JEPA 2" is github.com/facebookresearch/vjepa2 at c2963a47, configuration of its anticipation on EPIC-KITCHENS-100.
Source: paper, appendices; docs/decisions/epic-token.md, docs/decisions/outcome.md.
"""

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.features import FeatureConfig
from schemas.training import IntervalConfig, PredictorConfig, ScorerConfig, TrainConfig


class ProbeConfig(Record):
    """A probe on the tokens of the frozen encoder: a grid of trainings per seed, from which dev selects one. Source:
    docs/decisions/epic-probe.md."""

    tokens: Literal["temporal", "full"] | None = None
    """temporal: what the stage features keeps, one token a tubelet: another protocol than the published one, for small
    machines; full: every patch, and the patches of the tubelet that is predicted, encoded from the videos in every
    epoch (docs/scale.md states what it takes); None: no probe."""
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    """Seeds, one probe each; the published one has one seed."""
    heads: int = Field(16, ge=1)
    """Heads of every attention. Source: V-JEPA 2."""
    blocks: int = Field(3, ge=1)
    """Self-attention blocks before the queries read the tokens. Source: V-JEPA 2, whose 4 includes the reading."""
    rates: tuple[float, ...] = Field((5e-3, 3e-3, 1e-3, 3e-4, 1e-4), min_length=1)
    """Learning rates of the grid. Source: V-JEPA 2."""
    decays: tuple[float, ...] = Field((1e-4, 1e-3, 1e-2, 1e-1), min_length=1)
    """Weight decays of the grid, on all parameters. Source: V-JEPA 2."""
    epochs: int = Field(20, ge=1)
    """Source: V-JEPA 2."""
    batch: int = Field(128, ge=1)
    """Clips per step. Source: V-JEPA 2."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the training; auto as in the other trainings. V-JEPA 2 has bf16."""
    gap_s: float = Field(1.0, ge=0)
    """Stop with an error at a clip whose last frame is less than this many seconds before its action. Source: protocol
    of the corpus."""
    bootstrap: int = Field(2_000, ge=100)
    """Resamples of videos, for the intervals."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of the intervals."""
    random_gap_s: tuple[float, float] | None = (0.25, 1.75)
    """With `full`, seconds between the end of a training clip and its action, uniformly sampled in every epoch; None:
    as in the features. Source: V-JEPA 2."""
    rand_augment: tuple[int, float, float] | None = (4, 7.0, 0.5)
    """With `full`, operations of RandAugment that are sampled for a training clip, each applied with probability 1/2;
    mean and deviation of their levels in 0..10; None: none. Source: V-JEPA 2."""
    crop_scale: tuple[float, float] | None = (0.08, 1.0)
    """With `full`, share of the picture that a training clip shows, sampled uniformly; None: all. Source: V-JEPA 2."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width by height of that part. Source: V-JEPA 2."""
    mirror_share: float = Field(0.5, ge=0, le=1)
    """With `full`, share of training clips that are mirrored, sampled in every epoch. Source: V-JEPA 2."""
    erase_share: float = Field(0.25, ge=0, le=1)
    """With `full`, share of training clips with a rectangle of noise, the same in every frame. Source: V-JEPA 2."""
    clips_at_once: int = Field(2, ge=1)
    """With `full`, clips whose tokens a probe reads at once: affects memory, not results."""
    encoder: FeatureConfig | None = None
    """With `full`, the encoder of the clips, which may be another one than that of the features, which the predictor
    reads; it sees as many frames. None: the same."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        operations, level, deviation = self.rand_augment or (0, 0.0, 0.0)
        if operations < 0 or not 0 <= level <= 10 or deviation < 0:
            raise ValueError(
                f"rand_augment is {self.rand_augment}; give a number from 0 on, a level in 0..10, a deviation"
            )
        for name in ("random_gap_s", "crop_scale", "crop_ratio"):
            bounds = getattr(self, name)
            if bounds is not None and not 0 < bounds[0] <= bounds[1]:
                raise ValueError(f"{name} is {bounds}; give a smaller and a larger number above 0")
        return self


class ProbeScore(Record):
    """One value of the table of anticipation with its interval over videos."""

    row: str
    """probe, or a floor."""
    seed: int
    metric: str
    """Id of a record of trajpilot_core/metrics/epic_kitchens.py."""
    subset: Literal["overall", "unseen", "tail"]
    space: Literal["challenge", "trained_pairs"]
    value: float | None
    """Percent; None if the set has no clip."""
    low: float
    """Lower end of the interval; infinite if there are too few videos."""
    high: float
    n_clips: int
    n_classes: int
    """Classes that occur."""
    n_takes: int
    trial: str
    """Selected training of the grid, the same for all metrics; empty for a floor."""


TokenRow = Literal["visual", "constant", "zero", "shuffled", "no_traj", "scorer", "oracle"]
TOKEN_ROWS: tuple[TokenRow, ...] = get_args(TokenRow)
"""All rows, in the order of the table."""
TOKEN_CONTROLS: tuple[TokenRow, ...] = ("visual", "constant", "zero", "shuffled")
"""Rows that are fine-tuned as long as the others without information on the clip: no token, a learned one, zeros, or
the token of another clip."""
TOKENS_READ: tuple[TokenRow, ...] = ("no_traj", "scorer", "oracle")
"""Rows whose token is TrajPilot's prediction for the clip, as in the paper."""


class ActionTokenConfig(Record):
    """A predictor in event form, a scorer of retrieved head motion, and probes that read one additional token. Source:
    docs/decisions/epic-token.md."""

    is_asked: bool = False
    """Compute these rows next to the visual probe: `trajectories.span` selects the head motion of the action,
    `video_motions` that before it."""
    seen_s: float = Field(1.0, gt=0)
    """The predictor sees the mean of the tubelets in these last seconds of a clip. Source: paper (2 to 1 s before)."""
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


class CompletedActionToken(ActionTokenConfig):
    """With the settings of other stages that it uses."""

    predictor: PredictorConfig = PredictorConfig()
    """Sizes of the predictor, and the weights of another run that initialise it."""
    scorer: ScorerConfig = ScorerConfig()
    """Retrieval and the scorer."""
    probe: ProbeConfig = ProbeConfig()
    """Settings of the stage probe, whose selected probe initialises every row."""

    @property
    def tuned(self) -> ProbeConfig:
        """Settings of fine-tuning as a `ProbeConfig`."""
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


OutcomeRow = Literal[
    "no_traj",
    "attentive_probe",
    "scorer",
    "oracle",
    "endpoint_traj",
    "permuted_candidates",
    "knn_outcome",
    "majority",
]
"""Rows, in the order of the table."""
OutcomeMetric = Literal["accuracy", "balanced", "made", "missed", "auc"]
"""Accuracy, balanced accuracy, recall of made and of missed shots, area under the ROC curve."""


class OutcomeConfig(Record):
    """Made or missed: head on the predictor, scorer of retrieved head motion. Source: paper, appendix; D 39, D 43."""

    utility: tuple[float, float] = (0.1, 1.0)
    """Weights of log p(true outcome) and of a correct answer in the utility by which the scorer ranks candidates."""
    train: TrainConfig = TrainConfig(epochs=80, patience=None, batch=64, lr=3e-4, weight_decay=1e-4)
    """Training of predictor and head; all epochs are run and the last is kept. Source: paper."""
    probe_heads: int = Field(16, ge=1)
    """Heads of every attention of the probe, a divisor of the features' width. Source: V-JEPA 2, as in ProbeConfig."""
    probe_blocks: int = Field(3, ge=1)
    """Self-attention blocks before its query reads the tokens. Source: V-JEPA 2; the paper states none."""
    shuffle_seed: int = 0
    """Seed of the permutation of candidates' head motion in the control row."""


class CompletedOutcome(OutcomeConfig, IntervalConfig):
    """With the settings of other stages that it uses."""

    predictor: PredictorConfig = PredictorConfig()
    """Sizes of the predictor, and the weights of another run that initialise it."""
    scorer: ScorerConfig = ScorerConfig()
    """Retrieval and the scorer."""


class ShotAnswer(Record):
    """Answer of one row for one test shot."""

    shot_id: str
    take_id: str
    row: OutcomeRow
    seed: int
    p_made: float
    """The shot counts as made from 0.5 on."""
    is_made: bool
    """The truth."""
    gate: float | None
    """Probability that a candidate beats the fallback; None if the row has no gate."""
    opened: bool | None
    candidate: str | None
    """Training shot that provided the head motion; None for the fallback and for rows without retrieval."""


class ShotScore(Record):
    """One figure of one row on the test shots, in percent."""

    row: OutcomeRow
    seed: int | None
    """None: mean over the seeds."""
    metric: OutcomeMetric
    value: float
    low: float
    """Lower end of the interval over takes; infinite if there are too few takes."""
    high: float
    n_shots: int
    """Shots that it is computed from."""
    n_takes: int


class ShotContrast(Record):
    """One row against another on the same test shots."""

    row: OutcomeRow
    against: OutcomeRow
    seed: int | None
    """None: mean over the seeds."""
    difference: float
    """Difference of the accuracies, in points."""
    low: float
    """Lower end of the paired interval over takes."""
    high: float
    n_shots: int
    n_takes: int
