"""How many windows each horizon has: what the averages over horizons imply, and what success rates pin down."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from trajpilot_core.reproduction.published import (
    ATOMIC_CORPUS,
    FUTURE_METRICS,
    GOAL_MASKED,
    GOAL_SEEN,
    HORIZONS,
    Paper,
    half_digit,
)

MODELS = ("no_dropout_traj", "goal_dropout_traj", "no_dropout_no_traj", "goal_dropout_no_traj")
STEP, LARGEST = 0.0005, 0.1


@dataclass(frozen=True)
class Weights:
    """Windows by horizon up to a factor, as the overall rows of the goal-dropout tables imply them."""

    runs_per_segment: float
    """Uninterrupted runs of segments per segment: stride-1 windows number S (1 - r (H - 1))."""
    weights: dict[int, float]
    worst: float
    """Largest difference between a printed overall figure and the one that these weights give."""
    n_figures: int


def stride_one(segments: float, runs: float) -> dict[int, float]:
    """Return H -> windows of consecutive segments, each run being at least as long as the longest horizon."""
    return {h: segments - runs * (h - 1) for h in HORIZONS}


def sample_mean(values: Mapping[int, float], weights: Mapping[int, float]) -> float:
    """Average over horizons, weighted by windows."""
    return sum(values[h] * weights[h] for h in values) / sum(weights[h] for h in values)


def plain_mean(values: Mapping[int, float]) -> float:
    """Average over horizons, each counting the same."""
    return sum(values.values()) / len(values)


def implied_weights(paper: Paper) -> Weights:
    """Find the runs per segment with which the 24 overall figures of the goal-dropout tables agree best."""
    figures = [
        (paper.by_horizon(file, model, metric), paper.value(file, model, metric))
        for file in (GOAL_SEEN, GOAL_MASKED)
        for model in MODELS
        for metric in FUTURE_METRICS
    ]
    best = None
    for step in range(round(LARGEST / STEP) + 1):
        rate = step * STEP
        weights = stride_one(1.0, rate)
        worst = max(abs(sample_mean(values, weights) - overall) for values, overall in figures)
        if best is None or worst < best.worst:
            best = Weights(rate, weights, worst, len(figures))
    assert best is not None
    return best


def released_weights(paper: Paper) -> dict[int, float]:
    """Return H -> validation windows if every take were one run, from the counts of takes and segments."""
    segments, takes = (paper.text("validation", name, dataset=ATOMIC_CORPUS) for name in ("segments", "takes"))
    return stride_one(segments, takes)


def fitting_counts(percentages: list[Decimal], most: int) -> list[int]:
    """Return every number of windows up to `most` in which all percentages are whole counts, rounding considered."""
    return [n for n in range(1, most + 1) if all(_is_count(value, n) for value in percentages)]


def _is_count(percentage: Decimal, n: int) -> bool:
    exact = float(percentage) * n / 100
    return abs(100 * round(exact) / n - float(percentage)) <= half_digit(percentage) + 1e-9
