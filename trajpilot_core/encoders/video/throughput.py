"""How fast a video encoder runs here, against what the machine's matrix product reaches, and whether decoding keeps up.

Weights are random: speed does not depend on them. Operations are counted, two per multiply and add, for what the
encoder must compute; the machine's rate is that of its best matrix product in the same arithmetic, measured now.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.config import FeatureConfig
from schemas.vjepa import PATCH_PX, TUBELET, VJEPA_SIZES
from trajpilot_core.encoders.video.embed import Embedder
from trajpilot_core.encoders.video.frozen_vjepa import FrozenVjepa, in_bf16
from trajpilot_core.encoders.video.host_buffers import Wait
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder
from trajpilot_core.errors import InputError
from trajpilot_core.video.decode import frame_times_s
from trajpilot_core.video.isolate import run_jobs

FPS, KEYFRAME, CLIP_S = 30, 250, 1.0
GPU_SIDES, CPU_SIDES = (4096, 8192), (512, 1024)
"""Sides of the square matrices whose product is timed."""


@dataclass(frozen=True)
class Speed:
    """What was measured of one encoder; rates per second of wall time."""

    model: str
    arithmetic: str
    batch: int
    tera_per_clip: float
    """Operations per clip, 1e12."""
    encoded_hz: float
    """Clips per second, encoder alone."""
    decoded_hz: float
    """Clips per second, decoders alone."""
    both_hz: float
    """Clips per second, decoders ahead of the encoder, as the stage `features` does it."""
    waited_share: float
    """Share of that time in which the encoder waited for a clip."""
    matrix_tera_hz: float
    """Best matrix product, 1e12 operations per second."""

    @property
    def matrix_share(self) -> float:
        """Share of the matrix rate that the encoder alone reaches."""
        return self.encoded_hz * self.tera_per_clip / self.matrix_tera_hz

    @property
    def overlap(self) -> float:
        """Share of the decoding that the encoder did not wait for, 0 to 1; 0: they take turns."""
        waited_s, decode_s = self.waited_share / self.both_hz, 1 / self.decoded_hz
        return min(1.0, max(0.0, 1 - waited_s / decode_s))


def n_operations(model: str, n_frames: int, size_px: int) -> int:
    """Count the operations of one clip: projections, MLPs, attention over all tokens, and the patch embedding."""
    width, depth, _, hidden = VJEPA_SIZES[model]
    tokens = n_frames // TUBELET * (size_px // PATCH_PX) ** 2
    block = 2 * tokens * (4 * width * width + 2 * width * hidden) + 4 * tokens * tokens * width
    return depth * block + 2 * tokens * width * 3 * TUBELET * PATCH_PX**2


def random_vjepa(cfg: FeatureConfig, device: str) -> FrozenVjepa:
    """Return an encoder of the configured size with random weights, in the configured arithmetic.

    Raises:
        InputError: the weights alone do not fit into the device's memory.
    """
    with torch.device("meta"):
        network = VjepaEncoder(SIZES[cfg.model]).to(torch.bfloat16 if in_bf16(cfg, device) else torch.float32)
    try:
        network = network.to_empty(device=device)
    except torch.OutOfMemoryError as error:
        raise InputError(f"the weights of {cfg.model} do not fit into the memory of {device}: {error}") from error
    with torch.no_grad():
        for name, value in network.named_parameters():
            value.fill_(1.0) if "norm" in name and name.endswith("weight") else value.normal_(std=0.02)
    if cfg.compile:
        network.compile_blocks()
    return FrozenVjepa(network.eval().requires_grad_(False), cfg, "random")


def matrix_tera_hz(device: str, dtype: torch.dtype, rounds: int = 5) -> float:
    """Time square matrix products and return the best rate, 1e12 operations per second (two per multiply and add)."""
    best = 0.0
    for side in GPU_SIDES if device.startswith("cuda") else CPU_SIDES:
        a = torch.randn(side, side, device=device, dtype=dtype)
        best = max(best, 2 * side**3 / _seconds(lambda a=a: a @ a, device, rounds) / 1e12)  # type: ignore[misc]
    return best


def _seconds(call: Callable[[], Tensor | NDArray[Any]], device: str, rounds: int) -> float:
    """Return the median time of a call after one that is not counted, seconds."""
    times_s = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        times_s.append(time.perf_counter() - began)
    return statistics.median(times_s[1:])


def write_sample(path: Path, seconds: float, side_px: int = 448) -> None:
    """Write a moving texture as the head videos are: H.264, 30 frames a second, a keyframe every 250 frames."""
    low = np.random.default_rng(0).integers(0, 256, (side_px // 8, side_px // 8, 3), dtype=np.uint8)
    texture = low.repeat(8, axis=0).repeat(8, axis=1)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = side_px
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, FPS)
        stream.options = {"preset": "veryfast", "crf": "23", "g": str(KEYFRAME), "bf": "3"}
        for number in range(round(seconds * FPS)):
            picture = np.roll(texture, (2 * number, 3 * number), axis=(0, 1))
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def clips_of(video: Path, n_clips: int, cfg: FeatureConfig, workers: int) -> Iterator[NDArray[np.uint8]]:
    """Decode clips (T, size, size, 3) of a sample, one second each, as the stage does: in children, ahead.

    Raises:
        InputError: the sample cannot be decoded.
    """
    times_s = [frame_times_s(at * CLIP_S, (at + 1) * CLIP_S, FPS, cfg.n_frames).tolist() for at in range(n_clips)]
    common = {"kind": "clips", "path": str(video), "size_px": cfg.size_px, "backend": cfg.backend}
    parts = [times_s[at::workers] for at in range(min(workers, n_clips))]
    jobs = [{**common, "times_s": part, "resize": cfg.resize} for part in parts]
    for event in run_jobs(jobs, workers=workers, timeout_s=cfg.decode_timeout_s, ahead=2 * cfg.batch):
        if event.kind in ("failed", "fault"):
            raise InputError(f"the sample video cannot be decoded: {event.values['detail']}")
        if event.frames is not None:
            yield event.frames


def measure(cfg: FeatureConfig, device: str, workers: int, n_clips: int, folder: Path) -> Speed:
    """Measure one encoder with random weights.

    Args:
        cfg: size, frames, batch, arithmetic, filter.
        device: cpu or cuda.
        workers: decoder processes.
        n_clips: clips of one second that the sample video has; whole batches are best.
        folder: where the sample is written, if it is not there.
    """
    video = folder / f"sample-{n_clips}.mp4"
    if not video.exists():
        write_sample(video, n_clips * CLIP_S + 1)
    encoder = random_vjepa(cfg, device)
    embedder = Embedder(encoder, cfg, device, cfg.batch)
    blank = np.zeros((cfg.batch, cfg.n_frames, cfg.size_px, cfg.size_px, 3), np.uint8)
    encode_s = _seconds(lambda: embedder.embed(blank), device, 3) / cfg.batch
    decode_s, _ = _drained(clips_of(video, n_clips, cfg, workers), None)
    both_s, waited_s = _drained(clips_of(video, n_clips, cfg, workers), embedder)
    return Speed(
        model=cfg.model,
        arithmetic="bf16" if encoder.dtype == torch.bfloat16 else "fp32",
        batch=embedder.batch,
        tera_per_clip=n_operations(cfg.model, cfg.n_frames, cfg.size_px) / 1e12,
        encoded_hz=1 / encode_s,
        decoded_hz=n_clips / decode_s,
        both_hz=n_clips / both_s,
        waited_share=waited_s / both_s,
        matrix_tera_hz=matrix_tera_hz(device, encoder.dtype),
    )


def _drained(clips: Iterator[NDArray[np.uint8]], embedder: Embedder | None) -> tuple[float, float]:
    """Read all clips, through the encoder where there is one.

    Returns seconds since the first clip came, and how many of them went by in waiting for the next one.
    """
    batch, waited_s, waiting = [next(clips)], 0.0, deque[Wait]()
    began = asked = time.perf_counter()
    for frames in clips:
        waited_s += time.perf_counter() - asked
        if embedder is not None and len(batch) == embedder.config.batch:
            waiting.append(embedder.begin(batch))
            batch.clear()
            if len(waiting) > embedder.late:
                waiting.popleft()()
        batch.append(frames)
        asked = time.perf_counter()
    waited_s += time.perf_counter() - asked
    if embedder is not None:
        waiting.append(embedder.begin(batch))
    for wait in waiting:
        wait()
    return time.perf_counter() - began, waited_s
