"""Every hyperparameter of the pipeline, once: one record per stage, its unit and its source.

Sources: "paper" is arXiv 2605.20388; "D nn" is a decision of docs/decisions/paper-gaps.md.
What a run computes is a `PipelineConfig`; where and how it runs is `RunOptions`, which is never part of a key.
"""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from schemas.annotation import SHORTEST_PLAN
from schemas.base import LATER, Record
from schemas.corpora import AtomicConfig, BasketballConfig, EgoPerConfig, EpicConfig, GoalStepConfig, KeystepConfig
from schemas.places import Place
from schemas.poses import OdometryConfig, Pi3Config, PoseSourceName, VideoSourceName
from schemas.vjepa import VjepaModel

Precision = Literal["auto", "fp32", "bf16"]
RecipeName = Literal[
    "atomic", "demo", "soak", "claims", "claims_controls",
    "keystep", "goalstep", "egoper", "atomic_anticipation", "epic_kitchens", "basketball",
]  # fmt: skip
"""Named experiments (deployments/recipes.py): the paper's benchmarks, and those on simulated worlds."""
CorpusName = Literal["egoexo4d_atomic", "egoexo4d_keystep", "egoexo4d_basketball", "goalstep", "egoper", "epic_kitchens"]
"""Readers (trajpilot_core/readers)."""
Ablation = Literal["no_labels", "no_motion"]
"""What a further scorer is trained without: the candidates' labels, or their trajectories and the plans under them."""


class IngestConfig(Record):
    """Which takes and descriptions are kept, and how they become segments, labels and windows."""

    corpus: CorpusName = Field("egoexo4d_atomic", description="Which corpus reader is used.")
    video: Literal["downscaled_448", "full"] = Field("downscaled_448", description="Which of the released head videos is read.")
    test_split: Literal["val", "test"] = Field("val", description="Released split that is tested on; labels of `test` are not public (D 45).")
    dev_share: float = Field(0.10, gt=0, lt=0.5, description="Share of the training captures held out as dev.")
    dev_min: int = Field(3, ge=1, description="At least this many dev captures.")
    dev_seed: int = Field(0, description="Dev is sorted by sha256(seed:capture).")
    min_horizon: int = Field(SHORTEST_PLAN, ge=SHORTEST_PLAN, description="Shortest plan, Start and Goal included. Source: paper, 3.1.")
    max_horizon: int = Field(8, le=16, description="Longest plan. Source: paper, 3.1.")
    interval_cap_s: float | None = Field(2.0, gt=0, description="A segment reaches at most this far either side of its time point (D 45); None: no cap.")
    central_share: float = Field(1.0, gt=0, le=1, description="Keep only this central share of each interval (D 44).")
    min_segment_s: float = Field(0.2, ge=0, description="Shorter segments are rejected.")
    min_overlap: float = Field(0.5, ge=0, le=1, description="A segment past the video's end is cut when this share lies inside, else rejected.")
    subjects: tuple[str, ...] = Field(("C",), description="Whose actions count; C is the wearer (D 45).")
    drop_unsure: bool = Field(True, description="Drop descriptions marked unsure (D 45).")
    require_ego_visible: bool = Field(True, description="Drop descriptions that the head camera does not see (D 45).")
    keep_unvalidated: bool = Field(False, description="Keep takes that are not marked validated.")
    require_trajectory: bool = Field(True, description="Reject takes without a pose file.")
    paraphrase_table: str | None = Field(None, description="CSV (text,label_id) under the corpus root that groups paraphrases; None: exact normalised text (D 23).")
    probe_timeout_s: float = Field(120.0, gt=0, description="A video whose decoder is silent for longer while its frames are counted is rejected.")
    atomic: Annotated[AtomicConfig, LATER] = AtomicConfig()
    keystep: Annotated[KeystepConfig, LATER] = KeystepConfig()
    basketball: Annotated[BasketballConfig, LATER] = BasketballConfig()
    goalstep: Annotated[GoalStepConfig, LATER] = GoalStepConfig()
    egoper: Annotated[EgoPerConfig, LATER] = EgoPerConfig()
    epic_kitchens: Annotated[EpicConfig, LATER] = EpicConfig()


