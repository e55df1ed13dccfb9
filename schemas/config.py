"""Every hyperparameter of the pipeline, once: one record per stage, its unit and its source.

Settings of trainings are in `schemas/training.py`, those of single corpora in `schemas/corpora.py`, those of poses from
video in `schemas/poses.py`.

Sources: "paper" is arXiv 2605.20388; "D nn" is a decision of docs/decisions/paper-gaps.md.
What a run computes is a `PipelineConfig`; where and how it runs is `RunOptions`, which is never part of a key.
"""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from schemas.annotation import SHORTEST_PLAN
from schemas.base import Record
from schemas.corpora import AtomicConfig, BasketballConfig, EgoPerConfig, EpicConfig, GoalStepConfig, KeystepConfig
from schemas.events import ActionTokenConfig, OutcomeConfig, ProbeConfig
from schemas.features import FeatureConfig as FeatureConfig
from schemas.features import ReleasedName
from schemas.features import TextConfig as TextConfig
from schemas.latent import LatentConfig
from schemas.places import DeviceName, OtherRun, Place, PluginName
from schemas.planners import PlannersConfig
from schemas.poses import PoseSourcesConfig, TrajectoryConfig, VideoMotionsConfig
from schemas.training import (
    AlignmentConfig,
    IntervalConfig,
    JointDecodingConfig,
    PredictorConfig,
    ScorerConfig,
)
from schemas.vlm import VlmConfig

RecipeName = Literal[
    "atomic",
    "atomic_closed",
    "demo",
    "demo_planners",
    "demo_closed",
    "demo_anticipation",
    "demo_keystep",
    "demo_goalstep",
    "demo_egoper",
    "demo_epic_kitchens",
    "soak",
    "keystep",
    "goalstep",
    "egoper",
    "atomic_anticipation",
    "epic_kitchens",
    "epic_kitchens_patches",
    "basketball",
    "demo_basketball",
    "keystep_poses",
    "demo_poses",
    "laptop",
    "atomic_latent",
    "demo_latent",
    "vlm_zero_shot",
    "vlm_sft",
]
"""Named experiments (deployments/recipes/): the paper's benchmarks, and those on simulated worlds."""
CorpusName = Literal[
    "egoexo4d_atomic", "egoexo4d_keystep", "egoexo4d_basketball", "goalstep", "egoper", "epic_kitchens"
]
"""Readers (trajpilot_core/corpora)."""


class IngestConfig(Record):
    """Which takes and descriptions are kept, and how they become segments, labels and windows."""

    corpus: CorpusName | PluginName = "egoexo4d_atomic"
    """Which corpus reader is used; `plugin:NAME` is one of an installed package (docs/plugins.md)."""
    video: Literal["downscaled_448", "full", "none"] = "downscaled_448"
    """Which of the released head videos is read. none: no videos are needed; lengths come from the metadata, and
    features must be released ones (docs/decisions/released-features.md)."""
    test_split: Literal["val", "test"] = "val"
    """Released split used for testing; labels of `test` are not public (D 45)."""
    dev_share: float = Field(0.10, gt=0, lt=0.5)
    """Share of the training captures held out as dev."""
    dev_min: int = Field(3, ge=1)
    """At least this many dev captures."""
    dev_seed: int = 0
    """Captures are sorted by sha256(seed:capture), and the first ones become dev."""
    splits_of: OtherRun | None = None
    """Output of the stage ingest of another run: its captures are dev here if they are dev there, and only others are
    sampled (docs/decisions/pretrained.md)."""
    min_horizon: int = Field(SHORTEST_PLAN, ge=SHORTEST_PLAN)
    """Shortest plan, Start and Goal included. Source: paper, 3.1."""
    max_horizon: int = Field(8, le=16)
    """Longest plan. Source: paper, 3.1."""
    interval_cap_s: float | None = Field(None, gt=0)
    """A segment extends at most this far to either side of its time point, seconds; None, as in the paper: to the
    midpoints between neighbours, or over the whole annotated segment (D 45)."""
    central_share: float = Field(1.0, gt=0, le=1)
    """Keep only this central share of each interval (D 44)."""
    min_segment_s: float = Field(0.2, ge=0)
    """Shorter segments are rejected."""
    min_overlap: float = Field(0.5, ge=0, le=1)
    """A segment that ends after the video is cut if at least this share is inside, else rejected."""
    subjects: tuple[str, ...] = ("C",)
    """People whose actions count; C is the wearer (D 45)."""
    drop_unsure: bool = True
    """Drop descriptions marked unsure (D 45)."""
    require_ego_visible: bool = True
    """Drop descriptions of what the head camera does not see (D 45)."""
    keep_unvalidated: bool = False
    """Keep takes that are not marked validated."""
    require_trajectory: bool = True
    """Reject takes without a pose file."""
    paraphrase_table: str | None = None
    """CSV (text,label_id) under the corpus root that groups paraphrases; None: exact normalised text (D 23)."""
    probe_timeout_s: float = Field(120.0, gt=0)
    """A video whose decoder does not respond for longer while its frames are counted is rejected."""
    atomic: AtomicConfig = AtomicConfig()
    keystep: KeystepConfig = KeystepConfig()
    basketball: BasketballConfig = BasketballConfig()
    goalstep: GoalStepConfig = GoalStepConfig()
    egoper: EgoPerConfig = EgoPerConfig()
    epic_kitchens: EpicConfig = EpicConfig()


