"""How the frames of a prompt become patches and tokens: what `preprocessor_config.json` of a model says. No torch.

Source: configuration and image processor of Qwen2-VL and Qwen3-VL in transformers 5.23, compared in a test.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from trajpilot_core.errors import InputError
from trajpilot_core.vlm.local.folder import IMAGES


@dataclass(frozen=True)
class ImageRules:
    """How frames become patches: what `preprocessor_config.json` of a model says."""

    patch_px: int
    repeats: int
    """Frames that one patch covers: an image stands for all of them."""
    merge: int
    """So many patches in each direction become one token."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Of each channel, of colours between 0 and 1."""
    least_px: int
    most_px: int
    """Area of an image; others are resized."""

    def tokens(self, grid: tuple[int, int, int]) -> int:
        """Return how many tokens an image of that grid has."""
        return math.prod(grid) // self.merge**2


def image_rules(folder: Path) -> ImageRules:
    """Read the rules of a model.

    Raises:
        InputError: something in the file is missing or of another form.
    """
    path = folder / IMAGES
    held = json.loads(path.read_bytes())
    try:
        return ImageRules(
            patch_px=int(held["patch_size"]),
            repeats=int(held["temporal_patch_size"]),
            merge=int(held["merge_size"]),
            mean=tuple(map(float, held["image_mean"])),
            std=tuple(map(float, held["image_std"])),
            least_px=int(held["size"]["shortest_edge"]),
            most_px=int(held["size"]["longest_edge"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: {error!r}; needed are patch_size, temporal_patch_size, merge_size, image_mean, image_std, and "
            "size with shortest_edge and longest_edge (areas, as Qwen3-VL has them)"
        ) from error


def fitted(height: int, width: int, rules: ImageRules) -> tuple[int, int]:
    """Return the size of an image whose sides are whole tokens and whose area is allowed, at about the same aspect."""
    unit = rules.patch_px * rules.merge
    near = round(height / unit) * unit, round(width / unit) * unit
    if math.prod(near) > rules.most_px:
        scale = math.sqrt(height * width / rules.most_px)
        return max(unit, math.floor(height / scale / unit) * unit), max(unit, math.floor(width / scale / unit) * unit)
    if math.prod(near) < rules.least_px:
        scale = math.sqrt(rules.least_px / (height * width))
        return math.ceil(height * scale / unit) * unit, math.ceil(width * scale / unit) * unit
    return near
