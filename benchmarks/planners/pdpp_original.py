"""PDPP's own modules, imported from a checkout without being put on the path, and our weights under its names.

Two packages that it imports are replaced by what it uses of them: `einops` (four rearrangements) and `tensorboardX`.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trajpilot_core.models.planners.temporal_unet import PlanChannels, TemporalUnet

PDPP_ORIGIN = "github.com/MCG-NJU/PDPP at e9fd98a43bd0ee438ef2ad80a08397ec523d95ac"
PACKAGES = {"pdpp": "", "model": "model", "utils": "utils", "dataloader": "dataloader"}
"""Name of a package that the original imports -> its folder in the checkout; `pdpp` has its scripts."""
REARRANGEMENTS = {
    "b h t -> b t h": lambda x: x.transpose(1, 2),
    "b t h -> b h t": lambda x: x.transpose(1, 2),
    "batch t -> batch t 1": lambda x: x[:, :, None],
    "batch channels horizon -> batch channels 1 horizon": lambda x: x[:, :, None],
    "batch channels 1 horizon -> batch channels horizon": lambda x: x[:, :, 0],
}
UNET_RULES = (
    (r"^time_in\.", "time_mlp.1."),
    (r"^time_out\.", "time_mlp.3."),
    (r"^entry\.", "downs.0."),
    (r"^down\.0\.", "downs.1."),
    (r"^down\.1\.", "downs.2."),
    (r"^shorten\.(\d)\.", r"downs.\1.2.conv."),
    (r"^lengthen\.(\d)\.", r"ups.\1.2.conv."),
    (r"^up\.", "ups."),
    (r"^middle\.first\.", "mid_block1."),
    (r"^middle\.second\.", "mid_block2."),
    (r"^(downs|ups)\.(\d)\.first\.", r"\1.\2.0."),
    (r"^(downs|ups)\.(\d)\.second\.", r"\1.\2.1."),
    (r"^last\.", "final_conv.0.block.0."),
    (r"^last_norm\.", "final_conv.0.block.2."),
    (r"^readout\.", "final_conv.1."),
    (r"\.first\.", ".blocks.0.block.0."),
    (r"\.first_norm\.", ".blocks.0.block.2."),
    (r"\.second\.", ".blocks.1.block.0."),
    (r"\.second_norm\.", ".blocks.1.block.2."),
    (r"\.shift\.", ".time_mlp.1."),
    (r"\.skip\.", ".residual_conv."),
)
CLASSIFIER_RULES = (("^narrow_in", "fc1"), ("^widen", "fc2"), ("^narrow_out", "fc3"), ("^readout", "fc4"))


class Rearrange(nn.Module):
    """What the original uses of `einops.layers.torch.Rearrange`."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self.pattern = pattern

    def forward(self, x: Tensor) -> Tensor:
        return REARRANGEMENTS[self.pattern](x)


class PdppModules(NamedTuple):
    """Files of the original."""

    temporal: Any
    diffusion: Any
    helpers: Any
    training: Any
    train_mlp: Any


def stubs() -> dict[str, ModuleType]:
    """Return stand-ins for the packages that are not installed."""
    found = {name: ModuleType(name) for name in ("einops", "einops.layers", "einops.layers.torch", "tensorboardX")}
    vars(found["einops"])["rearrange"] = lambda x, pattern: REARRANGEMENTS[pattern](x)
    vars(found["einops.layers.torch"])["Rearrange"] = Rearrange
    vars(found["tensorboardX"])["SummaryWriter"] = object
    return found


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let the original's imports find its files while this lasts; what was imported lives on, its names do not."""
    tops = {*PACKAGES, "einops", "tensorboardX"}
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in tops}
    for name in before:
        del sys.modules[name]
    for name, inside in PACKAGES.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder / inside)]
    sys.modules.update(stubs())
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] in tops]:
            del sys.modules[name]
        sys.modules.update(before)


def modules(original: Path) -> PdppModules:
    """Import the files of the checkout `original / PDPP`."""
    with importable(original / "PDPP"):
        names = ("model.temporal", "model.diffusion", "model.helpers", "utils.training", "pdpp.train_mlp")
        return PdppModules(*(import_module(name) for name in names))


def their_name(name: str, rules: tuple[tuple[str, str], ...] = UNET_RULES) -> str:
    """Return the original's name of one of our parameters."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def with_weights(original: Any, ours: nn.Module, rules: tuple[tuple[str, str], ...] = UNET_RULES) -> Any:
    """Load our weights into a network of the original, every one of both, in evaluation mode."""
    weights: Mapping[str, Tensor] = {their_name(name, rules): tensor for name, tensor in ours.state_dict().items()}
    original.load_state_dict(weights, strict=True)
    return original.eval()


def diffusion(found: PdppModules, unet: TemporalUnet, horizon: int, n_times: int) -> Any:
    """Return the original's diffusion around its own network with the weights of `unet`, as its main script does.

    Widths are (1, 2, 4) times that of `unet`.
    """
    shape = unet.shape
    network = found.temporal.TemporalUnet(shape.total, dim=unet.width, dim_mults=(1, 2, 4))
    theirs = found.diffusion.GaussianDiffusion(
        with_weights(network, unet),
        horizon,
        shape.features,
        shape.actions,
        shape.tasks,
        n_times,
        loss_type="Weighted_MSE",
        clip_denoised=True,
    )
    return theirs.eval()


def condition_of(ends_B2D: Tensor, tasks_B: Tensor, shape: PlanChannels, horizon: int) -> dict[Any, Tensor]:
    """Return what is known of plans as the original has it: row -> features, `task` -> (B, H, K) one-hot."""
    one_hot = torch.nn.functional.one_hot(tasks_B, shape.tasks).float()
    return {0: ends_B2D[:, 0], horizon - 1: ends_B2D[:, 1], "task": one_hot[:, None].repeat(1, horizon, 1)}
