"""Bounds of the leak checks, kinds of pairs of segments, the study of the scorer: each stated once, with its date.

Reasons: docs/decisions/claims-checks.md.
"""

from pydantic import Field

from schemas.base import Record


class LeakConfig(Record):
    """What a leak check allows; fixed before any check was run on the worlds of the claims."""

    fixed_on: str = Field("2026-11-21", pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Date on which these values were fixed."""
    errors: float = Field(3.0, gt=0)
    """Standard errors, over dev takes, by which a probe may exceed what exact inference allows."""
    named_by_motion: float = Field(50.0, gt=0, le=100)
    """Largest percentage of the labels that may be recognised from the head motion of one step."""
    smallest_p: float = Field(0.001, gt=0, lt=0.5)
    """A permutation test fails below this p-value."""
    permutations: int = Field(1999, ge=99)
    """Permutations of a test; with the observed order, 1 / (n + 1) is the smallest p-value."""
    seed: int = Field(20261121, ge=0)
    """Of the permutations."""
    probe_decay: float = Field(0.1, ge=0)
    """Factor of the mean squared weight per label in a probe's loss; chosen on training takes."""
    probe_steps: int = Field(60, ge=1)
    """Most iterations of a probe's fit."""
    most_palettes: int = Field(200, ge=1)
    """Takes whose object colours are sampled again (24 ms a take)."""
    scale_tolerance: float = Field(1e-4, gt=0)
    """Relative difference of a mean or scale that rounding on another device can cause."""
    choice_tolerance: float = Field(0.1, ge=0)
    """Points of dev M@1 that rounding on another device can cause."""
    segment_tolerance: float = Field(0.5, ge=0)
    """Points of dev R@5 (a few hundred segments) that it can cause."""
    gate_tolerance: float = Field(1e-5, gt=0)
    """Difference of a gate probability that it can cause."""


class GeometryConfig(Record):
    """Which pairs of segments are compared."""

    far_steps: int = Field(5, ge=2, description="Far segments of one take lie at least this many places apart.")


class StudyConfig(Record):
    """The study of the paper's scorer (docs/scorer.md)."""

    shares: tuple[float, ...] = Field((25.0, 100.0), min_length=1)
    """Percentages of the training queries, sampled at random once."""
    first: int = Field(5, ge=1)
    """The best candidate is sought among this many from the top of the ranking."""
