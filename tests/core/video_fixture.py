"""Test videos with their frame numbers burnt in, made on the spot with PyAV."""

import struct
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import OutputContainer
from numpy.typing import NDArray

BITS = 16
MILLISECOND = Fraction(1, 1000)


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
    path: Path, n_frames: int = 60, *, width: int = 128, height: int = 128, fps: int | Fraction = 30,
    keyframe: int = 25, b_frames: int = 3, skip: Sequence[int] = (), faststart: bool = True, codec: str = "libx264",
    colour: Sequence[int] = (), pts_ms: Sequence[int] | None = None, muxer: Mapping[str, str] | None = None,
    encoder: Mapping[str, str] | None = None, audio_s: float = 0.0,
) -> Path:  # fmt: skip
    """Write a video; frames in `skip` are left out, their times with them; `colour` tints the texture.

    `pts_ms`: time of each frame in milliseconds; `muxer`, `encoder`: options of FFmpeg; `audio_s`: silence beside it.
    """
    rng = np.random.default_rng(0)
    low = rng.integers(60, 190, (height // 8, width // 8, 3), dtype=np.uint8)
    noise = low.repeat(8, axis=0).repeat(8, axis=1)
    if len(colour):
        noise = (0.4 * noise + 0.6 * np.array(colour)).astype(np.uint8)
    movflags = {"movflags": "+faststart"} if faststart and path.suffix == ".mp4" else {}
    with av.open(str(path), "w", options={**movflags, **(muxer or {})}) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.gop_size = keyframe
        stream.codec_context.max_b_frames = b_frames
        if codec == "libx264":
            stream.options = {"preset": "veryfast", "crf": "23", "sc_threshold": "0", "threads": "1"}
        stream.options = {**stream.options, **(encoder or {})}
        if pts_ms is not None:
            stream.codec_context.time_base = MILLISECOND
        write_silence(container, audio_s)
        for number in range(n_frames):
            if number not in skip:
                frame = av.VideoFrame.from_ndarray(picture(number, width, height, noise), format="rgb24")
                frame.pts = number if pts_ms is None else int(pts_ms[number])
                if pts_ms is not None:
                    frame.time_base = MILLISECOND
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_silence(container: OutputContainer, length_s: float) -> None:
    """Add an audio stream of that length; none for 0 s."""
    if length_s:
        stream = container.add_stream("aac", rate=8000)
        samples = np.zeros((1, round(length_s * 8000)), np.float32)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
        frame.rate, frame.pts = 8000, 0
        container.mux([*stream.encode(frame), *stream.encode(None)])


def looped(source: Path, target: Path, times: int) -> Path:
    """Repeat the packets of a video without encoding them again: a long file of the same structure."""
    with av.open(str(source)) as reading, av.open(str(target), "w", options={"movflags": "+faststart"}) as writing:
        stream = reading.streams.video[0]
        copy = writing.add_stream_from_template(stream)
        packets = [(p.pts, p.dts, bytes(p), p.is_keyframe) for p in reading.demux(stream) if p.dts is not None]
        length = len(packets) * round(1 / (stream.average_rate * stream.time_base))
        for number in range(times):
            for pts, dts, content, is_key in packets:
                packet = av.Packet(content)
                packet.pts, packet.dts, packet.time_base = (
                    pts + number * length,
                    dts + number * length,
                    stream.time_base,
                )
                packet.is_keyframe, packet.stream = is_key, copy
                writing.mux(packet)
    return target


def patched(source: Path, target: Path, box: bytes, offset: int, content: bytes) -> Path:
    """Overwrite bytes of an MP4 box, counted from the end of its name."""
    raw = bytearray(source.read_bytes())
    at = raw.index(box) + 4 + offset
    raw[at : at + len(content)] = content
    target.write_bytes(raw)
    return target


def with_matrix(source: Path, target: Path, matrix: Sequence[float]) -> Path:
    """Write a, b, c, d of the track's display matrix."""
    a, b, c, d = (round(value * 65536) & 0xFFFFFFFF for value in matrix)
    return patched(source, target, b"tkhd", 40, struct.pack(">IIIII", a, b, 0, c, d))


def without_packets(source: Path, target: Path, lost: Collection[int]) -> Path:
    """Copy a video without those packets (numbers in decoding order); what was built on them stays."""
    with av.open(str(source)) as reading, av.open(str(target), "w") as writing:
        stream = reading.streams.video[0]
        copy = writing.add_stream_from_template(stream)
        for number, packet in enumerate(p for p in reading.demux(stream) if p.dts is not None):
            if number not in lost:
                packet.stream = copy
                writing.mux(packet)
    return target


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
