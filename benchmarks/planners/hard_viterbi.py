"""The best sequences of a batch against SCHEMA's `viterbi_path`, which searches one window at a time, in numpy."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.planners.formula import numbers
from benchmarks.planners.ratio import Ratio, compare
from trajpilot_core.models.planners.decoding import TransitionPrior, log_scores, smoothed_prior, viterbi

SIZES = ((1165, 8, 10.0), (375, 32, 1.0))
"""Labels, windows, and how many times as long the original should take."""
HORIZON, FOLLOWERS, SMOOTHING = 8, 4, 0.5


def measure(original: Path) -> list[Ratio]:
    """Time both on the same scores and transitions, after both gave the same sequences."""
    return [one_size(viterbi_path(original), *size) for size in SIZES]


def viterbi_path(original: Path) -> Callable[..., Any]:
    """Return the original's function; its file needs numpy alone."""
    spec = importlib.util.spec_from_file_location("schema_utils", original / "SCHEMA" / "models" / "utils.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{original} holds no SCHEMA/models/utils.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.viterbi_path


def one_size(path_of: Callable[..., Any], n_labels: int, windows: int, wanted: float) -> Ratio:
    score_BHV = log_scores(numbers(windows, HORIZON, n_labels, scale=4.0))
    prior = smoothed_prior(few_followers(n_labels), SMOOTHING)

    def ours() -> list[list[int]]:
        return viterbi(score_BHV, prior).tolist()

    def theirs() -> list[list[int]]:
        return originals(path_of, score_BHV, prior)

    if ours() != theirs():
        raise ValueError(f"{n_labels} labels: the sequences differ, so that their times say nothing")
    return compare(f"best sequences, {n_labels} labels, {windows} windows, H={HORIZON}", ours, theirs, wanted)


def originals(path_of: Callable[..., Any], score_BHV: Tensor, prior: TransitionPrior) -> list[list[int]]:
    """Return what the original decodes, window by window, from probabilities in float32."""
    table_VV = prior.dense().exp().float().numpy()
    return [path_of(table_VV, np.ascontiguousarray(one_VH)).tolist() for one_VH in score_BHV.exp().float().mT.numpy()]


def few_followers(n_labels: int) -> Tensor:
    """Return counts (V, V) in which every label is followed by at most four others."""
    after_VF = ((numbers(n_labels, FOLLOWERS) + 1) / 2 * n_labels).long().clamp_max(n_labels - 1)
    return torch.zeros(n_labels, n_labels).scatter_add_(1, after_VF, torch.ones(n_labels, FOLLOWERS))
