"""Features without pixels, SIMULATED: a fixed map of what still frames would show, in files as corpora publish them.

A row moves with time as a real one does and is no evidence about the features of a real encoder. No exact ceiling is
exceeded: of the labels the map is given the looks at the times of a segment's frames, faded over step boundaries as in
the rendered world, and the places of the objects at these times, functions of just those steps that
`inference.visible` counts as seen, which `inference.evidence` weighs exactly. Room, light, colours of objects and noise
are drawn from streams of their own, by capture, take and segment; exact inference knows the operator of a capture,
which is all that takes of one room share. Head motion is not among the inputs.

Axes: S segments of a take, F frames of a segment, N times, I inputs, H hidden units, K tokens, D numbers of a token.
Source: docs/decisions/released-features.md.
"""

import io
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Array
from trajpilot_core.corpora.released import RELEASED
from trajpilot_core.simworld.layouts.base import NamedFiles, layout_of
from trajpilot_core.simworld.world.appearance import OBJECTS, level, looks_at, take_light
from trajpilot_core.simworld.world.truth import COLOURS, TakeTruth, World, stream

VERSION = 1  # raise when the numbers that this module writes change; a golden test watches
LOOK_SCALE = 5.0
"""One over the usual deviation of a colour level from its middle, 0.5."""
OBJECT_SCALE, LIGHT_SCALE = 1.0 / 57.0, 14.0
"""One over the deviations of an object's colour from its mean, 127.5, and of the light from 1."""
SEED, HIDDEN, ROOM_NUMBERS = 20261122, 256, 12
"""Of the random weights; units of the first layer; numbers that describe a room."""
COLOUR, DETAIL, PLACE, ROOM, LIGHT = 1.0, 0.1, 0.02, 0.2, 0.25
"""Deviations before the first tanh, set once so that probes agree with those of rendered frames: the station's colour;
board against mat, and stripes; place of the object that is acted on; room; light and colours of objects."""
SECOND, BIAS, NOISE = 1.0, 0.3, 0.07
"""Deviations of the second layer, of the constants of both, and of the noise on every number."""


@dataclass(frozen=True)
class LatentMap:
    """Weights of the map, random and fixed: two layers of tanh."""

    first: Array
    """(I, H)."""
    second: Array
    """(H, D)."""
    first_bias: Array
    """(H,)."""
    second_bias: Array
    """(D,)."""


@cache
def latent_map(places: int, width: int) -> LatentMap:
    """Return the map, the same for every world of as many `places`, to tokens of `width` numbers."""
    rng = np.random.default_rng([SEED, places, width])
    sizes = COLOURS, COLOURS + 2, places, ROOM_NUMBERS, 3 * OBJECTS + 1
    groups = zip((COLOUR, DETAIL, PLACE, ROOM, LIGHT), sizes, strict=True)
    return LatentMap(
        np.concatenate([weight * rng.normal(size=(n, HIDDEN)) / np.sqrt(n) for weight, n in groups]),
        SECOND * rng.normal(size=(HIDDEN, width)) / np.sqrt(HIDDEN),
        BIAS * rng.normal(size=HIDDEN),
        BIAS * rng.normal(size=width),
    )


def latent_features(
    world: World, take: TakeTruth, times_SF: Array, tokens: int, fixed: LatentMap, noise: float = NOISE
) -> NDArray[np.float16]:
    """Return the features (S, tokens * D) of segments with frames at `times_SF`, seconds; frames per token are equal.

    A token is the second layer over the mean of the first over its frames, plus noise of its own.
    """
    n = len(times_SF)
    hidden = np.tanh(latent_inputs(world, take, times_SF.ravel()) @ fixed.first + fixed.first_bias)
    mean_SKH = hidden.reshape(n, tokens, -1, hidden.shape[1]).mean(axis=2)
    shown_SKD = np.tanh(mean_SKH @ fixed.second + fixed.second_bias)
    random = stream(world.config, "nuisance", take.index).normal(size=shown_SKD.shape)
    return np.asarray((shown_SKD + noise * random).reshape(n, -1), np.float16)


def latent_inputs(world: World, take: TakeTruth, t_s: Array) -> Array:
    """Return what still frames at times `t_s` (N,) show, shape (N, I), each number of deviation about 1.

    Colours, contrast and width of the station under the light of the take, which object is acted on (one of the
    places), a description of the room, and the light with the colours of the objects. Scene 0: all takes alike.
    """
    scene, light = world.config.scene, take_light(world, take)
    looks, steps = looks_at(take, t_s)
    gain = (light.gain + light.gain_slope * t_s)[:, None]
    difference = looks[:, [COLOURS]]
    board, mat = (gain * level(looks[:, :COLOURS] + side * difference) for side in (1.0, -1.0))
    colour = ((board + mat) / 2 - 0.5) * LOOK_SCALE
    detail = np.concatenate([(board - mat) / 2, level(looks[:, COLOURS + 1 :]) - 0.5], axis=1) * LOOK_SCALE
    acted = np.array([segment.place for segment in take.segments])[steps]
    place = np.eye(world.config.places)[acted]
    room = scene * stream(world.config, "room latent", take.capture).normal(size=ROOM_NUMBERS)
    objects = (light.objects.ravel() - 127.5) * OBJECT_SCALE
    lit = (gain - 1.0) * LIGHT_SCALE
    whole = np.broadcast_to(np.concatenate([room, objects]), (len(t_s), len(room) + len(objects)))
    return np.concatenate([colour, detail, place, whole, lit], axis=1)


def released_files(world: World, take: TakeTruth) -> NamedFiles:
    """Yield the file of released features of a take, a row per window of its video; none where the world has none."""
    if world.config.released is None:
        return
    released, buffer = RELEASED[world.config.released], io.BytesIO()
    clock, duration_s = released.clock, world.take_duration_s(take)
    n_frames = clock.n_frames(duration_s)
    spans_s = clock.spans_s(clock.n_rows(n_frames), n_frames)
    middles = (np.arange(clock.window) + 0.5) / clock.window
    times_NF = np.minimum(spans_s[:, :1] + np.diff(spans_s) * middles, duration_s)
    fixed = latent_map(world.config.places, released.width)
    rows_ND = latent_features(world, take, times_NF, 1, fixed).astype(np.float32)
    if released.suffix == ".npz":
        np.savez(buffer, feats=rows_ND)  # NPZ_KEY of the reader; a test reads it back
    else:
        import torch

        torch.save(torch.from_numpy(rows_ND), buffer)
    name = layout_of(world.config.layout).released_name(world, take)
    yield f"{released.folders[0]}/{name}{released.suffix}", buffer.getvalue()