class TrajectoryConfig(Record):
    """How a pose stream becomes the 16 relative motions of a segment."""

    source: PoseSourceName = Field("aria", description="Where poses come from: pose files, or the video by Pi3 or by visual odometry.")
    frame: Literal["camera", "device", "camera_upright"] = Field("camera", description="Body frame and its axes: raw Aria RGB camera (x down, y left, z forward), device, or upright camera (x right, y down, z forward) (D 20).")
    max_bracket_gap_s: float = Field(0.020, gt=0, description="Longest hole between the two poses around a knot (D 49).")
    max_inner_gap_s: float = Field(0.100, gt=0, description="Longest hole anywhere inside a segment (D 49).")
    min_quality: float = Field(0.5, ge=0, le=1, description="Lowest tracking quality_score accepted.")
    quaternion_tolerance: float = Field(1e-3, gt=0, description="Largest deviation of a quaternion's norm from 1.")
    reader: Literal["auto", "sparse", "whole"] = Field("auto", description="Sparse reads only the lines around each knot; whole parses the file.")
    fallback: Annotated[VideoSourceName | None, LATER] = Field(None, description="Source of takes that have no pose file, beside aria; it lets one set of controls mix both. None: such takes are rejected.")
    scale: Annotated[Literal["auto", "rms", "raw"], LATER] = Field("auto", description="Length of motions from video: rms divides each clip by its root mean square step, raw leaves it; auto: raw for pi3x, else rms (D 20).")
    scale_factor: Annotated[float | None, LATER] = Field(None, gt=0, description="Then all lengths times this: with rms, the median step of the poses that the trajectory encoder was trained on, metres; None: 1.")
    odometry: Annotated[OdometryConfig, LATER] = OdometryConfig()
    pi3: Annotated[Pi3Config, LATER] = Pi3Config()

    def scale_rule(self, source: VideoSourceName) -> Literal["rms", "raw"]:
        """Return what `scale` means for a source."""
        if self.scale != "auto":
            return self.scale
        return "raw" if source == "pi3" and self.pi3.model == "pi3x" else "rms"

    def sources(self) -> tuple[PoseSourceName, ...]:
        """Return the sources that may stand in one set of controls."""
        return (self.source,) if self.fallback is None else (self.source, self.fallback)

    @model_validator(mode="after")
    def _sources_agree(self) -> Self:
        if self.frame == "device" and self.sources() != ("aria",):
            raise ValueError("frame device needs the calibration of Aria glasses; poses from video are camera poses: use frame camera")
        if self.fallback is None:
            return self
        if self.source != "aria":
            raise ValueError(f"fallback is for takes without a pose file, beside source aria; source is {self.source}")
        if self.scale_rule(self.fallback) == "rms" and self.scale_factor is None:
            raise ValueError("fallback mixes lengths in metres with arbitrary ones: set scale_factor to the median step of the pose files (`trajpilot poses step`), or scale to raw")
        return self


class FeatureConfig(Record):
    """How a segment's frames are sampled, decoded and encoded."""

    n_frames: int = Field(16, ge=2, multiple_of=2, description="Frames per segment. Source: paper, appendix on preprocessing.")
    size_px: int = Field(384, ge=32, multiple_of=16, description="Frames are squashed to this square, pixels. Source: paper, appendix on preprocessing.")
    backend: Literal["pyav", "decord"] = Field("pyav", description="Video decoder.")
    decode_timeout_s: float = Field(120.0, gt=0, description="A take whose decoder is silent for longer is rejected.")
    checkpoint: Place | None = Field(None, description="V-JEPA 2.1 or 2.0 .pt or .safetensors file; None: the demo's tiny random checkpoint.")
    checkpoint_sha256: str | None = Field(None, description="Expected digest of the checkpoint.")
    model: VjepaModel = Field("vit_gigantic", description="Encoder size; vit_gigantic is the paper's ViT-G (1,664 wide). Names of torch.hub and of released files are understood, too (docs/models.md).")
    tokens: Literal["pooled", "temporal"] = Field("pooled", description="Mean over all tokens, or one mean per tubelet (D 4).")
    interpolate_rope: bool = Field(True, description="Scale positions to the pretraining grid, as the published hub builders do.")
    batch: int = Field(8, ge=1, description="Segments per encoder call.")
    precision: Precision = Field("auto", description="Arithmetic of the encoder; auto: bf16 on a GPU, fp32 on a CPU.")
    resize: Annotated[Literal["swscale", "antialiased"], LATER] = Field("swscale", description="How frames are squashed. antialiased: RGB first, then the bilinear filter of PIL, within 1/255; swscale: faster, chroma is shrunk before it is RGB (docs/decisions/vjepa.md).")
    max_off_s: Annotated[float | None, LATER] = Field(None, gt=0, le=1, description="Farthest that a frame may lie from its time, seconds; None: half a frame of the usual rate. A video of uneven rate, as phones make it, needs about 0.05 (docs/decisions/video-backend.md).")
    hierarchical: Annotated[bool, LATER] = Field(False, description="Four levels of V-JEPA 2.1 side by side, four times as wide; the last quarter is the vector without it.")
    compile: Annotated[bool, LATER] = Field(False, description="Compile the encoder's blocks (torch.compile): for long runs on a GPU; on a CPU it needs a C++ compiler.")


