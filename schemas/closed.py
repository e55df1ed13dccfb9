"""How the logits of a closed vocabulary become rankings and sequences.

Sources: the paper (arXiv 2605.20388), table closed_vocab_hparams, for the values; D 35 and D 36 of
docs/decisions/paper-gaps.md for how they enter.
"""

from pydantic import Field

from schemas.base import Record


class ClosedDecodingConfig(Record):
    """A sequence scores sum log softmax(logits / temperature) + weight sum log P(label | label before it)."""

    weight: float = Field(0.0, ge=0)
    """Factor of the log probabilities of transitions; 0: every step by itself."""
    smoothing: float = Field(0.5, ge=0)
    """What is added to the count of every pair of labels; 0: a pair that was never seen is impossible."""
    temperature: float = Field(1.0, gt=0)
    """Divisor of the logits."""
    is_masked: bool = False
    """Only the labels that a window's scenario allows are answers."""


class ClassHeadSettings(Record):
    """What the paper's table of hyperparameters lists of a closed benchmark, and what its text adds."""

    bridge_weight: float = Field(ge=0)
    """lambda_bridge: weight of the open predictor's loss."""
    decoding: ClosedDecodingConfig
    candidates: int = Field(ge=1)
    """K of the Scorer."""


KEYSTEP_DECODING = ClosedDecodingConfig(weight=1.5, smoothing=0.5, temperature=1.0, is_masked=True)
"""Ego-Exo4D Keystep, 375 classes."""
GOALSTEP_DECODING = ClosedDecodingConfig(weight=0.05, smoothing=0.05, temperature=1.2, is_masked=True)
"""Ego4D GoalStep, 310 classes."""
EGOPER_DECODING = ClosedDecodingConfig(weight=2.5, smoothing=0.5, temperature=1.0, is_masked=False)
"""EgoPER, 57 classes."""
