"""V-JEPA as a frozen video encoder: normalise, encode, pool."""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.base import fingerprint
from schemas.config import FeatureConfig
from schemas.features import PATCH_PX, TUBELET
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder
from trajpilot_core.encoders.video.vjepa_checkpoint import load_encoder
from trajpilot_core.encoders.video.vjepa_predictor import VjepaPredictor, load_predictor
from trajpilot_core.engine.resolve import gpu_has_bf16
from trajpilot_core.errors import CheckpointError

log = logging.getLogger("trajpilot")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""For RGB in 0..1. Source: V-JEPA 2's public evaluation code, and the paper's appendix on preprocessing."""
RESIZE = {
    "swscale": "upright, squashed to a square by swscale bilinear, antialiased, 4:2:0 before RGB",
    "antialiased": "upright, RGB before it is squashed to a square, by Pillow bilinear, antialiased",
    "centre_crop": "upright, RGB, short side to 8/7 of the square by OpenCV's bilinear scaling, centre cut out",
}
"""FeatureConfig.resize -> description."""


@dataclass(frozen=True)
class FrozenVjepa:
    """The network with its weights, preprocessing and pooling."""

    network: VjepaEncoder
    config: FeatureConfig
    digest: str
    ahead: VjepaPredictor | None = None
    """Predicts the tokens of a later tubelet."""

    @property
    def tokens(self) -> int:
        """Parts of a clip's vector: 1, or one per tubelet; one more for the predicted tubelet."""
        seen = 1 if self.config.tokens == "pooled" else self.config.n_frames // TUBELET
        return seen if self.ahead is None else seen + 1

    @property
    def width(self) -> int:
        """Numbers per clip: D, or D per token."""
        return SIZES[self.config.model].width * self.tokens

    def embed(self, frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Return (B, width) float16 of clips (B, T, size, size, 3) of RGB. Raises torch.OutOfMemoryError."""
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            tokens, read = self.tokens_and_levels(torch.from_numpy(frames).to(device))
            vectors = pooled(tokens, self.config)
            if self.ahead is not None:
                later = torch.full((len(read),), self.config.ahead_tubelets or 0)
                vectors = torch.cat([vectors, self._predicted(self.ahead, read, later).float().mean(dim=1)], dim=1)
            out: NDArray[np.float16] = vectors.half().cpu().numpy()
            return out

    def every_token(self, frames_BTHWC: Tensor, ahead_B: Tensor | None) -> Tensor:
        """Return (B, N, D) in the arithmetic of the network: every patch of clips, and those of a tubelet ahead.

        Args:
            frames_BTHWC: uint8 RGB (B, T, size, size, 3), on the device of the network.
            ahead_B: long, which tubelet after the last one seen is predicted for each clip; None: none.
        """
        with torch.no_grad(), torch.autocast(frames_BTHWC.device.type, enabled=False):  # also in a training loop
            tokens, read = self.tokens_and_levels(frames_BTHWC)
            if self.ahead is None or ahead_B is None:
                return tokens
            return torch.cat([tokens, self._predicted(self.ahead, read, ahead_B).to(tokens.dtype)], dim=1)

    def _predicted(self, ahead: VjepaPredictor, read_BNL: Tensor, ahead_B: Tensor) -> Tensor:
        """Return (B, M, D): the encoder's last level, its output, of the tubelet `ahead_B` after the last one seen."""
        grid = self.config.size_px // PATCH_PX
        first_B = read_BNL.shape[1] + grid**2 * ahead_B.to(read_BNL.device)
        places_BM = first_B[:, None] + torch.arange(grid**2, device=read_BNL.device)
        tokens: Tensor = ahead(read_BNL, places_BM, grid)[..., -ahead.shape.embed :]
        return tokens

    def tokens_and_levels(self, frames_BTHWC: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens (B, N, D) of clips, and what the predictor reads: the same, or all levels, (B, N, L D)."""
        clip_BCTHW = normalised(frames_BTHWC).to(next(self.network.parameters()).dtype)
        if self.ahead is None or self.ahead.shape.levels == 1:
            tokens = self.network(clip_BCTHW)
            return tokens, tokens
        levels = self.network(clip_BCTHW, True)
        return levels[..., -self.ahead.shape.embed :], levels


def normalised(frames_BTHWC: Tensor) -> Tensor:
    """Turn uint8 RGB (B, T, H, W, 3) into the encoder's input (B, 3, T, H, W), float32 by ImageNet's mean and std."""
    scale = torch.tensor((IMAGENET_MEAN, IMAGENET_STD), device=frames_BTHWC.device)
    mean, std = (scale * 255).unbind()
    return ((frames_BTHWC.float() - mean) / std).permute(0, 4, 1, 2, 3)


def pooled(tokens_BND: Tensor, cfg: FeatureConfig) -> Tensor:
    """Average tokens (B, N, D) in float32: over all, (B, D), or over the patches of each tubelet, (B, tubelets x D)."""
    if cfg.tokens == "pooled":
        return tokens_BND.float().mean(dim=1)
    by_tubelet: Tensor = tokens_BND.float().unflatten(1, (cfg.n_frames // TUBELET, -1))  # type: ignore[no-untyped-call]
    return by_tubelet.mean(dim=2).flatten(1)


def load_vjepa(cfg: FeatureConfig, device: str) -> FrozenVjepa:
    """Load a released size with the weights in the settings; CheckpointError if there are none."""
    if cfg.checkpoint is None:
        raise CheckpointError(
            f"features.model is {cfg.model}, and features.checkpoint is not set; download the V-JEPA 2.1 "
            "weights (docs/models.md gives the address) and set it, or set the model to tiny"
        )
    return with_weights(cfg.checkpoint, cfg, device)


def with_weights(path: str, cfg: FeatureConfig, device: str) -> FrozenVjepa:
    """Return the network of a configuration with the weights of a file, on a device, in its precision.

    Raises CheckpointError: the file cannot be used, or does not match the settings.
    """
    network, sha256 = load_encoder(path, cfg.model, cfg.interpolate_rope, cfg.checkpoint_sha256)
    bf16 = cfg.precision == "bf16" or (cfg.precision == "auto" and device != "cpu" and gpu_has_bf16(device))
    log.info(
        "features: V-JEPA %s %s, sha256 %s, %s, torch %s",
        network.spec.release,
        cfg.model,
        sha256[:12],
        "bf16" if bf16 else "fp32",
        torch.__version__,
    )
    network = network.to(device=torch.device(device), dtype=torch.bfloat16 if bf16 else torch.float32)
    ahead = None
    if cfg.ahead_tubelets is not None:
        ahead = load_predictor(path, cfg.model, interpolate_rope=cfg.interpolate_rope)
        ahead = ahead.to(device=torch.device(device), dtype=network.patch_embed.proj.weight.dtype)
    return FrozenVjepa(network, cfg, encoder_digest(cfg, sha256, bf16), ahead)


def encoder_digest(cfg: FeatureConfig, checkpoint_sha256: str, bf16: bool) -> str:
    """Return the fingerprint of weights and preprocessing; the batch size is not included."""
    names = {"n_frames", "size_px", "backend", "model", "tokens", "interpolate_rope"}
    how = cfg.model_dump(mode="json", include=names)
    if cfg.ahead_tubelets is not None:
        how["ahead_tubelets"] = cfg.ahead_tubelets
    how["resize"] = RESIZE[cfg.resize]
    return fingerprint({"weights": checkpoint_sha256, "bf16": bf16, "mean": list(IMAGENET_MEAN), **how})
