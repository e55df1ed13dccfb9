"""Settings of everything that is trained, and how its scores become rankings and sequences.

Sources: as in `schemas/config.py`; for decoding the paper's table closed_vocab_hparams, and D 35 and D 36 of
docs/decisions/paper-gaps.md.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.places import OtherRun

GOAL_DROPOUT = 0.5
"""Probability that the goal of a sample is masked, where there is goal dropout. Source: paper, p_goal; D 16."""


class IntervalConfig(Record):
    """Intervals over takes, which are resampled."""

    bootstrap: int = Field(10_000, ge=100)
    """Resamples of takes."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of the intervals."""
    seed: int = 0
    """Seed of the resamples and of whatever else the stage samples."""


class ClosedDecodingConfig(Record):
    """A sequence scores sum log softmax(logits / temperature) + weight sum log P(label | label before it)."""

    weight: float = Field(0.0, ge=0)
    """Factor of the log probabilities of transitions; 0: steps are independent."""
    smoothing: float = Field(0.5, ge=0)
    """Added to the count of every pair of labels; 0: unseen pairs are impossible."""
    temperature: float = Field(1.0, gt=0)
    """Divisor of the logits."""
    is_masked: bool = False
    """Restrict answers to the labels that the window's scenario allows."""


KEYSTEP_DECODING = ClosedDecodingConfig(weight=1.5, smoothing=0.5, temperature=1.0, is_masked=True)
"""Ego-Exo4D Keystep, 375 classes."""
GOALSTEP_DECODING = ClosedDecodingConfig(weight=0.05, smoothing=0.05, temperature=1.2, is_masked=True)
"""Ego4D GoalStep, 310 classes."""
EGOPER_DECODING = ClosedDecodingConfig(weight=2.5, smoothing=0.5, temperature=1.0, is_masked=False)
"""EgoPER, 57 classes."""


class JointDecodingConfig(Record):
    """Rows whose steps are decoded together. Source of all: docs/decisions/methods.md."""

    shortlist: int = Field(50, ge=5)
    """Labels per step among which sequences are compared."""
    cosine_temperatures: tuple[float, ...] = Field((0.05, 0.1, 0.2, 0.4), min_length=1)
    """Grid of T for rows that score a label by a cosine, as softmax(cos / T); T is chosen on dev."""
    vote_temperatures: tuple[float, ...] = Field((1.0, 2.0, 4.0, 8.0), min_length=1)
    """The same for rows that score a label by votes, as votes^(1 / T)."""
    weights: tuple[float, ...] = Field((0.0, 0.5, 1.0), min_length=1)
    """Grid of the factor of the log probabilities of transitions, chosen on dev; 0: steps are independent."""
    dev_windows: int = Field(256, ge=1)
    """Dev windows per horizon, at most, on which both are chosen."""


Precision = Literal["auto", "fp32", "bf16"]
HeadKind = Literal["open", "classes"]
"""How the predictor's embeddings become labels: by cosine with the label bank, or by a classifier."""
Ablation = Literal["no_labels", "no_motion"]
"""What a further scorer is trained without: the candidates' labels, or their trajectories and the plans made with
them."""


class TrainConfig(Record):
    """The one training loop. Source of the defaults: D 2."""

    epochs: int = Field(30, ge=1)
    """Most epochs."""
    patience: int | None = Field(8, ge=1)
    """Stop when dev has not improved for this many epochs; None: never. Epochs before the training loss has begun to
    fall do not count."""
    batch: int = Field(1024, ge=1)
    """Samples per step."""
    lr: float = Field(3e-4, gt=0)
    """Peak learning rate of AdamW."""
    min_lr: float = Field(1e-5, ge=0)
    """Learning rate at the end of the cosine."""
    weight_decay: float = Field(0.05, ge=0)
    """On matrices only."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW."""
    warmup: float = Field(0.05, ge=0, le=1)
    """Share of the steps with rising learning rate."""
    clip: float | None = Field(1.0, gt=0)
    """Largest gradient norm; None: any."""
    precision: Precision = "auto"
    """auto: bf16 autocast where the device is fast in it, else fp32."""


