"""How scores become rankings and sequences: of a closed vocabulary, and of rows whose steps are decoded together.

Sources: the paper (arXiv 2605.20388), table closed_vocab_hparams, for the values; D 35 and D 36 of
docs/decisions/paper-gaps.md for how they are used.
"""

from pydantic import Field

from schemas.base import Record


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


class ClassHeadSettings(Record):
    """Settings of a closed benchmark from the paper's table of hyperparameters and its text."""

    bridge_weight: float = Field(ge=0)
    """lambda_bridge: weight of the open predictor's loss."""
    decoding: ClosedDecodingConfig
    candidates: int = Field(ge=1)
    """K, candidates of the Scorer."""


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
