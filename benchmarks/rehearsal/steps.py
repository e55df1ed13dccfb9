"""A step of the predictor at its real width, timed on this machine: a rehearsal trains narrow ones."""

import os
import resource
import time
from typing import NamedTuple

import torch
from torch.nn import functional as F

from benchmarks.rehearsal.memory import anonymous_bytes
from benchmarks.rehearsal.settings import TEXT_WIDTH
from schemas.config import PipelineConfig
from schemas.vjepa import VJEPA_SIZES
from trajpilot_core.training.fit_predictor import PredictorTask, new_predictor, window_loss

SEGMENTS, LABELS = 1_000, 500


class TimedStep(NamedTuple):
    """Forward and backward of one batch, without the optimiser."""

    windows: int
    cpu_s: float
    own_bytes: int
    """Peak of the process, its libraries' pages included, above the memory that it held before."""


def predictor_step(config: PipelineConfig, windows: int) -> TimedStep:
    """Time one step on random windows of the longest horizon, fp32."""
    horizon, tokens = config.ingest.max_horizon, 8 if config.features.tokens == "temporal" else 1
    features = torch.randn(SEGMENTS, tokens, VJEPA_SIZES[config.features.model].width).half()
    latents, bank = (F.normalize(torch.randn(n, TEXT_WIDTH), dim=1) for n in (SEGMENTS, LABELS))
    rows = torch.randint(SEGMENTS, (windows, horizon))
    labels, part = torch.randint(LABELS, (SEGMENTS,)), {horizon: rows}
    task = PredictorTask(features, latents, labels, bank, torch.arange(SEGMENTS), part, part, horizon)
    model = new_predictor(task, config.predictor)
    held, began = anonymous_bytes(os.getpid()), time.process_time()
    loss = window_loss(model, task, config.predictor, "traj", [(horizon, torch.arange(windows))])
    loss.backward()  # type: ignore[no-untyped-call]
    spent = time.process_time() - began
    pages = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return TimedStep(windows, spent, max(0, pages - held))
