"""Test videos with their frame numbers burnt in, made on the spot with PyAV."""

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

BITS = 16


def picture(number: int, width: int, height: int, noise: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Moving texture (height, width, 3) with `number` as 16 black or white blocks along the top quarter."""
    image = np.roll(noise, (number * 3, number * 5), axis=(0, 1)).copy()
    bits = [255 if number >> bit & 1 else 0 for bit in range(BITS)]
    row = np.repeat(np.array(bits, np.uint8), width // BITS)
    image[: height // 4, : len(row)] = row[None, :, None]
    return image


def burnt_in(image: NDArray[np.uint8]) -> int:
    """Read the number back from a picture of any size."""
    height, width = image.shape[:2]
    x = ((np.arange(BITS) + 0.5) * width / BITS).astype(int)
    lit = image[height // 8, x].mean(axis=-1) > 127
    return int(sum(1 << bit for bit in range(BITS) if lit[bit]))


def write_video(
    path: Path, n_frames: int = 60, *, width: int = 128, height: int = 128, fps: int = 30, keyframe: int = 25,
    b_frames: int = 3, skip: Sequence[int] = (), faststart: bool = True, codec: str = "libx264",
    colour: Sequence[int] = (),
) -> Path:  # fmt: skip
    """Write an H.264 file; frames in `skip` are left out, their times with them; `colour` tints the texture."""
    rng = np.random.default_rng(0)
    low = rng.integers(60, 190, (height // 8, width // 8, 3), dtype=np.uint8)
    noise = low.repeat(8, axis=0).repeat(8, axis=1)
    if len(colour):
        noise = (0.4 * noise + 0.6 * np.array(colour)).astype(np.uint8)
    movflags = {"movflags": "+faststart"} if faststart and path.suffix == ".mp4" else {}
    with av.open(str(path), "w", options=movflags) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size = keyframe
        stream.codec_context.max_b_frames = b_frames
        if codec == "libx264":
            stream.options = {"preset": "veryfast", "crf": "23", "sc_threshold": "0", "threads": "1"}
        for number in range(n_frames):
            if number not in skip:
                frame = av.VideoFrame.from_ndarray(picture(number, width, height, noise), format="rgb24")
                frame.pts = number
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def cut_copy(source: Path, target: Path, start: int) -> Path:
    """Cut without decoding, as `ffmpeg -ss -c copy`: packets from a keyframe on, the frames before `start` hidden."""
    with av.open(str(source)) as reading, av.open(str(target), "w") as writing:
        stream = reading.streams.video[0]
        copy = writing.add_stream_from_template(stream)
        tick = int(1 / (stream.average_rate * stream.time_base))
        for packet in reading.demux(stream):
            if packet.dts is not None:
                packet.pts, packet.dts = packet.pts - start * tick, packet.dts - start * tick
                packet.stream = copy
                writing.mux(packet)
    return target
