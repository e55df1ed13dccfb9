"""Clips of videos as every token of a frozen encoder, decoded and encoded whenever they are read: nothing is kept.

Source: docs/decisions/epic-probe.md. Shapes: M clips, B clips of a batch, T frames, N tokens, D width.
"""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from schemas.config import FeatureConfig
from schemas.probe import ProbeConfig
from schemas.vjepa import TUBELET
from trajpilot_core.arrays import Array
from trajpilot_core.encoders.video.frozen_vjepa import IMAGENET_MEAN, IMAGENET_STD, FrozenVjepa
from trajpilot_core.encoders.video.registry import load_video_encoder
from trajpilot_core.errors import InputError, NotBuiltError
from trajpilot_core.memory import in_parts
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.video.isolate import Event, run_jobs
from trajpilot_core.video.local import local_copies

ERASED_SCALE, ERASED_RATIO = (0.02, 1 / 3), (0.3, 1 / 0.3)
"""Share of the picture that is erased, and width by height of the rectangle. Source: V-JEPA 2."""
ATTEMPTS = 10
"""At a part of the picture of the sampled size and shape, before all of it is shown; as in torchvision."""


class PartShown(NamedTuple):
    """A rectangle of the picture, as shares of its sides."""

    left: float = 0.0
    top: float = 0.0
    width: float = 1.0
    height: float = 1.0


class ClipView(NamedTuple):
    """One clip as it is shown once."""

    row: int
    """Which one."""
    later_s: float = 0.0
    """By how much later its frames are than those of the features; negative: earlier."""
    ahead: int | None = None
    """Which tubelet after its last one is predicted; None: none."""
    part: PartShown = PartShown()
    is_mirrored: bool = False
    erased: "ErasedPart | None" = None


class ErasedPart(NamedTuple):
    """Noise in place of a rectangle of the picture, the same rectangle in every frame."""

    part: PartShown
    seed: int
    """Of the noise."""


@dataclass(frozen=True)
class StreamPlace:
    """Where videos lie, and who decodes them."""

    data_root: str
    workers: int
    scratch: Path


@dataclass(frozen=True)
class ClipStream:
    """M clips, and the encoder that they go through."""

    videos: tuple[str, ...]
    """(M,) relative to the data root."""
    times_s: Array
    """(M, T) times of the frames of the features, seconds from the start of the video."""
    action_s: Array
    """(M,) when the action starts."""
    encoder: FrozenVjepa
    place: StreamPlace

    @property
    def config(self) -> FeatureConfig:
        """How frames are decoded and encoded."""
        return self.encoder.config

    def whole(self, row: int) -> ClipView:
        """Return a clip as the features have it."""
        return ClipView(row, ahead=self.config.ahead_tubelets)

    def sampled(self, row: int, cfg: ProbeConfig, generator: torch.Generator) -> ClipView:
        """Return a clip as training shows it: with a gap and a part of the picture of its own."""
        view = self.whole(row)
        if cfg.random_gap_s is not None:
            gap_s = uniform(cfg.random_gap_s, generator)
            last_s = float(self.times_s[row, -1])
            later_s = max(float(self.action_s[row]) - gap_s - last_s, -float(self.times_s[row, 0]))
            view = view._replace(later_s=later_s, ahead=self._tubelets(row, gap_s))
        if cfg.crop_scale is not None:
            view = view._replace(part=some_part(cfg.crop_scale, cfg.crop_ratio, generator))
        if uniform((0.0, 1.0), generator) < cfg.mirror_share:
            view = view._replace(is_mirrored=True)
        if uniform((0.0, 1.0), generator) < cfg.erase_share:
            seed = int(torch.randint(2**31, (), generator=generator))
            view = view._replace(erased=ErasedPart(some_part(ERASED_SCALE, ERASED_RATIO, generator), seed))
        return view

    def _tubelets(self, row: int, gap_s: float) -> int | None:
        """Return which tubelet after a clip begins the action: whole ones are counted, as V-JEPA 2 does."""
        if self.config.ahead_tubelets is None:
            return None
        times_s = self.times_s[row]
        rate_hz = (len(times_s) - 1) / max(1e-6, float(times_s[-1] - times_s[0]))
        return int(gap_s * rate_hz / TUBELET)

    def tokens(self, batches: Sequence[Sequence[ClipView]]) -> Iterator[Tensor]:
        """Yield the tokens (B, N, D) of each batch, on the device of the encoder; decoders work ahead.

        Raises:
            InputError: a clip cannot be decoded.
        """
        views = [view for batch in batches for view in batch]
        cfg = self.config
        events = run_jobs(
            [self._job(view) for view in views],
            workers=self.place.workers,
            timeout_s=cfg.decode_timeout_s,
            ahead=2 * cfg.batch,
            around=local_copies(open_corpus(self.place.data_root), self.place.scratch),
        )
        with closing(in_order(events, views, self.videos)) as clips:
            for batch in batches:
                yield self._encoded([next(clips) for _ in batch], batch)

    def _job(self, view: ClipView) -> dict[str, Any]:
        """Return what a decoder process receives about a clip."""
        cfg, video = self.config, self.videos[view.row]
        return {
            "kind": "clips",
            "video": video,
            "path": video,
            "times_s": [(self.times_s[view.row] + view.later_s).tolist()],
            "size_px": cfg.size_px,
            "backend": cfg.backend,
            "resize": cfg.resize,
            "max_off_s": cfg.max_off_s,
        }

    def _encoded(self, clips: Sequence[NDArray[np.uint8]], views: Sequence[ClipView]) -> Tensor:
        """Return the tokens (B, N, D) of decoded clips (T, size, size, 3)."""
        device = next(self.encoder.network.parameters()).device

        def part(rows: slice) -> Tensor:
            shown = [
                as_shown(torch.from_numpy(clip).to(device), view)
                for clip, view in zip(clips[rows], views[rows], strict=True)
            ]
            ahead = [view.ahead for view in views[rows] if view.ahead is not None]
            return self.encoder.every_token(torch.stack(shown), torch.tensor(ahead) if ahead else None)

        what = f"one clip of {self.config.n_frames} frames does not fit into the memory of {device}"
        return torch.cat(in_parts(len(clips), self.config.batch, part, what, "choose a smaller features.model"))


