"""Small worlds of every layout, written once, and what the tests of layouts need to look into them."""

from pathlib import Path
from typing import NamedTuple, get_args

import av
import numpy as np

from schemas.world import KEPT_HABITS, LayoutName, WorldConfig, tiny_world
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.truth import TakeTruth, World
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages.stage import no_progress

OTHERS: tuple[LayoutName, ...] = tuple(name for name in get_args(LayoutName) if name != "egoexo4d")
"""Every layout but the default."""


class Written(NamedTuple):
    """A world on disk with its truth."""

    folder: Path
    world: World

    def good(self, split: str | None = None) -> list[TakeTruth]:
        return [t for t in self.world.takes if t.fault is None and split in (None, t.split)]

    def broken(self, fault: str) -> TakeTruth:
        return next(t for t in self.world.takes if t.fault == fault)


def small_world(layout: LayoutName, **changes: object) -> WorldConfig:
    """A world of a few seconds of work: every habit and every fault of the layout."""
    base = tiny_world().replace(
        name=f"small_{layout}", layout=layout, train_takes=5, test_takes=4, segments=6, segment_s=0.7, fps=10,
        size_px=64, dense_takes=0, broken_segments=4, operators=6,
    )  # fmt: skip
    return base.replace(**changes)


def court_world(**changes: object) -> WorldConfig:
    """A world of basketball in which most takes have shots of both kinds: no caption left out, few detours."""
    plain = {name: 0.0 for name in WorldConfig.model_fields if name.endswith("_share") and name not in KEPT_HABITS}
    return small_world("basketball", segments=9, advance=(0.02, 0.9, 0.06, 0.02), **plain).replace(**changes)


def written(folder: Path, config: WorldConfig) -> Written:
    """Write a world under `folder`."""
    write_world(config, folder, 1, no_progress)
    return Written(folder, sample_world(config))


def frame_times(path: Path) -> np.ndarray:
    """Return the presentation times of a video's frames, seconds."""
    with av.open(str(path)) as container:
        return np.array(sorted(float(p.pts * p.time_base) for p in container.demux(video=0) if p.pts is not None))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
