"""The demo's encoder: tiny, random and frozen, in the layout of the released checkpoints."""

from pathlib import Path

import torch
from torch import Tensor

from schemas.config import FeatureConfig
from trajpilot_core.encoders.video.frozen_vjepa import FrozenVjepa, with_weights
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder
from trajpilot_core.encoders.video.vjepa_predictor import PREDICTORS, VjepaPredictor
from trajpilot_core.store.files import naming_failures

SEED = 2605
COLOUR_GAIN, TEXTURE_GAIN, OFFSET_GAIN, BRANCH_GAIN = 2.0, 1.5, 0.3, 1.0
"""Scales of the random weights: response to a tubelet's mean colour, to its texture, constants, residual branches."""
WRAPPER = "module.backbone."


def load_tiny(cfg: FeatureConfig, device: str, scratch: Path) -> FrozenVjepa:
    """Load the demo's encoder; without a checkpoint it first writes weights to `scratch`. Raises CheckpointError."""
    path = cfg.checkpoint
    if path is None:
        path = str(scratch / "tiny.pt")
        with naming_failures("write", Path(path)):
            scratch.mkdir(parents=True, exist_ok=True)
            write_tiny_checkpoint(Path(path), has_predictor=cfg.ahead_tubelets is not None)
    return with_weights(path, cfg, device)


def write_tiny_checkpoint(path: Path, seed: int = SEED, *, has_predictor: bool = False) -> None:
    """Write a random `tiny` encoder in the format of a released file: a dictionary with `target_encoder` and wrapped
    names, and `predictor` if `has_predictor`.

    The same seed and file name give the same bytes. The patch embedding is a random projection of the mean colour plus
    noise kernels, so that the mean over the tokens contains coarse image statistics (docs/decisions/vjepa.md).
    """
    encoder = VjepaEncoder(SIZES["tiny"])
    generator = torch.Generator().manual_seed(seed)
    state = {name: _draw(name, value, generator) for name, value in sorted(encoder.state_dict().items())}
    content: dict[str, object] = {"target_encoder": {WRAPPER + name: value for name, value in state.items()}}
    if has_predictor:
        shapes = VjepaPredictor(PREDICTORS["tiny"]).state_dict()
        content["predictor"] = {WRAPPER + name: _draw(name, value, generator) for name, value in sorted(shapes.items())}
    try:
        torch.save({**content, "epoch": 0}, path)
    except RuntimeError as error:  # the library reports a failing disk without its cause, which a second write has
        path.with_suffix(".probe").write_bytes(bytes(1 << 20))
        raise OSError(str(error).split("\n", 1)[0]) from error


def _draw(name: str, like: Tensor, generator: torch.Generator) -> Tensor:
    """Sample one parameter of the shape of `like`."""
    if "norm" in name:
        return torch.ones_like(like) if name.endswith("weight") else torch.zeros_like(like)
    noise: Tensor = torch.randn(like.shape, generator=generator)
    if name.startswith("patch_embed") and name.endswith("weight"):
        pixels = like[0, 0].numel()
        colour: Tensor = torch.randn((*like.shape[:2], 1, 1, 1), generator=generator)
        return (COLOUR_GAIN * colour / pixels).add(noise, alpha=TEXTURE_GAIN / pixels**0.5)
    if name.startswith("patch_embed") or name.endswith("mod_embed"):
        return noise.mul(OFFSET_GAIN)
    if name.endswith("bias"):
        return torch.zeros_like(like)
    return noise.mul(BRANCH_GAIN / like.shape[1] ** 0.5)