class DiagnosticsConfig(IntervalConfig):
    """Distances between features, and approach to the goal. Source of all: docs/decisions/diagnostics.md."""

    pairs: int = Field(20_000, ge=1)
    """Segments sampled per split, each for at most one pair of every kind."""
    far_steps: int = Field(5, ge=2)
    """Far segments of one take are at least this many positions apart."""
    train_windows: int = Field(2_000, ge=1)
    """Training windows sampled per horizon for the approach to the goal. Source: paper, its appendix."""
    bootstrap: int = Field(2_000, ge=100)
    """Resamples of takes."""


class EvaluationConfig(IntervalConfig):
    """Rows, metrics and intervals."""

    vocabulary: Literal["labels", "classes"] = "labels"
    """What an answer is: a label, or a class of labels (ingest's table `label_classes`), which has the score of its
    nearest label; nothing is retrained. Source: paper, 4.1; docs/decisions/classes.md."""
    shuffles: int = Field(20, ge=1)
    """Derangements for the shuffled row (D 40)."""
    headroom_pools: tuple[int, ...] = (1, 5, 16, 64)
    """Pool sizes of the headroom table. Source: paper, appendix on headroom."""
    joint: JointDecodingConfig = JointDecodingConfig()
    plugin_rows: tuple[PluginName, ...] = ()
    """Further rows of the tables, each `plugin:NAME` of an installed package (docs/plugins.md)."""
    plugin_metrics: tuple[PluginName, ...] = ()
    """Further metrics, each `plugin:NAME` of an installed package (docs/plugins.md)."""


class CompletedEvaluation(EvaluationConfig):
    """With what follows from the settings of other stages."""

    anticipates: bool = False
    """The run has rows without a goal, with ceilings for the steps after Start."""
    further_entries: tuple[str, ...] = ()
    """Entries of the optional stages of the run, which are read in addition."""
    windows_per_horizon: int | None = None
    """Size of the subset of windows that vision-language models answer, on which every row is scored."""
    subset_seed: int = 7
    """Samples that subset."""


class ReportConfig(Record):
    """The HTML report."""

    examples: int = Field(12, ge=0)
    """Windows in the gallery, sampled by a fixed rule."""
    thumbnail_px: int = Field(192, ge=32, le=256)
    """Long side of a thumbnail, pixels."""
    frames: bool = True
    """Show frames of the videos; switch it off for a report that is shared."""
    seed: int = 0
    """Seed of the gallery's sample."""


