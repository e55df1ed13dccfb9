"""What things look like: textures of the room (take-specific) and of the station (task, position, label).

Images are float32 RGB in [0, 1] while they are mixed and uint8 RGB when they are drawn.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Array, Image
from trajpilot_core.simworld.world.truth import TakeTruth, World, stream

Float = NDArray[np.float32]

FADE_S = 0.3
"""The station changes its look within this time around the boundary of two steps."""
COLOUR_RANGE, COLOUR_SLOPE = 0.42, 0.11
"""A look coefficient a becomes 0.5 + range * tanh(slope * a): one unit of noise is about 12 of 255 levels."""
BOARD_PX, MAT_PX, WALL_PX = (300, 100), (300, 135), (320, 180)
"""Texture sizes, width and height."""
OBJECTS = 8
"""Colours of objects that are drawn; a world shows as many objects as it has places."""
GRAIN_CELLS_PX = (4, 9, 24, 60)
"""Scales of the grain of a texture."""


@dataclass(frozen=True)
class TakeLight:
    """Light and colours of one take, apart from its textures."""

    objects: NDArray[np.uint8]
    """(places, 3) colours of the objects on the table."""
    gain: float
    """Light of the take."""
    gain_slope: float
    """Change of the light per second."""


@dataclass(frozen=True)
class TakeAppearance:
    """Textures, light and colours of one take."""

    light: TakeLight
    room: tuple[Image, ...]
    """front, left, right, back wall, floor, ceiling; each (180, 320, 3)."""
    board_grain: Float
    """(height, width) factor around 1."""
    mat_grain: Float
    """(height, width) factor around 1."""


def grain_cells(rng: np.random.Generator, size: tuple[int, int]) -> list[Float]:
    """Draw the random pattern of every scale, (height, width) each, for a texture of `size` (width, height)."""
    shapes = [(size[1] // cell + 2, size[0] // cell + 2) for cell in GRAIN_CELLS_PX]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def grain(rng: np.random.Generator, size: tuple[int, int], contrast: float) -> Float:
    """Return a smooth random pattern of several scales, mean about 1, for a texture of `size` (width, height)."""
    total = np.zeros((size[1], size[0]), np.float32)
    for small in grain_cells(rng, size):
        total += cv2.resize(small, size, interpolation=cv2.INTER_CUBIC)
    return np.asarray(np.clip(1.0 + contrast * total / 2.0, 0.3, 1.7), np.float32)


def wall(rng: np.random.Generator, scene: float) -> Image:
    """Return one wall: a colour of the room with grain and some pictures on it; `scene` 0 leaves grey."""
    colour = 0.5 + scene * rng.uniform(-0.18, 0.18, 3)
    image = np.ones((WALL_PX[1], WALL_PX[0], 3), np.float32) * colour.astype(np.float32)
    for _ in range(7):
        x, y = int(rng.integers(0, WALL_PX[0] - 30)), int(rng.integers(0, WALL_PX[1] - 30))
        w, h = int(rng.integers(14, 70)), int(rng.integers(14, 60))
        tint = 0.5 + scene * rng.uniform(-0.3, 0.3, 3)
        image[y : y + h, x : x + w] = tint
        image[y + 3 : y + h - 3, x + 3 : x + w - 3] *= 0.5 + float(rng.random())
    factor = grain(rng, WALL_PX, 0.2)
    return to_bytes([channel * factor for channel in cv2.split(image)])


def to_bytes(channels: Iterable[Float]) -> Image:
    """Convert [0, 1] floats, three times (height, width), to bytes (height, width, 3), clipped.

    Channel by channel: numpy is three times slower along an axis of three numbers.
    """
    return np.asarray(cv2.merge([np.clip(channel * 255.0, 0, 255).astype(np.uint8) for channel in channels]), np.uint8)


def take_appearance(world: World, take: TakeTruth) -> TakeAppearance:
    """Draw what a take looks like: the room of its capture, its own light and objects. Scene 0: all takes alike."""
    scene = world.config.scene
    room_rng, rng = appearance_streams(world, take)
    board_grain, mat_grain = (grain(rng, size, 0.18) for size in (BOARD_PX, MAT_PX))
    room = tuple(wall(room_rng, scene) for _ in range(6))
    return TakeAppearance(draw_light(rng, scene), room, board_grain, mat_grain)


def take_light(world: World, take: TakeTruth) -> TakeLight:
    """Return the light and colours of a take as `take_appearance` draws them, without drawing its textures."""
    _, rng = appearance_streams(world, take)
    for size in (BOARD_PX, MAT_PX):
        grain_cells(rng, size)
    return draw_light(rng, world.config.scene)


def appearance_streams(world: World, take: TakeTruth) -> tuple[np.random.Generator, np.random.Generator]:
    """Return the random streams of a take's room and of its light and objects. Scene 0: those of the first take."""
    is_own = world.config.scene > 0
    return (
        stream(world.config, "room", take.capture if is_own else 0),
        stream(world.config, "light", take.index if is_own else 0),
    )


def draw_light(rng: np.random.Generator, scene: float) -> TakeLight:
    """Draw the light and the objects of a take; `scene` 0 leaves the light alone."""
    objects = rng.integers(30, 226, (OBJECTS, 3)).astype(np.uint8)
    gain, slope = 1.0 + 0.12 * scene * float(rng.uniform(-1, 1)), 0.004 * scene * float(rng.uniform(-1, 1))
    return TakeLight(objects, gain, slope)


def station(appearance: TakeAppearance, coefficients: Array) -> tuple[Image, Image]:
    """Return the board and the mat, uint8 of shape (height, width, 3), of a station with look `coefficients` (LOOKS,).

    Three coefficients are the common colour, one sets the board's brightness against the mat's, one the contrast of
    their stripes and checks, one the width of these.
    """
    difference, contrast, width = coefficients[3:]
    period = 6.0 + 40.0 * level(width)
    depth = np.float32(level(contrast) - 0.05)
    across = np.sign(np.sin(2 * np.pi * np.arange(BOARD_PX[0]) / period)).astype(np.float32)
    along = np.sign(np.sin(2 * np.pi * np.arange(MAT_PX[1]) / period)).astype(np.float32)
    board = (appearance.board_grain * (1.0 + depth * across)).astype(np.float64)
    mat = (appearance.mat_grain * (1.0 + depth * across * along[:, None])).astype(np.float64)
    colours = 0.85 * level(coefficients[:3] + difference), 0.85 * level(coefficients[:3] - difference)
    board_bytes, mat_bytes = (
        to_bytes((pattern * part).astype(np.float32) for part in colour)
        for pattern, colour in zip((board, mat), colours, strict=True)
    )
    return board_bytes, mat_bytes


def level(coefficients: Array) -> Array:
    """Map look coefficients to colour levels in (0, 1)."""
    return np.asarray(0.5 + COLOUR_RANGE * np.tanh(COLOUR_SLOPE * coefficients))


def looks_at(take: TakeTruth, t_s: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return the look coefficients (N, LOOKS) at times `t_s` (N,), faded over step boundaries, and the step (N,)."""
    looks = np.stack([s.look for s in take.segments])
    inner = np.array([s.end_s for s in take.segments[:-1]])
    step = np.searchsorted(inner, t_s, side="right")
    weight = np.clip((t_s[:, None] - inner) / FADE_S + 0.5, 0.0, 1.0)
    weight = weight * weight * (3 - 2 * weight)
    return looks[0] + weight @ np.diff(looks, axis=0), step
