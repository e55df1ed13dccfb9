"""What SCHEMA's `viterbi_path` decodes, with and without smoothing; one label is never followed by anything."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from benchmarks.planners.formula import numbers
from benchmarks.planners.hard_viterbi import originals, viterbi_path
from trajpilot_core.models.planners.decoding import TransitionPrior, log_scores, smoothed_prior

CASES = {"v12_h3": (12, 3, 0.5), "v12_h5_unsmoothed": (12, 5, 0.0), "v40_h8": (40, 8, 0.05)}
"""Name -> labels, horizon, smoothing."""
WINDOWS = 6


def inputs(name: str) -> tuple[Tensor, TransitionPrior]:
    """Return log scores (B, H, V), and the transitions, of a case."""
    n_labels, horizon, smoothing = CASES[name]
    counts = (6 * numbers(n_labels, n_labels, phase=0.4) - 3).round().clamp(min=0)
    counts[2] = 0
    return log_scores(numbers(WINDOWS, horizon, n_labels, scale=3.0)), smoothed_prior(counts, smoothing)


def fixtures(original: Path) -> Mapping[str, list[list[int]]]:
    """Return the sequences of every case, (B, H)."""
    return {name: originals(viterbi_path(original), *inputs(name)) for name in CASES}