class TextConfig(Record):
    """How labels become unit vectors."""

    encoder: Literal["bag_of_words", "egovlpv2", "transformers"] = Field("egovlpv2", description="bag_of_words is the demo's offline projection.")
    model: Place | None = Field(None, description="egovlpv2: folder with EgoVLPv2.safetensors or EgoVLPv2.pth, and the RoBERTa tokenizer; transformers: folder or hub id.")
    revision: str | None = Field(None, description="Pinned commit of a hub model.")
    embedding: Literal["cls", "mean", "last", "projected"] = Field("cls", description="Which sentence vector (D 22): state of the first token, mean over the tokens, state of the last token (decoders), or EgoVLPv2's projection of the first.")
    max_tokens: int = Field(77, ge=4, description="Longer texts are cut.")
    bag_width: int = Field(128, ge=8, description="Width of the bag-of-words projection.")
    batch: int = Field(64, ge=1, description="Texts per encoder call.")


class TrainConfig(Record):
    """The one training loop. Source of the defaults: D 2."""

    epochs: int = Field(30, ge=1, description="Most epochs.")
    patience: int | None = Field(8, ge=1, description="Stop when dev has not improved for this many epochs; None: never.")
    batch: int = Field(1024, ge=1, description="Samples per step.")
    lr: float = Field(3e-4, gt=0, description="Peak learning rate of AdamW.")
    min_lr: float = Field(1e-5, ge=0, description="Learning rate at the end of the cosine.")
    weight_decay: float = Field(0.05, ge=0, description="On matrices only.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW.")
    warmup: float = Field(0.05, ge=0, le=1, description="Share of the steps with rising learning rate.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    precision: Precision = Field("auto", description="auto: bf16 autocast where the device is fast in it, else fp32.")
    checkpoint_every: int = Field(1, ge=1, description="Epochs between checkpoints.")


class AlignmentConfig(Record):
    """E_tau, the trajectory encoder. Source: paper, 3.3; D 21."""

    width: int = Field(128, ge=8, description="Source: paper, 3.3.")
    layers: int = Field(4, ge=1, description="Source: paper, 3.3.")
    heads: int = Field(4, ge=1, description="D 21.")
    hidden: int = Field(512, ge=8, description="Feed-forward width (D 50).")
    dropout: float = Field(0.1, ge=0, lt=1, description="D 21.")
    temperature: float = Field(0.07, gt=0, description="Initial; learnable, its inverse clamped at 100 (D 11).")
    folds: int = Field(5, ge=1, description="Cross-fitting by take of everything that is learned (D 28); 1: cheap mode.")
    holdout_share: float = Field(0.15, gt=0, lt=0.5, description="Cheap mode only: share of the training takes that no fit sees and that the scorer learns on (D 28).")
    fold_share: float | None = Field(None, gt=0, lt=1, description="Share of the training takes in each fold, the others in none; None: every take is in a fold. Fewer queries, but folds' models closer to the final ones.")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="One chain of models per seed (D 2); predictor and scorer follow.")
    train: TrainConfig = TrainConfig(epochs=200, patience=20, lr=1e-3)


class PredictorConfig(Record):
    """The causal predictor. Source: paper, 3.4; D 1 to 16."""

    width: int = Field(768, ge=16, description="D 1.")
    layers: int = Field(10, ge=1, description="D 1.")
    heads: int = Field(12, ge=1, description="D 1.")
    hidden: int = Field(3072, ge=16, description="D 1.")
    dropout: float = Field(0.1, ge=0, lt=1, description="D 1.")
    queries: int = Field(8, ge=1, description="Compressor tokens per endpoint. Source: paper, 3.4.")
    trajectory_dropout: float = Field(0.1, ge=0, lt=1, description="Per sample, all trajectory inputs to null. Source: paper, 3.4; D 13.")
    goal_dropout: float = Field(0.0, ge=0, lt=1, description="Per sample, the goal masked; 0.5 for anticipation (D 16).")
    infonce_weight: float = Field(0.5, ge=0, description="lambda. Source: paper, 3.4.")
    temperature: float = Field(0.07, gt=0, description="Initial, of the pooled InfoNCE (D 11).")
    train: TrainConfig = TrainConfig()


