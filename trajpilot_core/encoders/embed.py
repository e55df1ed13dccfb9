"""Frames to appearance vectors: normalise, encode in batches of one shape, pool."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.base import fingerprint
from schemas.config import FeatureConfig
from schemas.vjepa import TUBELET
from trajpilot_core.encoders.tiny import write_tiny_checkpoint
from trajpilot_core.encoders.vjepa import SIZES, VjepaEncoder
from trajpilot_core.encoders.vjepa_checkpoint import load_encoder
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.store.files import naming_failures

log = logging.getLogger("trajpilot")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of RGB in 0..1. Source: V-JEPA 2's public evaluation code, and the paper's appendix on preprocessing."""
RESIZE = {
    "swscale": "upright, squashed to a square by swscale bilinear, antialiased, 4:2:0 before RGB",
    "antialiased": "upright, RGB before it is squashed to a square, bilinear, antialiased as in PIL",
}
"""FeatureConfig.resize -> what is done."""


@dataclass
class Embedder:
    """A loaded encoder and how it is fed; `batch` shrinks when memory runs out."""

    encoder: VjepaEncoder
    config: FeatureConfig
    device: torch.device
    batch: int
    digest: str
    """Over the weights and everything that decides how frames become a vector."""

    @property
    def width(self) -> int:
        """Numbers per segment."""
        return vector_width(self.config)

    @property
    def tokens(self) -> int:
        """Parts of a segment's vector."""
        return vector_tokens(self.config)

    def embed(self, frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Encode clips (B, T, size, size, 3) of RGB, B at most `batch`; returns (B, width) float16.

        A part batch is filled up with black clips, so that every call has one shape and a segment's vector does not
        depend on its neighbours. When memory runs out the batch is halved for good, and the call repeated in parts.

        Raises:
            InputError: one clip alone does not fit into memory.
        """
        done: list[NDArray[np.float16]] = []
        at = 0
        while at < len(frames):
            part = frames[at : at + self.batch]
            try:
                done.append(self._embed_full(part))
            except torch.OutOfMemoryError as error:
                self._halve(error)
                continue
            at += len(part)
        return np.concatenate(done)

    def _embed_full(self, part: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Encode at most `batch` clips, filled up to `batch`."""
        full = np.zeros((self.batch, *part.shape[1:]), np.uint8)
        full[: len(part)] = part
        with torch.inference_mode():
            clip = normalised(torch.from_numpy(full).to(self.device, non_blocking=True))
            tokens = self.encoder(clip.to(next(self.encoder.parameters()).dtype), self.config.hierarchical)
            vectors: NDArray[np.float16] = pooled(tokens, self.config).half().cpu().numpy()
        return vectors[: len(part)]

    def _halve(self, error: torch.OutOfMemoryError) -> None:
        """Halve the batch, and say so the first time."""
        if self.batch == 1:
            raise InputError(
                f"one clip of {self.config.n_frames} frames of {self.config.size_px} px does not fit into the memory "
                f"of {self.device} with {self.config.model}: {error}; choose a smaller FeatureConfig.model"
            ) from error
        level = logging.WARNING if self.batch == self.config.batch else logging.DEBUG
        self.batch //= 2
        log.log(level, "features: out of memory; going on with batches of %d", self.batch)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def vector_tokens(cfg: FeatureConfig) -> int:
    """Parts of a segment's vector: 1, or one per tubelet."""
    return 1 if cfg.tokens == "pooled" else cfg.n_frames // TUBELET


def vector_width(cfg: FeatureConfig) -> int:
    """Numbers per segment: D, or D per tubelet; four times as many where the output is hierarchical."""
    spec = SIZES[cfg.model]
    return spec.width * vector_tokens(cfg) * (len(spec.levels) if cfg.hierarchical else 1)


def normalised(frames_BTHWC: Tensor) -> Tensor:
    """Turn uint8 RGB (B, T, H, W, 3) into the encoder's input (B, 3, T, H, W), float32 by ImageNet's mean and std."""
    device = frames_BTHWC.device
    mean, std = torch.tensor(IMAGENET_MEAN, device=device) * 255, torch.tensor(IMAGENET_STD, device=device) * 255
    return ((frames_BTHWC.float() - mean) / std).permute(0, 4, 1, 2, 3)


def pooled(tokens_BND: Tensor, cfg: FeatureConfig) -> Tensor:
    """Average tokens (B, N, D) in float32: over all, (B, D), or over the patches of each tubelet, (B, tubelets x D)."""
    if cfg.tokens == "pooled":
        return tokens_BND.float().mean(dim=1)
    return tokens_BND.float().unflatten(1, (cfg.n_frames // TUBELET, -1)).mean(dim=2).flatten(1)  # type: ignore[no-untyped-call,no-any-return]


def load_embedder(cfg: FeatureConfig, device: str, scratch: Path) -> Embedder:
    """Load the encoder of a configuration; the demo's checkpoint is written to `scratch` first.

    Raises:
        CheckpointError: no checkpoint is configured, or it cannot be used.
    """
    path = cfg.checkpoint
    if path is None:
        if cfg.model != "tiny":
            raise CheckpointError(
                f"FeatureConfig.model is {cfg.model}, and FeatureConfig.checkpoint is not set; download the V-JEPA 2.1 "
                "weights (docs/models.md gives the address) and set it, or set the model to tiny"
            )
        path = str(scratch / "tiny.pt")
        with naming_failures("write", Path(path)):
            scratch.mkdir(parents=True, exist_ok=True)
            write_tiny_checkpoint(Path(path))
    encoder, sha256 = load_encoder(path, cfg.model, cfg.interpolate_rope, cfg.checkpoint_sha256)
    if cfg.hierarchical and encoder.spec.release == "2.0":
        raise CheckpointError(f"{path} is of V-JEPA 2.0, which has one norm; set features.hierarchical=false")
    bf16 = cfg.precision == "bf16" or (cfg.precision == "auto" and device != "cpu")
    log.info(
        "features: V-JEPA %s %s, sha256 %s, %s, torch %s",
        encoder.spec.release, cfg.model, sha256[:12], "bf16" if bf16 else "fp32", torch.__version__,
    )  # fmt: skip
    encoder = encoder.to(device=torch.device(device), dtype=torch.bfloat16 if bf16 else torch.float32)
    if cfg.compile:
        encoder.compile_blocks()
    return Embedder(encoder, cfg, torch.device(device), cfg.batch, encoder_digest(cfg, sha256, bf16))


def encoder_digest(cfg: FeatureConfig, checkpoint_sha256: str, bf16: bool) -> str:
    """Fingerprint of the weights and of the preprocessing; the batch size does not enter."""
    names = {"n_frames", "size_px", "backend", "model", "tokens", "interpolate_rope"}
    how = cfg.model_dump(mode="json", include=names)
    how |= {name: True for name in ("hierarchical", "compile") if getattr(cfg, name)}
    how["resize"] = RESIZE[cfg.resize]
    return fingerprint({"weights": checkpoint_sha256, "bf16": bf16, "mean": list(IMAGENET_MEAN), **how})


@contextmanager
def torch_threads(cfg: FeatureConfig) -> Iterator[None]:
    """Run the tiny encoder on one thread, for as long as the block lasts: decoders need the other cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if cfg.model == "tiny" else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
