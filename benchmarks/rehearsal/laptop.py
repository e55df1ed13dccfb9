"""The rehearsal of a recipe that two cores train: few epochs at the full size, and the hours that follow from them."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional as F

from benchmarks.rehearsal.runner import Measured
from benchmarks.rehearsal.settings import Part
from benchmarks.rehearsal.sizes import TEST_SHARE, Sizes
from benchmarks.rehearsal.steps import SEGMENTS
from benchmarks.rehearsal.table import rows_of
from schemas.config import PipelineConfig
from trajpilot_core.data.cross_fitting import chains, trained_variants
from trajpilot_core.engine.sizes import feature_shape, paper_sizes
from trajpilot_core.training.fit_predictor import PredictorTask, measurer, new_predictor, window_loss

TRAINED = ("alignment", "predictor", "scorer")
"""Stages of such a recipe that train; each names its settings in PipelineConfig."""
CUT = ("alignment", "predictor")
"""Those of which few epochs are run; what takes long in the scorer is to make its queries, which comes once."""
UP_TO_TRAINED = ("text_bank", "alignment", "predictor", "scorer")
CORES = 2


def of_epochs(parts: Sequence[Part], epochs: int) -> tuple[Part, ...]:
    """Return the parts up to the last training; all but the scorer's have so many epochs, and none stops early."""

    def cut(config: PipelineConfig) -> PipelineConfig:
        kept = {name: getattr(config, name) for name in CUT}
        return config.replace(
            **{name: own.replace(train=own.train.replace(epochs=epochs, patience=None)) for name, own in kept.items()}
        )

    return tuple(
        part._replace(
            config=cut(part.config),
            stages=part.stages if part.way == "store" else UP_TO_TRAINED,
            note=f"{part.note}; {epochs} epochs",
        )
        for part in parts
    )


def trainings(config: PipelineConfig) -> dict[str, int]:
    """Return stage -> how many models it trains."""
    known, seeds = chains(config.alignment.folds), len(config.alignment.seeds)
    predictors = sum(len(trained_variants(chain, config.predictor)) for chain in known)
    return {"alignment": seeds * len(known), "predictor": seeds * predictors, "scorer": seeds}


def queries(config: PipelineConfig, share: float) -> float:
    """Return how many queries the scorer has at a share of the takes: held out and of dev, each up to its limit."""
    windows, limit = paper_sizes(config).windows, config.scorer.max_queries
    held, dev = share * windows["train"] * config.alignment.holdout_share, share * windows["dev"]
    return min(limit, held) + dev / math.ceil(dev / limit)


def at_most_hours(
    measured: Sequence[Measured], config: PipelineConfig, epochs: int, share: float = 1.0
) -> dict[str, float]:
    """Return stage -> hours of two cores at most: what comes once, such as reading, is counted in every epoch.

    Trainings of a stage run two at a time with one thread each, stages follow each other; time goes with the takes,
    that of the scorer with its queries, of which there is a most.

    Args:
        measured: of a run whose trainings had `epochs` epochs.
        config: the recipe, with its own epochs.
        epochs: of the run.
        share: of the takes and segments that it had, with all labels, among which every epoch ranks.
    """
    models, cpu_s = trainings(config), {one.stage: one.cpu_s for one in measured}
    found = {}
    for name in (name for name in TRAINED if name in cpu_s):
        rounds = math.ceil(models[name] / CORES)
        times = max(1, math.ceil(getattr(config, name).train.epochs / epochs)) if name in CUT else 1
        larger = queries(config, 1.0) / queries(config, share) if name == "scorer" else 1 / share
        found[name] = cpu_s[name] / models[name] * rounds * times * larger / 3600
    return found


def hours_table(found: dict[str, float], config: PipelineConfig) -> str:
    """Return these hours as a table."""
    models = trainings(config)
    rows = [
        [name, str(models[name]), str(getattr(config, name).train.epochs), f"{hours:.2f}"]
        for name, hours in found.items()
    ]
    return f"Derived, at most {sum(found.values()):.2f} hours of training on {CORES} cores.\n\n" + rows_of(
        ["stage", "models", "epochs", "hours at most"], rows
    )


class TimedEpoch(NamedTuple):
    """One epoch of one predictor of a small recipe, from batches of its own sizes."""

    step_s: float
    """CPU seconds of a step with the optimiser, mean over the horizons."""
    measured_s: float
    """CPU seconds in which one window of dev, or of the training sample, is ranked among all labels."""
    windows: int
    """That are fitted."""
    ranked: int
    """Windows that are ranked after every epoch."""
    batch: int

    @property
    def fitting_s(self) -> float:
        """Derived CPU seconds of the steps of an epoch."""
        return math.ceil(self.windows / self.batch) * self.step_s

    @property
    def ranking_s(self) -> float:
        """Derived CPU seconds of the figures after an epoch."""
        return self.ranked * self.measured_s


def timed_epoch(config: PipelineConfig, sizes: Sizes, repeats: int = 2) -> TimedEpoch:
    """Time training steps and the ranking of dev at the widths, batch and labels of a recipe, on random tensors."""
    cfg, horizons = config.predictor, range(config.ingest.min_horizon, config.ingest.max_horizon + 1)
    text, batch = config.text_bank.bag_width, cfg.train.batch
    rows = {h: torch.randint(SEGMENTS, (batch, h)) for h in horizons}
    vectors = torch.randn(SEGMENTS, 1, feature_shape(config.features)[0]).half()
    latents, bank = (F.normalize(torch.randn(n, text), dim=1) for n in (SEGMENTS, sizes.labels))
    labels = torch.randint(sizes.labels, (SEGMENTS,))
    task = PredictorTask(vectors, latents, labels, bank, torch.arange(SEGMENTS), rows, rows, max(horizons))
    model = new_predictor(task, cfg)
    optimiser = torch.optim.AdamW(model.parameters(), lr=cfg.train.lr)
    began = time.process_time()
    for horizon in [*horizons] * repeats:
        optimiser.zero_grad()
        window_loss(model, task, cfg, "traj", [(horizon, torch.arange(batch))]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    step_s = (time.process_time() - began) / (repeats * len(horizons))
    measure, began = measurer(model.eval(), task, "traj"), time.process_time()
    with torch.no_grad():
        for _ in range(repeats):
            measure()
    measured_s = (time.process_time() - began) / (repeats * len(horizons) * batch)
    windows = sum(sizes.segments - (h - 1) * sizes.takes for h in horizons)
    dev, test = (round(share * windows) for share in (sizes.dev_share, TEST_SHARE))
    return TimedEpoch(step_s, measured_s, windows - dev - test, 2 * dev, batch)