def in_order(
    events: Iterator[Event], views: Sequence[ClipView], videos: Sequence[str]
) -> Generator[NDArray[np.uint8], None, None]:
    """Yield the frames (T, size, size, 3) of each view in its place; decoders end in any order.

    Raises:
        InputError: one cannot be decoded; the features were, so the file has changed or a part of it is damaged that
            only this view needs.
    """
    waiting: dict[int, NDArray[np.uint8]] = {}
    due = 0
    for event in events:
        if event.kind in ("fault", "failed"):
            view = views[event.job]
            raise InputError(
                f"probe: a clip of {videos[view.row]}, {view.later_s:+.3f} s from that of the features, cannot be "
                f"decoded ({event.values['detail']}); fix the file, or set probe.random_gap_s=null"
            )
        if event.frames is not None:
            waiting[event.job] = event.frames
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def uniform(bounds: tuple[float, float], generator: torch.Generator) -> float:
    """Return a number between two."""
    return bounds[0] + (bounds[1] - bounds[0]) * float(torch.rand((), generator=generator))


def some_part(scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator) -> PartShown:
    """Return a part of the picture: share of its area and logarithm of width by height are uniform, its place, too.

    Args:
        scale: least and largest share of the area.
        ratio: least and largest width by height.
        generator: samples it.
    """
    for _ in range(ATTEMPTS):
        area = uniform(scale, generator)
        shape = math.exp(uniform((math.log(ratio[0]), math.log(ratio[1])), generator))
        width, height = math.sqrt(area * shape), math.sqrt(area / shape)
        if width <= 1 and height <= 1:
            left, top = (uniform((0.0, 1.0 - side), generator) for side in (width, height))
            return PartShown(left, top, width, height)
    return PartShown()


def cut(frames_THWC: Tensor, part: PartShown) -> Tensor:
    """Return a part of pictures (T, H, W, 3), uint8, as large as the whole, by an antialiased bilinear filter."""
    if part == PartShown():
        return frames_THWC
    height, width = frames_THWC.shape[1:3]
    top, left = int(part.top * height), int(part.left * width)
    rows, columns = max(1, round(part.height * height)), max(1, round(part.width * width))
    shown = frames_THWC[:, top : top + rows, left : left + columns].permute(0, 3, 1, 2).float()
    large = F.interpolate(shown, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return large.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def as_shown(frames_THWC: Tensor, view: ClipView) -> Tensor:
    """Return pictures (T, H, W, 3), uint8, as a view has them: the part, mirrored, then the noise."""
    shown = cut(frames_THWC, view.part)
    if view.is_mirrored:
        shown = shown.flip(2)
    return shown if view.erased is None else erased(shown, view.erased)


def erased(frames_THWC: Tensor, erased: ErasedPart) -> Tensor:
    """Return pictures (T, H, W, 3), uint8, with noise of its own in every pixel of a rectangle.

    Of mean zero and deviation one where the encoder reads it; here rounded to bytes, and cut to their range.
    """
    height, width = frames_THWC.shape[1:3]
    part, generator = erased.part, torch.Generator().manual_seed(erased.seed)
    rows, columns = max(1, round(part.height * height)), max(1, round(part.width * width))
    top, left = min(int(part.top * height), height - rows), min(int(part.left * width), width - columns)
    noise = torch.randn((len(frames_THWC), rows, columns, 3), generator=generator)
    pixels = 255 * (noise * torch.tensor(IMAGENET_STD) + torch.tensor(IMAGENET_MEAN))
    out = frames_THWC.clone()
    block = pixels.round().clamp(0, 255).to(torch.uint8)
    out[:, top : top + rows, left : left + columns] = block.to(out.device)
    return out


def open_encoder(cfg: FeatureConfig, device: str, scratch: Path) -> FrozenVjepa:
    """Load the encoder that clips go through.

    Raises:
        NotBuiltError: it hands out no tokens of patches.
        CheckpointError: its weights cannot be used.
    """
    encoder = load_video_encoder(cfg, device, scratch)
    if not isinstance(encoder, FrozenVjepa):
        raise NotBuiltError(
            f"probe.tokens=full reads every patch, which the encoder {cfg.model} does not hand out; set features.model "
            "to a V-JEPA, or probe.tokens=temporal"
        )
    return encoder


def clip_stream(
    facts: Mapping[str, tuple[str, Sequence[float], float]],
    ids: Sequence[str],
    encoder: FrozenVjepa,
    place: StreamPlace,
) -> ClipStream:
    """Return the stream of some clips.

    Args:
        facts: clip -> its video, times of its frames, and when its action starts, seconds.
        ids: of the clips, in their order.
        encoder: that they go through.
        place: where videos lie.
    """
    found = [facts[one] for one in ids]
    times_s = np.array([times for _, times, _ in found], dtype=np.float64)
    return ClipStream(tuple(v for v, _, _ in found), times_s, np.array([at for _, _, at in found]), encoder, place)
