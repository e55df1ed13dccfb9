"""Video encoders: the only list. Does not import torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.config import FeatureConfig
from schemas.features import VJEPA_FILES, VJEPA_SIZES, n_parameters
from schemas.places import is_plugin
from trajpilot_core.encoders.video.base import VideoEncoder, VideoEncoderSpec
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.plugins import VIDEO_ENCODERS as GROUP
from trajpilot_core.plugins import load


def _load_vjepa(cfg: FeatureConfig, device: str, scratch: Path) -> VideoEncoder:
    from trajpilot_core.encoders.video.frozen_vjepa import load_vjepa

    return load_vjepa(cfg, device)


def _load_tiny(cfg: FeatureConfig, device: str, scratch: Path) -> VideoEncoder:
    from trajpilot_core.encoders.video.tiny import load_tiny

    return load_tiny(cfg, device, scratch)


def _vjepa_fault(cfg: FeatureConfig, path: Path) -> tuple[str, str] | None:
    model = VJEPA_FILES.get(path.name, cfg.model)
    if model != cfg.model:
        return f"weights of {model}", f"set features.model={model}"
    least = n_parameters(cfg.model, "2.0") * 2  # bytes, in half precision
    if path.stat().st_size < least:
        return f"{cfg.model} has at least {least / 1e9:.2f} GB", "download it again, or set features.model"
    return None


TINY = VideoEncoderSpec("tiny V-JEPA", ("tiny",), _load_tiny, has_weights=False, n_threads=1)
"""Encoder of the demo; one thread, because decoders need the other cores."""
VJEPA = VideoEncoderSpec(
    "V-JEPA", tuple(name for name in VJEPA_SIZES if name not in TINY.models), _load_vjepa, file_fault=_vjepa_fault
)
VIDEO_ENCODERS: dict[str, VideoEncoderSpec] = {model: spec for spec in (VJEPA, TINY) for model in spec.models}
"""FeatureConfig.model -> its encoder."""


def video_encoder_spec(cfg: FeatureConfig) -> VideoEncoderSpec:
    """Return the spec of an encoder. Raises NotBuiltError: there is none; InputError: a plugin cannot be used."""
    if is_plugin(cfg.model):
        return load(cfg.model, GROUP, VideoEncoderSpec)
    if cfg.model not in VIDEO_ENCODERS:
        raise NotBuiltError(f"no video encoder has the model {cfg.model}; choose {', '.join(VIDEO_ENCODERS)}")
    return VIDEO_ENCODERS[cfg.model]


def load_video_encoder(cfg: FeatureConfig, device: str, scratch: Path) -> VideoEncoder:
    """Return the encoder; it may write weights to `scratch`. Raises CheckpointError or NotBuiltError: unusable."""
    return video_encoder_spec(cfg).load(cfg, device, scratch)


def video_encoder_files(cfg: FeatureConfig) -> tuple[str, ...]:
    """Return the absolute path of the encoder's file; empty if it generates its weights."""
    return () if cfg.checkpoint is None else (str(Path(cfg.checkpoint).absolute()),)


@contextmanager
def torch_threads(cfg: FeatureConfig) -> Iterator[None]:
    """Set the encoder's number of torch threads inside the block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(video_encoder_spec(cfg).n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
