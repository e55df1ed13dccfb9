"""Every row of the tables on a small corpus, predicted once per test module."""

from pathlib import Path

import numpy as np
from planning_fixture import SCORER, model_files, planning_data

from schemas.config import EvaluationConfig
from trajpilot_core.evaluation.rows import predict_rows
from trajpilot_core.retrieval.bank import chain_view
from trajpilot_core.training.chains import ModelFile, chains_of
from trajpilot_core.training.scorer_file import pack_scorers
from trajpilot_core.training.scorer_fit import FittedSeed, fit_scorers

CONFIG = EvaluationConfig(shuffles=3, headroom_pools=(1, 3, 5, 64), bootstrap=100)
SEEDS = (0, 1)


def quiet(done, total, what):
    """Ignore progress."""


def with_threshold(fitted, threshold):
    """The same scorers of one seed, Scorer+ included, with another threshold of the gate."""
    scorers = {v: f._replace(decision=f.decision.replace(threshold=threshold)) for v, f in fitted.scorers.items()}
    plus = fitted.plus and fitted.plus._replace(decision=fitted.plus.decision.replace(threshold=threshold))
    return FittedSeed(scorers, plus)


def scorers_of(data, files, folder: Path, config=SCORER, threshold=None):
    fitted = {seed: fit_scorers(data, files, config, seed, folder / str(seed), "cpu", quiet) for seed in files.seeds}
    if threshold is not None:
        fitted = {seed: with_threshold(of_seed, threshold) for seed, of_seed in fitted.items()}
    return ModelFile(*pack_scorers(fitted, config))


def make_rows(folder: Path):
    """Data, model files, scorers, and the tables that `predict_rows` returns."""
    data = planning_data()
    files = model_files(data, seeds=SEEDS)
    scorers = scorers_of(data, files, folder, threshold=0.5)
    return data, files, scorers, predict_rows(data, files, scorers, CONFIG, "test", "cpu", quiet)


def view_of(made, seed=0):
    data, files, _, _ = made
    return chain_view(data, files, chains_of(data)[0], seed, "cpu")


def chosen(made, variant, seed=0, horizon=4):
    """Decoded label indices (N, H) of one row, and its table."""
    data, table = made[0], made[3][0]
    rows = [r for r in table.to_pylist() if (r["variant"], r["seed"], r["horizon"]) == (variant, seed, horizon)]
    index = {label: i for i, label in enumerate(data.label_ids)}
    return np.array([index[r["decoded_id"]] for r in rows]).reshape(-1, horizon), rows
