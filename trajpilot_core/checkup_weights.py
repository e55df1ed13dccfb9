"""What the weights that a run names must be, against the files that are there. Nothing is loaded; imports no torch."""

import hashlib
import importlib.util
import json
from pathlib import Path

from schemas.config import FeatureConfig, PipelineConfig, TextConfig
from schemas.poses import Pi3Config
from schemas.vjepa import VJEPA_FILES, n_parameters
from trajpilot_core.checkup import Finding
from trajpilot_core.encoders.text import TOKENIZER, encoder_files, is_local, model_folder, weights_file
from trajpilot_core.errors import InputError
from trajpilot_core.trajectory.pi3_source import HUBS, INSTALL, WEIGHTS_FILE, local_weights

HEADS = {".pt": b"PK\x03\x04", ".pth": b"PK\x03\x04"}
"""First bytes of the formats that are read; safetensors begins with the length of its header."""
HALF_BYTES = 2
"""Of a number in the shortest arithmetic that weights come in."""
HEADER_BYTES = 100 << 20


def check_weights(config: PipelineConfig) -> list[Finding]:
    """Look for the weights that the settings name; a pinned file is read and hashed."""
    found = check_pose_weights(config.trajectories.pi3) if "pi3" in config.trajectories.sources() else []
    if config.features.model != "tiny":
        found.append(check_video_weights(config.features))
    if config.text_bank.encoder != "bag_of_words":
        found.append(check_text_weights(config.text_bank))
    return found


def check_pose_weights(cfg: Pi3Config) -> list[Finding]:
    """Look for the package of Pi3 and its weights; what a hub has is not asked."""
    instead = "or choose trajectories.source=odometry"
    found = []
    if importlib.util.find_spec("pi3") is None:
        found.append(Finding("package pi3", "installed", "it is not", "bad", f"{INSTALL}, {instead}"))
    what, expected = "weights of trajectories", cfg.model
    path, hub = local_weights(cfg), cfg.hub or HUBS[cfg.model]
    if path is None and cfg.revision is not None:
        return [*found, Finding(what, expected, f"{hub} at {cfg.revision}: only a run finds out", "note")]
    if path is None:
        todo = f"set trajectories.pi3.weights to a folder with {WEIGHTS_FILE} of {hub} (docs/models.md), {instead}"
        return [*found, Finding(what, expected, "not named", "bad", todo)]
    if not path.is_file():
        return [*found, Finding(what, expected, str(path), "bad", f"it is not there; download {WEIGHTS_FILE} of {hub}")]
    fault = format_fault(path)
    if fault is not None:
        return [*found, Finding(what, expected, f"{path.name}: {fault}", "bad", "download it again")]
    return [*found, pinned(what, expected, path, cfg.weights_sha256, "trajectories.pi3.weights_sha256")]


def check_video_weights(cfg: FeatureConfig) -> Finding:
    """Look at the V-JEPA checkpoint: is it there, whole, of this model, and the one that is pinned?"""
    what, expected = "weights of features", f"V-JEPA for {cfg.model}"
    if cfg.checkpoint is None:
        return Finding(what, expected, "not named", "bad", "set features.checkpoint to the weights (docs/models.md)")
    path = Path(cfg.checkpoint)
    if not path.is_file():
        return Finding(what, expected, str(path), "bad", "it is not there; docs/models.md gives the address")
    size, least = path.stat().st_size, n_parameters(cfg.model, "2.0") * HALF_BYTES
    known = {one.file: one for one in VJEPA_FILES}.get(path.name)
    told = f"{path.name}, {size / 1e9:.2f} GB"
    if known is not None and known.model != cfg.model:
        return Finding(what, expected, f"{told}: of {known.model}", "bad", f"set features.model={known.model}")
    fault = format_fault(path)
    if fault is None and size < least:
        fault = f"{cfg.model} alone takes {least / 1e9:.2f} GB"
    if fault is not None:
        return Finding(what, expected, f"{told}: {fault}", "bad", "download it again, or set features.model")
    return pinned(what, expected, path, cfg.checkpoint_sha256, "features.checkpoint_sha256")


def pinned(what: str, expected: str, path: Path, sha256: str | None, setting: str) -> Finding:
    """Say whether a file is the one that a setting pins, by its digest."""
    told = f"{path.name}, {path.stat().st_size / 1e9:.2f} GB"
    if sha256 is None:
        return Finding(what, expected, f"{told}; not pinned by {setting}", "ok")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest == sha256:
        return Finding(what, expected, f"{told}; sha256 as pinned", "ok")
    return Finding(what, f"sha256 {sha256[:12]}", f"{path.name}: {digest}", "bad", "download it again")


def check_text_weights(cfg: TextConfig) -> Finding:
    """Look at the text encoder's folder; what a hub has is not asked."""
    what, expected = "weights of text_bank", cfg.encoder
    if cfg.encoder == "transformers" and cfg.model is not None and not is_local(cfg):
        return Finding(what, expected, f"{cfg.model} at {cfg.revision}: only a run finds out", "note")
    try:
        files = [Path(path) for path in encoder_files(cfg)]
        folder = model_folder(cfg)
        weights = [weights_file(folder)] if cfg.encoder == "egovlpv2" else []
    except InputError as error:
        return Finding(what, expected, str(cfg.model or "not named"), "bad", str(error))
    weights = weights or [path for path in files if path.suffix == ".safetensors"]
    names = {path.name for path in files}
    missing = [name for name in TOKENIZER if name not in names] if cfg.encoder == "egovlpv2" else []
    if not weights or missing:
        lacking = ", ".join(missing) or "model.safetensors"
        return Finding(what, expected, f"no {lacking} in {cfg.model}", "bad", "put it there (docs/models.md)")
    faults = [f"{path.name}: {fault}" for path in weights if (fault := format_fault(path)) is not None]
    if faults:
        return Finding(what, expected, "; ".join(faults), "bad", "download it again")
    return Finding(what, expected, ", ".join(path.name for path in weights), "ok")


def format_fault(path: Path) -> str | None:
    """Say what is wrong with the beginning of a file of weights, for its suffix; None: nothing."""
    with path.open("rb") as file:
        head = file.read(8)
        if path.suffix != ".safetensors":
            return None if head.startswith(HEADS.get(path.suffix, HEADS[".pt"])) else "no zip file of torch"
        length = int.from_bytes(head, "little")
        if length > min(HEADER_BYTES, path.stat().st_size):
            return "no safetensors file"
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return "no safetensors file"
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return None if 8 + length + max(ends, default=0) == path.stat().st_size else "not whole"