class EffectsConfig(Record):
    """Segments as the sum of effects of labels, effects of takes, and noise. Source: docs/decisions/scorer-plus.md."""

    steps: int = Field(20, ge=1, description="Turns between labels and takes, first by least squares, then by expectation.")
    floor: float = Field(1e-3, gt=0, lt=1, description="Share of the average noise added to all, so that it can be inverted.")


class ScorerPlusConfig(Record):
    """Scorer+: exact inference on a chain of roles whose preferences come from takes that resemble the query.

    The weights are where learning begins. Source of all: docs/decisions/scorer-plus.md, which gives what dev said.
    """

    effects: EffectsConfig = EffectsConfig()
    look_directions: int = Field(16, ge=1, description="Directions of the features in which labels' looks are compared.")
    motion_directions: int = Field(96, ge=1, description="Directions of the head motion in which takes are compared; 96: all.")
    recognition_directions: int = Field(48, ge=1, description="Directions of features and motion together in which ends are recognised.")
    tempering: float = Field(0.5, gt=0, le=1, description="Factor of the log likelihoods of both ends before one is summed out.")
    look_smoothing: float = Field(0.1, gt=0, description="Weight of the looks' distance in the kernel that smooths contexts.")
    pool_temperature: float = Field(0.05, gt=0, description="Of the weights softmax(cos / T) in the mean of the candidates' plans.")
    sparse: float = Field(0.3, gt=0, description="Share of the common counts added to a take's before takes are compared.")
    kept_labels: int = Field(24, ge=1, description="Labels per step among which the best sequence is sought.")
    beam: int = Field(64, ge=1, description="Best sequences that are compared.")
    coupled_takes: int = Field(96, ge=1, description="Takes whose plans may explain a whole sequence.")
    plan_ends: float = Field(4.0, gt=0, description="Each expert's cosines at Start and Goal; stays for endpoint_traj where the folds lack it.")
    plan_middles: float = Field(0.7, gt=0, description="Each expert's cosines in between; likewise.")
    recognition: float = Field(1.0, gt=0, description="What the ends were recognised as.")
    manner: float = Field(0.8, gt=0, description="Head motion in the weights of takes.")
    holds: float = Field(2.5, gt=0, description="Log odds that a take which holds a label of an end resembles the query.")
    clash: float = Field(0.5, gt=0, description="Motion of a label against motion of a take.")
    look: float = Field(0.05, gt=0, description="Looks in the roles.")
    context: float = Field(4.0, gt=0, description="Contexts in the roles.")
    common: float = Field(0.1, gt=0, description="Counts of all takes alike beside those of takes that resemble the query.")
    prior: float = Field(0.8, gt=0, lt=10, description="Preferences as prior of the Start label.")
    kinship: float = Field(1.5, gt=0, description="Log likelihood of one take's labels under another's in their kinship.")
    own: float = Field(0.4, gt=0, lt=1, description="A take's own counts against those of its kin.")
    jump: float = Field(0.03, gt=0, lt=0.5, description="Share of the steps that lead anywhere.")
    train: TrainConfig = TrainConfig(epochs=6, patience=3, batch=256, lr=5e-2, min_lr=1e-3, weight_decay=0.0, precision="fp32")


class ScorerConfig(Record):
    """Retrieval bank and gate-then-rank scorer. Source: paper, 3.5 and its appendix; D 25 to 32."""

    candidates: int = Field(64, ge=1, description="K, retrieved per query. Source: paper, 3.5.")
    prefetch: int = Field(96, ge=1, description="Top of the low-precision product that is rescored exactly.")
    key: Literal["action", "visual"] = Field("action", description="Retrieval key: predicted endpoints of no_traj, or pooled features (D 25).")
    strict: bool = Field(False, description="Also exclude the query's participant from its pool (D 27).")
    width: int = Field(256, ge=16, description="D 29.")
    layers: int = Field(2, ge=1, description="Source: paper, appendix on the scorer.")
    heads: int = Field(4, ge=1, description="Source: paper, appendix on the scorer.")
    dropout: float = Field(0.1, ge=0, lt=1, description="D 29.")
    utility: tuple[float, float, float, float] = Field((0.1, 1.0, 0.5, 1.0), description="Weights of mean cosine, R@1, R@5, exact sequence (D 30).")
    margin: float = Field(0.05, ge=0, description="A candidate beats the fallback by more than this utility (D 31).")
    utility_temperature: float = Field(0.1, gt=0, description="Of the teacher's softmax (D 32).")
    loss_weights: tuple[float, float, float] = Field((1.0, 1.0, 1.0), description="Gate, best candidate, rank distribution (D 32).")
    max_queries: int = Field(65_536, ge=1, description="Training queries kept, drawn by seed where there are more: their candidate plans stay in memory (docs/decisions/scorer.md).")
    temperatures: tuple[float, ...] = Field((0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0), min_length=1, description="Grid for the weights softmax(cos / T) of kNN-labels and Pool-Mean; T is chosen on dev (D 29).")
    ablations: tuple[Ablation, ...] = Field(("no_labels", "no_motion"), description="Further scorers that are trained without the candidates' labels, and without their trajectories and plans under them.")
    plus: ScorerPlusConfig | None = Field(ScorerPlusConfig(), description="The better scorer; None: off.")
    train: TrainConfig = TrainConfig(epochs=30, patience=6)


