"""Checks what stages need from outside the store before the first one starts: weights, not loaded, and servers.

A stage that runs for hours can come before one with wrong weights. Everything here takes seconds. Imports no torch.
"""

import hashlib
import importlib.util
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from schemas.artifacts import Manifest
from schemas.config import FeatureConfig, PipelineConfig, RunOptions, TextConfig
from schemas.features import VJEPA_SIZES, n_parameters
from schemas.poses import Pi3Config
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.corpora.released import RELEASED
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.encoders.text.base import model_folder
from trajpilot_core.encoders.text.registry import load_text_encoder, text_encoder_spec
from trajpilot_core.encoders.video.registry import load_video_encoder, video_encoder_spec
from trajpilot_core.engine.key import resolve_config
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.errors import InputError, StoreError, TrajPilotError
from trajpilot_core.poses.sources.pi3 import HUBS, INSTALL, WEIGHTS_FILE, local_weights
from trajpilot_core.stages import EVERY_STAGE, stages_of
from trajpilot_core.store.corpus_files import file_names, open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.reading import current_manifests

ZIP = b"PK\x03\x04"
"""First bytes of a torch file."""
READERS = ("trajectories", "video_motions", "features", "probe", "text_bank")
"""Stages that load weights from outside the store."""
MOST_ON_CPU = 400_000_000
"""Parameters of a video encoder that a CPU loads and tests in seconds."""


def check_weights(config: PipelineConfig, stages: Collection[str] = READERS) -> list[HealthFinding]:
    """Check the weights that the settings of some stages name; a pinned file is read and hashed."""
    motions = [config.trajectories] if "trajectories" in stages else []
    has_second = config.pose_sources.is_asked or config.action_token.is_asked
    motions += [config.video_motions] if "video_motions" in stages and has_second else []
    weights = dict.fromkeys(cfg.pi3 for cfg in motions if cfg.source == "pi3")
    findings = [finding for cfg in weights for finding in check_pose_weights(cfg)]
    wanted = [f"poses of {cfg.source}" for cfg in motions if cfg.source != "aria"]
    is_encoded = "features" in stages and config.features.source == "encoded"
    wanted += ["features.source=encoded"] if is_encoded else []
    if config.ingest.video == "none" and wanted:
        todo = (
            "set ingest.video=downscaled_448 and fetch the videos, or features.source=released and "
            "trajectories.source=aria (on EPIC-KITCHENS-100, which has no poses, action_token.is_asked=false)"
        )
        read = f"read for {', '.join(wanted)}"
        findings.append(HealthFinding("videos", "none (ingest.video=none)", read, "bad", todo))
    if is_encoded and video_encoder_spec(config.features).has_weights:
        findings.append(check_video_weights(config.features))
    probe = config.probe.encoder if config.probe.tokens == "full" and "probe" in stages else None
    if probe is not None and video_encoder_spec(probe).has_weights:
        findings.append(check_video_weights(probe, "probe.encoder"))
    if "text_bank" in stages and text_encoder_spec(config.text_bank).needs_model:
        findings.append(check_text_weights(config.text_bank))
    return findings


def check_released(config: PipelineConfig, data_root: str) -> list[HealthFinding]:
    """Check whether the corpus publishes the configured features, and for any of their files below its root."""
    features, spec, what = config.features, spec_of(config.ingest.corpus), "released features"
    if features.source != "released":
        return []
    known = [released_set.name for released_set in spec.released]
    if features.released not in known or config.pose_sources.is_asked:
        todo = "set features.source=encoded: shots, pose sources and other corpora do not support released features"
        expected = f"read of {spec.title}: {', '.join(known) or 'none'}"
        return [HealthFinding(what, expected, features.released, "bad", todo)]
    released = RELEASED[features.released]
    expected = f"files ...{released.suffix} in {' or '.join(released.folders)}"
    todo = f"fetch them: {released.fetch.replace('ROOT', data_root)}"
    try:
        corpus = open_corpus(data_root)
        names = [name for place in released.folders for name in file_names(corpus, place)]
    except (InputError, StoreError, OSError) as error:
        return [HealthFinding(what, expected, str(error), "bad", todo)]
    n_files = sum(name.endswith(released.suffix) for name in names)
    return [HealthFinding(what, expected, f"{n_files:,}", "ok" if n_files else "bad", "" if n_files else todo)]


def check_pose_weights(cfg: Pi3Config) -> list[HealthFinding]:
    """Check for the package pi3 and its weights."""
    instead = "or choose trajectories.source=odometry"
    findings = []
    if importlib.util.find_spec("pi3") is None:
        findings.append(HealthFinding("package pi3", "installed", "not installed", "bad", f"{INSTALL}, {instead}"))
    what, expected = "weights of trajectories", cfg.model
    path, hub = local_weights(cfg), HUBS[cfg.model]
    if path is None:
        todo = f"set trajectories.pi3.weights to a folder with {WEIGHTS_FILE} of {hub} (docs/models.md), {instead}"
        return [*findings, HealthFinding(what, expected, "not set", "bad", todo)]
    if not path.is_file():
        todo = f"file not found; download {WEIGHTS_FILE} of {hub}"
        return [*findings, HealthFinding(what, expected, str(path), "bad", todo)]
    return [*findings, _whole(what, expected, path, cfg.weights_sha256, "trajectories.pi3.weights_sha256")]


