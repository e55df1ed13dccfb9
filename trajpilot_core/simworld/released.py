"""Released features of a simulated world: files as corpora publish them, SIMULATED, next to the videos.

A row is a map of what a still head would see at the frames of its window (latents.py), so that the file moves with time
as a real one does and tells nothing about the features of a real encoder. Source: docs/decisions/released-features.md.
"""

import io

import numpy as np
from numpy.typing import NDArray

from schemas.world import LatentMapConfig
from trajpilot_core.corpora.released import RELEASED, ReleasedFeatures
from trajpilot_core.simworld.latents import latent_features, latent_map
from trajpilot_core.simworld.layouts.base import NamedFiles
from trajpilot_core.simworld.layouts.registry import layout_of
from trajpilot_core.simworld.world.truth import TakeTruth, World


def released_files(world: World, take: TakeTruth) -> NamedFiles:
    """Yield the file of released features of a take; nothing where the world has none."""
    if world.config.released is None:
        return
    released, buffer = RELEASED[world.config.released], io.BytesIO()
    rows_ND = released_rows(world, take, released).astype(np.float32)
    if released.suffix == ".npz":
        np.savez(buffer, feats=rows_ND)  # NPZ_KEY of the reader; a test reads it back
    else:
        import torch

        torch.save(torch.from_numpy(rows_ND), buffer)
    name = layout_of(world.config.layout).released_name(world, take)
    yield f"{released.folders[0]}/{name}{released.suffix}", buffer.getvalue()


def released_rows(world: World, take: TakeTruth, released: ReleasedFeatures) -> NDArray[np.float16]:
    """Return the (N, D) rows of a take, one for each window of its video."""
    clock, duration_s = released.clock, world.take_duration_s(take)
    n_frames = clock.n_frames(duration_s)
    spans_s = clock.spans_s(clock.n_rows(n_frames), n_frames)
    middles = (np.arange(clock.window) + 0.5) / clock.window
    times_NF = np.minimum(spans_s[:, :1] + np.diff(spans_s) * middles, duration_s)
    made = latent_map(LatentMapConfig(), world.config.places, released.width)
    return latent_features(world, take, times_NF, 1, made)
