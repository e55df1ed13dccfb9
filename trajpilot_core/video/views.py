"""Pictures as V-JEPA 2's probes see them: a centre crop, and for training RandAugment and a random crop.

Values are those of facebookresearch/vjepa2 at c2963a47, whose RandAugment (arXiv 1909.13719) calls Pillow too.
"""

import math
import random
from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image as Pillow
from PIL import ImageEnhance, ImageOps

from trajpilot_core.arrays import Image

SHORT_SIDE = 256 / 224
"""Short side of a picture before its centre is cut out, as a multiple of the cut."""
ATTEMPTS = 10
"""Attempts to sample a crop that fits, before the centre is used."""
HIGHEST_LEVEL = 10.0
APPLIED_SHARE = 0.5
"""Probability that a sampled operation is applied."""
GREY = (128, 128, 128)
"""Fills what a turned or shifted picture leaves empty."""
TURN_DEG, SHEAR, SHIFT, ENHANCED, BITS, ADDED = 30.0, 0.3, 0.45, 0.9, 4, 110
"""At the highest level: rotation, shear, shift as a share of the side, change of an enhancer's factor, bits that
posterising removes of four, and what is added to dark pixels."""
MID_GREY = 128

Operation = Callable[[Pillow.Image, float, int], Pillow.Image]
"""Picture, level in 0..1, sign -> changed picture."""
Box = tuple[int, int, int, int]
"""Top, left, height, width, pixels."""


def centre_crop(image: Image, size_px: int) -> Image:
    """Return the centre (size, size, 3) of a picture (H, W, 3) that was scaled bilinearly, without a filter."""
    height, width = image.shape[:2]
    short = int(SHORT_SIDE * size_px)
    high, wide = (int(short * height / width), short) if width < height else (short, int(short * width / height))
    scaled = cv2.resize(image, (wide, high), interpolation=cv2.INTER_LINEAR)
    top, left = round((high - size_px) / 2), round((wide - size_px) / 2)
    return np.ascontiguousarray(scaled[top : top + size_px, left : left + size_px], np.uint8)


def augmented(
    image: Image,
    size_px: int,
    *,
    seed: int,
    operations: int,
    level: float,
    deviation: float,
    scale: tuple[float, float] | None,
    ratio: tuple[float, float],
) -> Image:
    """Return an upright RGB picture (H, W, 3) as (size, size, 3): changed by RandAugment, cropped, scaled bilinearly.

    Args:
        seed: samples all; equal for the frames of a clip.
        operations: how many operations are sampled.
        level: mean of their levels, in 0..10, with the standard deviation `deviation`.
        scale: least and largest share of the area; None: the whole picture.
        ratio: least and largest width / height of the crop.
    """
    generator = random.Random(seed)
    if sampled := sampled_operations(generator, operations, level, deviation):
        picture = Pillow.fromarray(image)
        for name, share, sign in sampled:
            picture = OPERATIONS[name](picture, share, sign)
        image = np.asarray(picture, np.uint8)
    if scale is not None:
        top, left, height, width = sampled_box(generator, image.shape[0], image.shape[1], scale, ratio)
        image = image[top : top + height, left : left + width]
    return np.asarray(cv2.resize(image, (size_px, size_px), interpolation=cv2.INTER_LINEAR), np.uint8)


def sampled_operations(
    generator: random.Random, operations: int, level: float, deviation: float
) -> list[tuple[str, float, int]]:
    """Return the operations that are applied: name, level in 0..1, sign. Each of the sampled ones is with 1/2."""
    chosen = [generator.choice(sorted(OPERATIONS)) for _ in range(operations)]
    applied = [name for name in chosen if generator.random() < APPLIED_SHARE]
    levels = [min(HIGHEST_LEVEL, max(0.0, generator.gauss(level, deviation))) for _ in applied]
    return [(name, at / HIGHEST_LEVEL, generator.choice((-1, 1))) for name, at in zip(applied, levels, strict=True)]


def sampled_box(
    generator: random.Random, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """Return a crop: its share of the area, the logarithm of width / height and its place are uniform.

    Where none fits, it is the largest one in the centre with an allowed shape.
    """
    for _ in range(ATTEMPTS):
        area = height * width * generator.uniform(*scale)
        shape = math.exp(generator.uniform(math.log(ratio[0]), math.log(ratio[1])))
        wide, high = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < wide <= width and 0 < high <= height:
            return generator.randint(0, height - high), generator.randint(0, width - wide), high, wide
    shape = min(max(width / height, ratio[0]), ratio[1])
    wide, high = min(width, round(height * shape)), min(height, round(width / shape))
    return (height - high) // 2, (width - wide) // 2, high, wide


def _moved(picture: Pillow.Image, row_x: tuple[float, float, float], row_y: tuple[float, float, float]) -> Pillow.Image:
    """Return the picture whose pixel (x, y) is that of the source at (row_x, row_y) times (x, y, 1)."""
    how = (*row_x, *row_y)
    return picture.transform(
        picture.size, Pillow.Transform.AFFINE, how, resample=Pillow.Resampling.BICUBIC, fillcolor=GREY
    )


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda picture, level, sign: ImageOps.autocontrast(picture),
    "brightness": lambda picture, level, sign: ImageEnhance.Brightness(picture).enhance(1 + sign * ENHANCED * level),
    "colour": lambda picture, level, sign: ImageEnhance.Color(picture).enhance(1 + sign * ENHANCED * level),
    "contrast": lambda picture, level, sign: ImageEnhance.Contrast(picture).enhance(1 + sign * ENHANCED * level),
    "equalize": lambda picture, level, sign: ImageOps.equalize(picture),
    "invert": lambda picture, level, sign: ImageOps.invert(picture),
    "lighten_dark": lambda picture, level, sign: picture.point(
        [min(255, value + int(ADDED * level)) if value < MID_GREY else value for value in range(256)] * 3
    ),
    "posterize": lambda picture, level, sign: ImageOps.posterize(picture, BITS - int(BITS * level)),
    "rotate": lambda picture, level, sign: picture.rotate(
        sign * TURN_DEG * level, resample=Pillow.Resampling.BICUBIC, fillcolor=GREY
    ),
    "sharpness": lambda picture, level, sign: ImageEnhance.Sharpness(picture).enhance(1 + sign * ENHANCED * level),
    "shear_x": lambda picture, level, sign: _moved(picture, (1, sign * SHEAR * level, 0), (0, 1, 0)),
    "shear_y": lambda picture, level, sign: _moved(picture, (1, 0, 0), (sign * SHEAR * level, 1, 0)),
    "shift_x": lambda picture, level, sign: _moved(picture, (1, 0, sign * SHIFT * level * picture.width), (0, 1, 0)),
    "shift_y": lambda picture, level, sign: _moved(picture, (1, 0, 0), (0, 1, sign * SHIFT * level * picture.height)),
    "solarize": lambda picture, level, sign: ImageOps.solarize(picture, 256 - int(256 * level)),
}
"""RandAugment's operations whose strength grows with the level, by name."""
