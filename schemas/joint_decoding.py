"""Settings of the rows whose steps are decoded together."""

from pydantic import Field

from schemas.base import Record


class JointDecodingConfig(Record):
    """Rows whose steps are decoded together. Source of all: docs/decisions/methods.md."""

    shortlist: int = Field(50, ge=5)
    """Labels per step among which sequences are compared."""
    cosine_temperatures: tuple[float, ...] = Field((0.05, 0.1, 0.2, 0.4), min_length=1)
    """Grid of T for rows that score a label by a cosine, as softmax(cos / T); T is chosen on dev."""
    vote_temperatures: tuple[float, ...] = Field((1.0, 2.0, 4.0, 8.0), min_length=1)
    """The same for rows that score it by votes, as votes^(1 / T)."""
    weights: tuple[float, ...] = Field((0.0, 0.5, 1.0), min_length=1)
    """Grid of the factor of the log probabilities of moves, chosen on dev; 0: every step by itself."""
    dev_windows: int = Field(256, ge=1)
    """Most dev windows of a horizon on which both are chosen."""