class EvaluationConfig(Record):
    """Metrics and intervals."""

    bootstrap: int = Field(10_000, ge=100, description="Resamples of takes.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Level of the intervals.")
    seed: int = Field(0, description="Of the bootstrap and of the shuffles.")
    shuffles: int = Field(20, ge=1, description="Derangements for the shuffled row (D 40).")
    headroom_pools: tuple[int, ...] = Field((1, 5, 16, 64), description="Pool sizes of the headroom table. Source: paper, appendix on headroom.")


class ReportConfig(Record):
    """The HTML report."""

    examples: int = Field(12, ge=0, description="Windows in the gallery, drawn by a fixed rule.")
    thumbnail_px: int = Field(192, ge=32, le=256, description="Long side of a thumbnail, pixels.")
    frames: bool = Field(True, description="Show frames of the videos; off where the report is passed on.")
    seed: int = Field(0, description="Of the gallery's draw.")
    config_digest: str | None = Field(None, description="Digest of the configuration of the whole run, printed in the header; set by the pipeline.")
    corpus: Annotated[CorpusName | None, LATER] = Field(None, description="Reader of the takes, which the header names and on which it depends whether published numbers may stand there; set by the pipeline.")
    is_closed: Annotated[bool, LATER] = Field(False, description="The vocabulary of atomic descriptions is closed; set by the pipeline.")


class PipelineConfig(Record):
    """What is computed. The defaults are the paper's main experiment, but for settings that came later (recipe `atomic`)."""

    ingest: IngestConfig = IngestConfig()
    trajectories: TrajectoryConfig = TrajectoryConfig()
    features: FeatureConfig = FeatureConfig()
    text_bank: TextConfig = TextConfig()
    alignment: AlignmentConfig = AlignmentConfig()
    predictor: PredictorConfig = PredictorConfig()
    scorer: ScorerConfig = ScorerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    report: ReportConfig = ReportConfig()


STAGE_NAMES = tuple(PipelineConfig.model_fields)
"""One sub-record per stage, in order."""
ONE_STAGE: dict[str, JsonValue] = {"type": "string", "enum": list(STAGE_NAMES)}
"""What a form offers where a stage is asked for."""


class RunOptions(Record):
    """Where and how a run happens; never part of a key."""

    model_config = ConfigDict(hide_input_in_errors=True)

    recipe: RecipeName = Field("atomic", description="Named experiment that holds wherever the configuration says nothing else.")
    root: Place = Field("runs", description="Everything that is written lies under this folder.")
    data_root: Place = Field("", description="Folder (or s3:// prefix) of the downloaded corpus.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the models run.")
    workers: int = Field(2, ge=1, le=64, description="Processes for decoding and for trainings side by side.")
    only: tuple[str, ...] = Field((), json_schema_extra={"items": ONE_STAGE}, description="Run these stages only; what they read must be there.")
    from_stage: str | None = Field(None, json_schema_extra={"anyOf": [ONE_STAGE, {"type": "null"}]}, description="Run this stage and all after it.")
    force: tuple[str, ...] = Field((), json_schema_extra={"items": ONE_STAGE}, description="Recompute these stages although their output is there.")
    group_video_s: float | None = Field(None, gt=0, description="Deployed runs only: stages that can share their work out to the workers of the pool do so in groups of takes of about so many seconds of video, so that a group takes minutes (docs/operations.md); None: one process does it all.")
    max_reject_ratio: float = Field(0.1, ge=0, le=1, description="A stage that loses a larger share of its rows to damage fails; what settings leave out does not count.")
    rehash: bool = Field(False, description="Read every input file again instead of trusting size and time.")
    protocols: tuple[str, ...] = Field(("file", "s3"), description="Protocols that may be opened at all; anything else is refused before a library sees it.")
