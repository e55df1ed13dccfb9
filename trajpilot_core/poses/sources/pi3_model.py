"""Loading of Pi3 and the poses of one clip; the only file that imports Pi3 (https://github.com/yyfz/Pi3, extra `pi3`).

Only pi3.models.pi3 and pi3.models.pi3x are imported; the rest of the package needs torchvision. Weights are read as
safetensors, never as a pickle. Released weights: CC BY-NC 4.0, not for commercial use.
"""

import hashlib
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

from schemas.poses import Pi3Config
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.poses.sources.pi3 import HUBS, INSTALL, WEIGHTS_FILE, local_weights

MODELS = {"pi3": ("pi3.models.pi3", "Pi3"), "pi3x": ("pi3.models.pi3x", "Pi3X")}
"""Name -> module and class."""


@dataclass(frozen=True)
class Pi3Model:
    """A loaded network."""

    network: torch.nn.Module
    device: torch.device
    bf16: bool
    digest: str
    """sha256 of the weights."""

    def poses(self, frames: NDArray[np.uint8]) -> tuple[NDArray[np.float64], float]:
        """Estimate the poses of a clip.

        Args:
            frames: (N, H, W, 3) RGB, sides multiples of 14.

        Returns:
            T_world_camera (N, 4, 4) in OpenCV axes, world and (but for Pi3X) scale arbitrary; and the mean confidence
            of all pixels, 0 to 1.

        Raises:
            InputError: the clip does not fit into memory.
            CheckpointError: the output of the network is not that of Pi3.
        """
        images = torch.from_numpy(np.ascontiguousarray(frames)).to(self.device).permute(0, 3, 1, 2)[None].float() / 255
        try:
            with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                answer = self.network(images)
        except torch.OutOfMemoryError as error:
            size = f"{len(frames)} frames of {frames.shape[2]} x {frames.shape[1]} px"
            raise InputError(f"{size} do not fit into the memory of {self.device}; lower pi3.pixel_limit") from error
        n, height, width, _ = frames.shape
        expected = {"camera_poses": (1, n, 4, 4), "conf": (1, n, height, width, 1)}
        shapes = {name: tuple(value.shape) for name, value in answer.items() if name in expected}
        if shapes != expected:
            raise CheckpointError(f"the network returned {shapes}, expected {expected}: it is not Pi3")
        confidence = float(torch.sigmoid(answer["conf"].float()).mean())
        return answer["camera_poses"][0].double().cpu().numpy(), confidence


def load_pi3(cfg: Pi3Config, device: str) -> Pi3Model:
    """Build the network and load its weights, in eval mode.

    Args:
        cfg: its precision is written out (`auto` counts as fp32).
        device: `cpu`, `cuda` or `cuda:<number>`.

    Raises:
        InputError: the package or the weights are missing, or bf16 is configured on a CPU.
        CheckpointError: the weights are damaged, of another model, or have another digest.
    """
    module, name = MODELS[cfg.model]
    if cfg.precision == "bf16" and not device.startswith("cuda"):
        raise InputError("pi3.precision bf16 needs a GPU; use auto or fp32")
    try:
        build = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise InputError(
            f"trajectories.source pi3 needs the package pi3, and {error}; install it with {INSTALL}, or choose "
            "trajectories.source odometry, which needs no GPU"
        ) from error
    path = local_weights(cfg)
    if path is None or not path.is_file():
        raise InputError(
            f"the weights are {path or 'not set'}, which is no file; download {WEIGHTS_FILE} of {HUBS[cfg.model]} and "
            "set trajectories.pi3.weights to its folder"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if cfg.weights_sha256 not in (None, digest):
        raise CheckpointError(f"{path} has sha256 {digest}, expected {cfg.weights_sha256}; download it again")
    network: torch.nn.Module = build()
    try:
        network.load_state_dict(load_file(path), strict=True)
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{path} does not fit {name}: {' '.join(str(error).split())[:1000]}") from error
    without_conditions: Any = getattr(network, "disable_multimodal", None)
    if cfg.model == "pi3x" and without_conditions is not None:
        without_conditions()  # without depths, rays and poses as input
    network = network.to(device).eval().requires_grad_(False)
    return Pi3Model(network, torch.device(device), cfg.precision == "bf16", digest)