class CompletedReport(ReportConfig):
    """With the facts about the run."""

    config_digest: str | None = None
    """Digest of the configuration of the whole run, printed in the header."""
    corpus: CorpusName | PluginName | None = None
    """Reader of the takes, shown in the header; it decides whether published numbers may be shown."""
    is_closed: bool = False
    """Answers are classes, not labels."""
    has_heads: bool = False
    """Class heads rank the labels, not their texts."""
    alignment_from: OtherRun | None = None
    """Source of E_tau; None: trained in this run."""
    has_token: bool = False
    """The report has rows with TrajPilot's token next to the visual probe."""
    has_every_patch: bool = False
    """The visual probe read every patch of a clip, not averages over tubelets."""
    predictor_from: OtherRun | None = None
    """Source of the initial weights of the predictors; None: random."""
    released: ReleasedName | None = None
    """Released features that the run uses; None: videos were encoded."""
    plugin_rows: tuple[PluginName, ...] = ()
    """Rows of the tables from plugins."""
    plugin_metrics: tuple[PluginName, ...] = ()
    """Metrics from plugins."""
    further: tuple[str, ...] = ()
    """Optional stages of the run, whose rejects and curves are also shown."""
    windows_per_horizon: int | None = None
    """Test windows of each horizon that were scored; None: all."""


class PipelineConfig(Record):
    """What is computed. The defaults are the paper's main experiment (recipe `atomic`)."""

    ingest: IngestConfig = IngestConfig()
    trajectories: TrajectoryConfig = TrajectoryConfig()
    features: FeatureConfig = FeatureConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    text_bank: TextConfig = TextConfig()
    alignment: AlignmentConfig = AlignmentConfig()
    predictor: PredictorConfig = PredictorConfig()
    scorer: ScorerConfig = ScorerConfig()
    planners: PlannersConfig = PlannersConfig()
    probe: ProbeConfig = ProbeConfig()
    outcome: OutcomeConfig = OutcomeConfig()
    video_motions: VideoMotionsConfig = VideoMotionsConfig()
    pose_sources: PoseSourcesConfig = PoseSourcesConfig()
    action_token: ActionTokenConfig = ActionTokenConfig()
    latent: LatentConfig = LatentConfig()
    vlm: VlmConfig = VlmConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    report: ReportConfig = ReportConfig()

    @model_validator(mode="after")
    def _has_equal_frames(self) -> Self:
        encoder = self.probe.encoder
        if encoder is not None and encoder.n_frames != self.features.n_frames:
            raise ValueError(
                f"n_frames of probe.encoder is {encoder.n_frames}, but features.n_frames is {self.features.n_frames}; "
                "both encoders see the frames of the same times: give both the same number"
            )
        return self


class RunOptions(Record):
    """Where and how a run happens; never part of a key."""

    model_config = ConfigDict(hide_input_in_errors=True)

    recipe: RecipeName = "atomic"
    """Named experiment; its values apply where the configuration sets nothing else."""
    root: Place = "runs"
    """Folder for everything that is written."""
    data_root: Place = ""
    """Folder (or s3:// prefix) of the downloaded corpus."""
    device: DeviceName = "auto"
    """Where the models run: auto, cpu, cuda (the first visible GPU) or cuda:1 and so on."""
    workers: int = Field(2, ge=1, le=64)
    """Processes for decoding and for trainings that run at the same time; trainings that would leave cores idle in a
    second round all run at once."""
    only: tuple[str, ...] = ()
    """Run these stages only; their inputs must exist."""
    from_stage: str | None = None
    """Run this stage and all after it."""
    force: tuple[str, ...] = ()
    """Compute these stages again although their output exists."""
    checkpoint_s: float = Field(120.0, ge=0)
    """Seconds between checkpoints of a training; a crash loses at most that and one epoch. 0: one after every epoch."""
    group_video_s: float | None = Field(None, gt=0)
    """Deployed runs only: stages that can share their work out over the workers of the pool do so in groups of takes
    with about this many seconds of video, so that a group takes minutes (docs/operations.md); None: one process does
    everything."""
    max_reject_ratio: float = Field(0.1, ge=0, le=1)
    """A stage fails if it loses a larger share of its rows to damaged input; rows excluded by settings do not count."""