def check_video_weights(cfg: FeatureConfig, setting: str = "features") -> HealthFinding:
    """Check that the video encoder's checkpoint exists, is complete, is of this model, and is the pinned one."""
    spec = video_encoder_spec(cfg)
    what, expected = f"weights of {setting}", f"{spec.title} for {cfg.model}"
    if cfg.checkpoint is None:
        todo = f"set {setting}.checkpoint to the weights (docs/models.md)"
        return HealthFinding(what, expected, "not set", "bad", todo)
    path = Path(cfg.checkpoint)
    if not path.is_file():
        return HealthFinding(what, expected, str(path), "bad", "file not found; docs/models.md gives its address")
    fault = None if format_fault(path) else spec.file_fault(cfg, path)
    if fault is not None:
        return HealthFinding(what, expected, f"{_named(path)}: {fault[0]}", "bad", fault[1])
    return _whole(what, expected, path, cfg.checkpoint_sha256, f"{setting}.checkpoint_sha256")


def _named(path: Path) -> str:
    """Return the name of a file and its size."""
    return f"{path.name}, {path.stat().st_size / 1e9:.2f} GB"


def _whole(what: str, expected: str, path: Path, sha256: str | None, setting: str) -> HealthFinding:
    """Check that a file of weights is complete, and has the digest that a setting pins."""
    fault = format_fault(path)
    if fault is not None:
        return HealthFinding(what, expected, f"{_named(path)}: {fault}", "bad", "download it again")
    if sha256 is None:
        return HealthFinding(what, expected, f"{_named(path)}; not pinned by {setting}", "ok")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest == sha256:
        return HealthFinding(what, expected, f"{_named(path)}; sha256 as pinned", "ok")
    return HealthFinding(what, f"sha256 {sha256[:12]}", f"{path.name}: {digest}", "bad", "download it again")


def check_text_weights(cfg: TextConfig) -> HealthFinding:
    """Check the text encoder's folder."""
    spec = text_encoder_spec(cfg)
    what, expected = "weights of text_bank", spec.name
    try:
        folder = model_folder(cfg)
        weights = spec.weights(folder)
    except InputError as error:
        return HealthFinding(what, expected, str(cfg.model or "not set"), "bad", str(error))
    missing = [name for name in spec.tokenizer if not (folder / name).is_file()]
    if not weights or missing:
        lacking = ", ".join(missing) or "model.safetensors"
        return HealthFinding(what, expected, f"no {lacking} in {cfg.model}", "bad", "put it there (docs/models.md)")
    faults = [f"{path.name}: {fault}" for path in weights if (fault := format_fault(path)) is not None]
    if faults:
        return HealthFinding(what, expected, "; ".join(faults), "bad", "download it again")
    return HealthFinding(what, expected, ", ".join(path.name for path in weights), "ok")


def format_fault(path: Path) -> str | None:
    """Return what is wrong with the format of a file of weights, judged by its suffix and header; None: nothing."""
    if path.suffix != ".safetensors":
        with path.open("rb") as file:
            return None if file.read(len(ZIP)) == ZIP else "not a torch zip file"
    try:
        with safe_open(path, framework="np"):
            return None
    except SafetensorError as error:
        return f"not a whole safetensors file ({error})"


def require_outside(config: PipelineConfig, run: RunOptions, names: Collection[str]) -> None:
    """Refuse a run that would fail later for its weights. Raises InputError: lists what stops it, and how to fix it."""
    bad = [finding for finding in preflight(config, run, names) if finding.verdict == "bad"]
    if bad:
        faults = "; ".join(
            f"{finding.what}: {finding.found}, expected {finding.expected}; {finding.todo}" for finding in bad
        )
        raise InputError(f"not started, because the run would fail later: {faults}")


def preflight(config: PipelineConfig, run: RunOptions, names: Collection[str]) -> list[HealthFinding]:
    """Check what the selected stages without an output need: weights, and one trial of each encoder."""
    stages = stages_of(config)
    outputs = current_manifests(open_folder(run.root), stages)
    wanted = [name for name in stages if name in names and not is_made(name, outputs, config, run)]
    findings = check_weights(config, wanted)
    findings += check_released(config, run.data_root) if "features" in wanted else []
    if any(finding.verdict == "bad" for finding in findings):
        return findings
    has_video = video_encoder_spec(config.features).has_weights or config.features.checkpoint is not None
    if "features" in wanted and has_video and config.features.source == "encoded":
        findings.append(try_video(config.features, resolve_device(run.device)))
    if "text_bank" in wanted and text_encoder_spec(config.text_bank).needs_model:
        findings.append(try_text(config.text_bank, resolve_device(run.device)))
    return findings


def is_made(name: str, outputs: Mapping[str, Manifest | None], config: PipelineConfig, run: RunOptions) -> bool:
    """Return whether a stage has an output of the same settings, for which its encoder has worked before."""
    output = outputs.get(name)
    return output is not None and output.config == resolve_config(EVERY_STAGE[name], config, run).content()


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
        vector = load_text_encoder(cfg, device).embed(["C opens the door"])
    except (TrajPilotError, OSError, ValueError) as error:
        return HealthFinding(what, expected, str(error), "bad", "set text_bank.model (docs/models.md)")
    return HealthFinding(what, expected, f"{vector.shape[1]} finite numbers", "ok")
