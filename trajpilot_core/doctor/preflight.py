"""Checks what the stages of a run need from outside the store, before the first of them starts.

A stage that runs for hours can come before one with wrong weights. Everything here takes seconds.
"""

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from schemas.artifacts import Manifest
from schemas.config import FeatureConfig, PipelineConfig, RunOptions, TextConfig
from schemas.vjepa import VJEPA_SIZES, n_parameters
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.doctor.weights import check_released_files, check_weights
from trajpilot_core.encoders.text.registry import load_text_encoder, text_encoder_spec
from trajpilot_core.encoders.video.registry import load_video_encoder, video_encoder_spec
from trajpilot_core.engine.resolve import resolve_config, resolve_device
from trajpilot_core.errors import InputError, TrajPilotError
from trajpilot_core.stages import EVERY_STAGE, stages_of
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.history import current_manifests

SENTENCE = "C opens the door"
MOST_ON_CPU = 400_000_000
"""Parameters of a video encoder that a CPU loads and tests in seconds."""


def require_outside(config: PipelineConfig, run: RunOptions, names: Collection[str]) -> None:
    """Refuse a run that would fail later because weights are missing or wrong.

    Args:
        config: of the run.
        run: of the run.
        names: the selected stages.

    Raises:
        InputError: lists everything that stops the run, and how to fix it.
    """
    bad = [one for one in preflight(config, run, names) if one.verdict == "bad"]
    if bad:
        faults = "; ".join(f"{one.what}: {one.found}, expected {one.expected}; {one.todo}" for one in bad)
        raise InputError(f"not started, because the run would fail later: {faults}")


def preflight(config: PipelineConfig, run: RunOptions, names: Collection[str]) -> list[HealthFinding]:
    """Check what the selected stages without an output need: weights, and one trial of each encoder.

    Args:
        config: of the run.
        run: of the run.
        names: the selected stages.
    """
    stages = stages_of(config)
    outputs = current_manifests(open_folder(run.root, run.protocols), stages)
    wanted = [name for name in stages if name in names and not is_made(name, outputs, config, run)]
    found = check_weights(config, wanted)
    found += check_released_files(config, run.data_root) if "features" in wanted else []
    if not any(one.verdict == "bad" for one in found):
        found += try_encoders(config, run.device, wanted)
    return found


def is_made(name: str, outputs: Mapping[str, Manifest | None], config: PipelineConfig, run: RunOptions) -> bool:
    """Return whether a stage has an output of the same settings, for which its encoder has worked before."""
    made = outputs.get(name)
    return made is not None and made.config == resolve_config(EVERY_STAGE[name], config, run).content()


def try_encoders(config: PipelineConfig, device: str, names: Collection[str]) -> list[HealthFinding]:
    """Load each encoder of some stages that has weights, and encode one clip or one sentence with it."""
    found = []
    has_video = video_encoder_spec(config.features).has_weights or config.features.checkpoint is not None
    if "features" in names and has_video and config.features.source == "encoded":
        found.append(try_video(config.features, resolve_device(device)))
    if "text_bank" in names and text_encoder_spec(config.text_bank).needs_model:
        found.append(try_text(config.text_bank, resolve_device(device)))
    return found


def try_video(cfg: FeatureConfig, device: str) -> HealthFinding:
    """Encode one clip of noise with the video encoder; a large encoder is not tried on a CPU."""
    what, expected = "trial of features", f"one clip through {cfg.model}"
    if device == "cpu" and cfg.model in VJEPA_SIZES and n_parameters(cfg.model, "2.0") > MOST_ON_CPU:
        return HealthFinding(what, expected, "not tried: it takes minutes on a CPU", "note")
    clip = np.random.default_rng(0).integers(0, 256, (1, cfg.n_frames, cfg.size_px, cfg.size_px, 3), np.uint8)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            encoder = load_video_encoder(cfg, device, Path(scratch))
            vector = encoder.embed(clip)
    except TrajPilotError as error:
        return HealthFinding(what, expected, str(error), "bad", "set features.checkpoint (docs/models.md)")
    if vector.shape != (1, encoder.width) or not np.isfinite(vector.astype(np.float32)).all():
        todo = "download the weights again, or set features.model to theirs"
        return HealthFinding(what, expected, "numbers that are not finite", "bad", todo)
    return HealthFinding(what, expected, f"{encoder.width} finite numbers ({video_encoder_spec(cfg).title})", "ok")


def try_text(cfg: TextConfig, device: str) -> HealthFinding:
    """Encode one sentence with the text encoder: weights, layout and tokenizer."""
    what, expected = "trial of text_bank", f"one sentence through {text_encoder_spec(cfg).name}"
    try:
        vector = load_text_encoder(cfg, device).embed([SENTENCE])
    except (TrajPilotError, OSError, ValueError) as error:
        return HealthFinding(what, expected, str(error), "bad", "set text_bank.model (docs/models.md)")
    return HealthFinding(what, expected, f"{vector.shape[1]} finite numbers", "ok")
