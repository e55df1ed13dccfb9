"""Bounds of the leak checks and of the scene geometry, once and dated. Reasons: docs/decisions/claims-checks.md."""

from pydantic import Field

from schemas.base import Record


class LeakConfig(Record):
    """What a leak check allows, fixed before any check was run on the worlds of the claims."""

    fixed_on: str = Field(
        "2026-11-21", pattern=r"^\d{4}-\d{2}-\d{2}$", description="Date on which these values were fixed."
    )
    errors: float = Field(
        3.0, gt=0, description="Standard errors, over dev takes, by which a probe may pass what exact inference allows."
    )
    named_by_motion: float = Field(
        50.0, gt=0, le=100, description="Percent of the labels that the head motion of one step may name."
    )
    smallest_p: float = Field(0.001, gt=0, lt=0.5, description="A permutation test fails below this p-value.")
    permutations: int = Field(
        1999, ge=99, description="Permutations of a test; with the observed order, 1 / (n + 1) is the smallest p-value."
    )
    seed: int = Field(20261121, ge=0, description="Of the permutations.")
    probe_decay: float = Field(
        0.1,
        ge=0,
        description="Weight of the mean squared weight per label in a probe's loss; chosen on training takes.",
    )
    probe_steps: int = Field(60, ge=1, description="Most iterations of a probe's fit.")
    most_palettes: int = Field(200, ge=1, description="Takes whose object colours are drawn again (24 ms a take).")
    scale_tolerance: float = Field(
        1e-4, gt=0, description="Relative difference of a mean or scale that another device's rounding can make."
    )
    choice_tolerance: float = Field(0.1, ge=0, description="Points of dev M@1 that another device's rounding can make.")
    segment_tolerance: float = Field(
        0.5, ge=0, description="Points of dev R@5 (some hundred segments) that it can make."
    )
    gate_tolerance: float = Field(1e-5, gt=0, description="Difference of a gate probability that it can make.")


class GeometryConfig(Record):
    """Which pairs of segments are compared."""

    far_steps: int = Field(5, ge=2, description="Far segments of one take lie at least this many places apart.")
    rows: int = Field(512, ge=1, description="Segments whose distances to all others are held in memory at once.")


class StudyConfig(Record):
    """The study of the paper's scorer (docs/scorer.md)."""

    shares: tuple[float, ...] = Field(
        (12.5, 25.0, 50.0, 100.0), min_length=1, description="Percent of the training queries, drawn at random once."
    )
    first: int = Field(5, ge=1, description="The best candidate among so many of the ranking's first.")
