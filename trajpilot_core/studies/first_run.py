"""How long stages would take that never ran below a root: counted operations over rates that are measured now.

An estimate and no measurement: it is printed as a range, and docs/operations.md says how far off it was. Stages without
an encoder or a training have none: what they cost depends on files that were not looked at yet.
"""

import statistics
import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn

from schemas.config import PipelineConfig
from schemas.plugins import is_plugin
from trajpilot_core.data.cross_fitting import chains, trained_variants
from trajpilot_core.encoders.video.throughput import matrix_tera_hz, n_operations
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.errors import InputError
from trajpilot_core.studies.recipe_search import FLOPS, Searched, block_weights, work_of

ENCODER_SHARE = 0.5
"""Of the rate of the best matrix product, what a frozen encoder with its decoding reaches (docs/decisions/vjepa.md)."""
OFF_BY = 3.0
"""A range goes from a third of the estimate to three times of it."""
PROBE_WIDTH, PROBE_TOKENS, PROBE_BATCH, PROBE_STEPS = 96, 12, 128, 5
"""The training step that is timed: two blocks of a small transformer."""


class MachineRates(NamedTuple):
    """What a machine does, in operations per second: two for a multiplication and addition."""

    product: float
    """The best matrix product, fp32 on a CPU and bf16 on a GPU."""
    training: float
    """A training step of a small transformer, by `FLOPS` for every multiplication on the way forward."""


def probe_machine(device: str) -> MachineRates:
    """Time matrix products and a training step on a device; a second or two."""
    on_gpu = device.startswith("cuda")
    product = 1e12 * matrix_tera_hz(device, torch.bfloat16 if on_gpu else torch.float32)
    layer = nn.TransformerEncoderLayer(PROBE_WIDTH, 4, 4 * PROBE_WIDTH, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x_BTD = torch.randn(PROBE_BATCH, PROBE_TOKENS, PROBE_WIDTH, device=device)
    times_s = []
    for _ in range(PROBE_STEPS + 1):
        began = time.perf_counter()
        model(x_BTD).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - began)
    multiplied = 2 * block_weights(PROBE_WIDTH, 4 * PROBE_WIDTH) * PROBE_TOKENS * PROBE_BATCH
    return MachineRates(product, FLOPS * multiplied / statistics.median(times_s[1:]))


def first_run_seconds(config: PipelineConfig, sizes: CorpusSizes, rates: MachineRates) -> dict[str, float]:
    """Return stage -> seconds on one device, of the stages that encode or train; every epoch counted.

    Args:
        config: of the run.
        sizes: of the corpus, as far as they are known.
        rates: of the machine.

    Raises:
        InputError: a rate is not positive, so that nothing follows from it.
    """
    if min(rates) <= 0:
        raise InputError(f"the machine was timed at {rates}; rates must be positive: try again when it is less busy")
    found = {name: _training_s(one, n, sizes, rates.training) for name, (one, n) in trainings_of(config).items()}
    features = config.features
    if features.source != "released" and not is_plugin(features.model):
        each = n_operations(features.model, features.n_frames, features.size_px)
        found["features"] = sizes.segments * each / (ENCODER_SHARE * rates.product)
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def trainings_of(config: PipelineConfig) -> Mapping[str, tuple[Searched, int]]:
    """Return stage -> its settings and how many models it trains."""
    every = chains(config.alignment.folds)
    predictors = sum(len(trained_variants(chain, config.predictor)) for chain in every)
    scorers = 1 + len(config.scorer.ablations)
    n_seeds = len(config.alignment.seeds)
    return {
        "alignment": (config.alignment, len(every) * n_seeds),
        "predictor": (config.predictor, predictors * n_seeds),
        "scorer": (config.scorer, scorers * n_seeds),
        "attention": (config.attention, len(config.attention.variants) * n_seeds),
    }


def _training_s(config: Searched, n_models: int, sizes: CorpusSizes, operations_hz: float) -> float:
    """Return the seconds of all epochs of all trainings of a stage."""
    work = work_of(config, sizes)
    return n_models * FLOPS * work.weights * work.samples * config.train.epochs / operations_hz
