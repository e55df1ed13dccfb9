"""All tokens of a frozen encoder for clips of videos, decoded and encoded each time they are read; nothing is stored.

Source: docs/decisions/epic-probe.md. Shapes: M clips, B clips of a batch, T frames, N tokens, D width.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.config import FeatureConfig
from schemas.events import ProbeConfig
from schemas.features import TUBELET
from trajpilot_core.arrays import Array
from trajpilot_core.encoders.video.frozen_vjepa import IMAGENET_MEAN, IMAGENET_STD, FrozenVjepa
from trajpilot_core.encoders.video.registry import load_video_encoder
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import InputError, NotBuiltError
from trajpilot_core.memory import in_parts
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.video.isolate import Event, local_copies, run_jobs

ERASED_SCALE, ERASED_RATIO = (0.02, 1 / 3), (0.3, 1 / 0.3)
"""Share of the picture that is erased, and width / height of the rectangle. Source: V-JEPA 2."""
ATTEMPTS = 10
"""Attempts to sample a rectangle that fits, before the whole picture is erased."""


class ErasedPart(NamedTuple):
    """Noise that replaces a rectangle of the picture, shares of its sides, the same one in every frame."""

    seed: int
    """Seed of the noise."""
    left: float = 0.0
    top: float = 0.0
    width: float = 1.0
    height: float = 1.0


class Augment(NamedTuple):
    """RandAugment and a random crop, the same in every frame: arguments of `trajpilot_core.video.views.augmented`."""

    seed: int
    operations: int
    level: float
    deviation: float
    scale: tuple[float, float] | None
    ratio: tuple[float, float]


class ClipView(NamedTuple):
    """One view of a clip."""

    row: int
    """Number of the clip."""
    later_s: float = 0.0
    """How much later its frames are than those of the features; negative: earlier."""
    ahead: int | None = None
    """Which tubelet after the last one is predicted; None: no tubelet."""
    augment: Augment | None = None
    """None: the picture as in the features."""
    is_mirrored: bool = False
    erased: ErasedPart | None = None


@dataclass(frozen=True)
class ClipStream:
    """M clips, and their encoder."""

    videos: tuple[str, ...]
    """(M,) relative to the data root."""
    times_s: Array
    """(M, T) times of the frames of the features, seconds from the start of the video."""
    action_s: Array
    """(M,) start of the action, seconds."""
    encoder: FrozenVjepa
    runtime: Runtime
    """Where videos are, and how many processes decode them."""

    def of(self, rows: Sequence[int]) -> "ClipStream":
        """Return the stream of some of its clips, by their numbers."""
        videos = tuple(self.videos[row] for row in rows)
        return replace(self, videos=videos, times_s=self.times_s[list(rows)], action_s=self.action_s[list(rows)])

    def whole(self, row: int) -> ClipView:
        """Return the view of a clip that the features have."""
        return ClipView(row, ahead=self.encoder.config.ahead_tubelets)

    def sampled(self, row: int, cfg: ProbeConfig, generator: torch.Generator) -> ClipView:
        """Return a view of a clip for training, with a sampled gap and augmentation."""
        view = self.whole(row)
        if cfg.random_gap_s is not None:
            gap_s = uniform(cfg.random_gap_s, generator)
            last_s = float(self.times_s[row, -1])
            later_s = max(float(self.action_s[row]) - gap_s - last_s, -float(self.times_s[row, 0]))
            times_s = self.times_s[row]
            rate_hz = (len(times_s) - 1) / max(1e-6, float(times_s[-1] - times_s[0]))
            n_tubelets = int(gap_s * rate_hz / TUBELET)  # until the action: whole ones count, as in V-JEPA 2
            view = view._replace(later_s=later_s, ahead=None if view.ahead is None else n_tubelets)
        if cfg.rand_augment is not None or cfg.crop_scale is not None:
            operations, level, deviation = cfg.rand_augment or (0, 0.0, 0.0)
            seed = int(torch.randint(2**31, (), generator=generator))
            view = view._replace(augment=Augment(seed, operations, level, deviation, cfg.crop_scale, cfg.crop_ratio))
        if uniform((0.0, 1.0), generator) < cfg.mirror_share:
            view = view._replace(is_mirrored=True)
        if uniform((0.0, 1.0), generator) < cfg.erase_share:
            seed = int(torch.randint(2**31, (), generator=generator))
            view = view._replace(erased=erased_part(seed, generator))
        return view

    def tokens(self, batches: Sequence[Sequence[ClipView]]) -> Iterator[Tensor]:
        """Yield the tokens (B, N, D) of each batch, on the device of the encoder; clips are decoded ahead.

        Raises InputError: a clip cannot be decoded.
        """
        views, jobs = [view for batch in batches for view in batch], []
        cfg, device = self.encoder.config, next(self.encoder.network.parameters()).device
        for view in views:
            job = clip_job(self.videos[view.row], [(self.times_s[view.row] + view.later_s).tolist()], cfg)
            jobs.append(job if view.augment is None else {**job, "augment": view.augment._asdict()})
        events = run_jobs(
            jobs,
            workers=self.runtime.workers,
            timeout_s=cfg.decode_timeout_s,
            ahead=2 * cfg.batch,
            around=local_copies(open_corpus(self.runtime.data_root), self.runtime.scratch),
        )
        with closing(in_order(events, views, self.videos)) as clips:
            for batch in batches:  # the clips get no name here: it would hold them until the next batch is decoded
                yield torch.cat(
                    in_parts(
                        len(batch),
                        cfg.batch,
                        partial(self._encoded, [torch.from_numpy(next(clips)) for _ in batch], batch, device),
                    )
                )

    def _encoded(self, frames: list[Tensor], views: Sequence[ClipView], device: torch.device, rows: slice) -> Tensor:
        """Return the tokens (b, N, D) of some clips of a batch, each (T, size, size, 3)."""
        pairs = zip(frames[rows], views[rows], strict=True)
        shown = torch.stack([as_shown(clip.to(device), view) for clip, view in pairs])
        ahead = [view.ahead for view in views[rows] if view.ahead is not None]
        return self.encoder.every_token(shown, torch.tensor(ahead) if ahead else None)


def clip_job(video: str, times_s: list[list[float]], cfg: FeatureConfig) -> dict[str, Any]:
    """Return the job of a decoder process that decodes clips of a video for an encoder, each at its frame times."""
    return {
        "kind": "clips",
        "video": video,
        "path": video,
        "times_s": times_s,
        "size_px": cfg.size_px,
        "backend": cfg.backend,
        "resize": cfg.resize,
        "max_off_s": cfg.max_off_s,
    }


def in_order(
    events: Iterator[Event], views: Sequence[ClipView], videos: Sequence[str]
) -> Generator[NDArray[np.uint8], None, None]:
    """Yield the frames (T, size, size, 3) of the views in order; decoders finish in any order.

    Raises InputError: a view cannot be decoded, although the features were: the file has changed, or is damaged in a
        part that only this view needs.
    """
    waiting: dict[int, NDArray[np.uint8]] = {}
    due = 0
    for event in events:
        if event.kind in ("fault", "failed"):
            view = views[event.job]
            raise InputError(
                f"probe: a clip of {videos[view.row]}, shifted by {view.later_s:+.3f} s, cannot be "
                f"decoded ({event.values['detail']}); fix the file, or set probe.random_gap_s=null"
            )
        if event.frames is not None:
            waiting[event.job] = event.frames
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def uniform(bounds: tuple[float, float], generator: torch.Generator) -> float:
    """Return a uniform sample between two bounds."""
    return bounds[0] + (bounds[1] - bounds[0]) * float(torch.rand((), generator=generator))


def erased_part(seed: int, generator: torch.Generator) -> ErasedPart:
    """Return a sampled rectangle: its share of the area, the logarithm of its aspect ratio and its place are uniform.

    Where none of a few fits, that is the whole picture.
    """
    for _ in range(ATTEMPTS):
        area = uniform(ERASED_SCALE, generator)
        shape = math.exp(uniform((math.log(ERASED_RATIO[0]), math.log(ERASED_RATIO[1])), generator))
        width, height = math.sqrt(area * shape), math.sqrt(area / shape)
        if width <= 1 and height <= 1:
            left, top = (uniform((0.0, 1.0 - side), generator) for side in (width, height))
            return ErasedPart(seed, left, top, width, height)
    return ErasedPart(seed)


def as_shown(frames_THWC: Tensor, view: ClipView) -> Tensor:
    """Return decoded pictures (T, H, W, 3), uint8, of a view: mirrored, then with noise in every pixel of a rectangle.

    The mean of the noise is 0 and its deviation 1 in the encoder's input; here it is rounded to bytes and clamped.
    """
    frames = frames_THWC.flip(2) if view.is_mirrored else frames_THWC
    if view.erased is None:
        return frames
    height, width = frames.shape[1:3]
    part, generator = view.erased, torch.Generator().manual_seed(view.erased.seed)
    rows, columns = max(1, round(part.height * height)), max(1, round(part.width * width))
    top, left = min(int(part.top * height), height - rows), min(int(part.left * width), width - columns)
    noise = torch.randn((len(frames), rows, columns, 3), generator=generator)
    pixels = 255 * (noise * torch.tensor(IMAGENET_STD) + torch.tensor(IMAGENET_MEAN))
    out = frames.clone()
    block = pixels.round().clamp(0, 255).to(torch.uint8)
    out[:, top : top + rows, left : left + columns] = block.to(out.device)
    return out


def open_encoder(cfg: FeatureConfig, device: str, scratch: Path) -> FrozenVjepa:
    """Load the encoder of clips.

    Raises NotBuiltError: it does not return tokens of patches; CheckpointError: its weights cannot be used.
    """
    encoder = load_video_encoder(cfg, device, scratch)
    if not isinstance(encoder, FrozenVjepa):
        raise NotBuiltError(
            f"probe.tokens=full reads every patch, but the encoder {cfg.model} does not return patches; set "
            "features.model to a V-JEPA, or probe.tokens=temporal"
        )
    return encoder