class AlignmentConfig(Record):
    """E_tau, the trajectory encoder. Source: paper, 3.3; D 21."""

    width: int = Field(128, ge=8)
    """Source: paper, 3.3."""
    layers: int = Field(4, ge=1)
    """Source: paper, 3.3."""
    heads: int = Field(4, ge=1)
    """D 21."""
    hidden: int = Field(512, ge=8)
    """Feed-forward width (D 50)."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """D 21."""
    temperature: float = Field(0.07, gt=0)
    """Initial value; it is learned, its inverse clamped at 100 (D 11)."""
    folds: int = Field(5, ge=1)
    """Cross-fitting by take of everything that is learned (D 28); 1: cheap mode."""
    holdout_share: float = Field(0.15, gt=0, lt=0.5)
    """Cheap mode only: share of the training takes that no fit sees and that the scorer learns on (D 28)."""
    fold_share: float | None = Field(None, gt=0, lt=1)
    """Share of the training takes in each fold, the others are in none; None: every take is in a fold. A share means
    fewer queries, but models of the folds that are closer to the final ones."""
    fold_seed: int = 0
    """Deals the takes out to the folds, the same for all seeds of models."""
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    """One chain of models per seed (D 2); predictor and scorer follow."""
    train: TrainConfig = TrainConfig(epochs=200, patience=20, lr=1e-3)
    pretrained: OtherRun | None = None
    """Output of the stage alignment of another run, from which every E_tau is taken as it is, with its sizes, and
    which decides the folds of its takes (docs/decisions/pretrained.md); None: they are trained here."""


class PredictorConfig(Record):
    """The causal predictor. Source: paper, 3.4; D 1 to 16; with a class head, its appendix on closed vocabularies."""

    width: int = Field(768, ge=16)
    """D 1."""
    layers: int = Field(10, ge=1)
    """D 1."""
    heads: int = Field(12, ge=1)
    """D 1."""
    hidden: int = Field(3072, ge=16)
    """D 1."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """D 1."""
    queries: int = Field(8, ge=1)
    """Compressor tokens per endpoint. Source: paper, 3.4."""
    infonce_weight: float = Field(0.5, ge=0)
    """lambda. Source: paper, 3.4."""
    temperature: float = Field(0.07, gt=0)
    """Initial value, of the pooled InfoNCE (D 11)."""
    standardise: bool = True
    """Features are standardised by what the chain is fitted on (docs/decisions/feature-standardisation.md)."""
    train: TrainConfig = TrainConfig()
    head: HeadKind = "open"
    """open: labels are ranked by the cosine of their text embedding; classes: by a classifier on the predicted
    embedding, for corpora of a closed vocabulary (D 34)."""
    bridge_weight: float = Field(0.0, ge=0)
    """lambda_bridge: weight of the open predictor's loss next to the cross-entropy of the class head."""
    trajectory_dropout: float = Field(0.1, ge=0, lt=1)
    """Probability, per sample, that all trajectory inputs are replaced by null. Source: paper, 3.4; D 13."""
    goal_dropout: float = Field(0.0, ge=0, lt=1)
    """Probability, per sample, that the goal is masked (D 16), of every predictor that is no twin."""
    twin_goal_dropout: float | None = Field(None, gt=0, lt=1)
    """The same probability, of goal-dropout twins: traj and no_traj of the final chain, trained once more with it
    (D 42); None: there are none."""
    anticipates: bool = False
    """Twins answer without a goal, too: every chain has them, and their epochs are selected on dev with the goal
    masked (docs/decisions/anticipation.md)."""
    masked_goal_target: Literal["dropped", "kept"] = "dropped"
    """Whether the label of a masked goal is a target of the loss nevertheless; dropped: it is none (D 16)."""
    pretrained: OtherRun | None = None
    """Output of the stage predictor of another run, with whose weights every training begins
    (docs/decisions/pretrained.md); None: with random ones."""

    @model_validator(mode="after")
    def _twins_differ(self) -> Self:
        if self.twin_goal_dropout is not None and self.goal_dropout > 0:
            raise ValueError(
                f"goal_dropout is {self.goal_dropout} and twin_goal_dropout {self.twin_goal_dropout}: twins exist next "
                "to predictors without goal dropout; set goal_dropout to 0 or twin_goal_dropout to null"
            )
        if self.anticipates and (self.twin_goal_dropout is None or self.head != "open"):
            raise ValueError(
                f"anticipates is on, twin_goal_dropout {self.twin_goal_dropout} and head {self.head}: goal-dropout "
                "twins anticipate, and labels are ranked by their text then; set twin_goal_dropout and head=open"
            )
        return self


class ScorerConfig(Record):
    """Retrieval bank and gate-then-rank scorer. Source: paper, 3.5 and its appendix; D 25 to 32."""

    candidates: int = Field(64, ge=1)
    """K, retrieved per query. Source: paper, 3.5."""
    key: Literal["action", "visual"] = "action"
    """Retrieval key: predicted endpoints of no_traj, or pooled features (D 25)."""
    width: int = Field(256, ge=16)
    """D 29."""
    layers: int = Field(2, ge=1)
    """Source: paper, appendix on the scorer."""
    heads: int = Field(4, ge=1)
    """Source: paper, appendix on the scorer."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """D 29."""
    utility: tuple[float, float, float, float] = (0.1, 1.0, 0.5, 1.0)
    """Weights of mean cosine, R@1, R@5, exact sequence (D 30)."""
    margin: float = Field(0.05, ge=0)
    """A candidate beats the fallback if its utility is higher by more than this (D 31)."""
    utility_temperature: float = Field(0.1, gt=0)
    """Temperature of the teacher's softmax (D 32)."""
    loss_weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Weights of the losses of gate, best candidate and rank distribution (D 32)."""
    max_queries: int = Field(65_536, ge=1)
    """Training queries kept, sampled by seed where there are more; also the most dev queries. They need disk space in
    the root's scratch: 625 KB each with 64 candidates at the paper's sizes, 67 GB in all
    (docs/decisions/scorer.md)."""
    temperatures: tuple[float, ...] = Field((0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0), min_length=1)
    """Grid of T for the weights softmax(cos / T) of kNN-labels and Pool-Mean; T is chosen on dev (D 29)."""
    ablations: tuple[Ablation, ...] = ("no_labels", "no_motion")
    """Further scorers that are trained without the candidates' labels, and without their trajectories and the plans
    made with them."""
    decoding: ClosedDecodingConfig = ClosedDecodingConfig()
    """How the scores of a class head become labels, here and in the evaluation; without such a head it is not read."""
    anticipates: bool = False
    """Fit one more scorer per seed, which is given no goal, on the goal-dropout twins (D 33); it needs
    predictor.anticipates."""
    train: TrainConfig = TrainConfig(epochs=30, patience=6)
