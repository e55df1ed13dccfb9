"""CPU seconds per segment of our frame reader against decord, in one interleaved run.

    python benchmarks/video.py [--rounds 3] [--folder FOLDER]

Every reader opens the file and decodes 16 consecutive frames per segment at 384 x 384 RGB on one thread in its own
process; the burnt-in number of every frame is checked. Required: at least 1.3 times less CPU time than decord when
segments are sparse, 1.5 times when they are dense, and no wrong frame (docs/decisions/video-backend.md).
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from trajpilot_core.video.decode import DecodedClip, clips

FPS, SECONDS, SIDE_PX, OUT_PX, KEYFRAME, N_FRAMES = 30, 180, 448, 384, 250, 16
CASES = {"sparse": (24, 1.3), "dense": (150, 1.5)}
"""Case -> (segments in the video, required ratio to decord)."""
Images = NDArray[np.uint8]


def picture(number: int, noise: Images) -> Images:
    """Moving texture with the number as 16 blocks along the top."""
    image = np.roll(noise, (number * 2, number * 3), axis=(0, 1)).copy()
    bits = np.array([255 if number >> bit & 1 else 0 for bit in range(16)], np.uint8)
    image[: SIDE_PX // 8] = np.repeat(bits, SIDE_PX // 16)[None, :, None]
    return image


def burnt_in(image: Images) -> int:
    """Read the number back."""
    x = ((np.arange(16) + 0.5) * image.shape[1] / 16).astype(int)
    return int(sum(1 << bit for bit, lit in enumerate(image[image.shape[0] // 16, x].mean(-1) > 127) if lit))


def make_video(path: Path) -> None:
    """Write v448: 448 x 448 at 30 frames/s, 180 s, x264 veryfast crf 23, 3 B-frames, a keyframe every 250 frames."""
    rng = np.random.default_rng(0)
    noise = cv2.GaussianBlur(rng.integers(0, 255, (SIDE_PX, SIDE_PX, 3), dtype=np.uint8), (0, 0), 3)
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = SIDE_PX
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "23", "g": str(KEYFRAME), "bf": "3"}
        for number in range(FPS * SECONDS):
            frame = av.VideoFrame.from_ndarray(picture(number, noise), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def wanted(case: str) -> NDArray[np.int64]:
    """Return (segments, 16) frame numbers, segments evenly spread with some jitter."""
    n_segments = CASES[case][0]
    starts = np.linspace(0, FPS * SECONDS - N_FRAMES - 1, n_segments).astype(int)
    jitter = np.random.default_rng(1).integers(0, 8, n_segments)
    return np.minimum(starts + jitter, FPS * SECONDS - N_FRAMES)[:, None] + np.arange(N_FRAMES)


def ours(path: str, numbers: NDArray[np.int64]) -> Iterator[Images]:
    """Our reader, PyAV backend."""
    for _, clip in clips(path, numbers / FPS, OUT_PX, "pyav"):
        if not isinstance(clip, DecodedClip):
            raise clip
        yield clip.frames


def ours_decord(path: str, numbers: NDArray[np.int64]) -> Iterator[Images]:
    """Our reader, decord backend."""
    for _, clip in clips(path, numbers / FPS, OUT_PX, "decord"):
        if not isinstance(clip, DecodedClip):
            raise clip
        yield clip.frames


def decord_plain(path: str, numbers: NDArray[np.int64]) -> Iterator[Images]:
    """decord as its users call it: one reader, get_batch per segment, scaled by the decoder."""
    import decord

    reader = decord.VideoReader(path, ctx=decord.cpu(0), width=OUT_PX, height=OUT_PX, num_threads=1)
    for row in numbers:
        yield reader.get_batch(row.tolist()).asnumpy()


READERS: dict[str, Callable[[str, NDArray[np.int64]], Iterator[Images]]] = {
    "ours": ours,
    "ours (decord backend)": ours_decord,
    "decord": decord_plain,
}


def measure(reader: str, path: str, case: str) -> dict[str, float]:
    """Run one reader in this process; return its CPU seconds and wrong frames."""
    cv2.setNumThreads(1)
    numbers, before = wanted(case), resource.getrusage(resource.RUSAGE_SELF)
    wrong = 0
    for row, images in zip(numbers, READERS[reader](path, numbers), strict=True):
        wrong += sum(burnt_in(image) != number for image, number in zip(images, row, strict=True))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": cpu_s, "wrong": float(wrong), "peak_mb": after.ru_maxrss / 1024}


def compare(path: Path, case: str, rounds: int) -> bool:
    """Print the medians of one case; return whether the requirement is met."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in READERS}
    for _ in range(rounds):
        for name in READERS:
            command = [sys.executable, __file__, "--measure", name, "--case", case, "--video", str(path)]
            measured[name].append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    n_segments, demand = CASES[case]
    print(f"\n{case}: {n_segments} segments of {N_FRAMES} frames, medians of {rounds} interleaved rounds")
    print("| reader | CPU ms a segment | wrong frames | peak MB | CPU of the reader / ours, paired |")
    print("|---|---|---|---|---|")
    ratio = {}
    for name, runs in measured.items():
        ratio[name] = statistics.median(a["cpu_s"] / b["cpu_s"] for a, b in zip(runs, measured["ours"], strict=True))
        per_ms = statistics.median(run["cpu_s"] for run in runs) / n_segments * 1000
        wrong, peak = sum(run["wrong"] for run in runs), statistics.median(run["peak_mb"] for run in runs)
        print(f"| {name} | {per_ms:.1f} | {wrong:.0f} | {peak:.0f} | {ratio[name]:.2f} |")
    met = ratio["decord"] >= demand and not any(run["wrong"] for run in measured["ours"])
    print(f"demand: {demand} x decord, 0 wrong frames: {'met' if met else 'NOT MET'}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", choices=list(READERS))
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--video")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.video, options.case)))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        path = (options.folder or Path(temporary)) / "v448.mp4"
        if not path.exists():
            make_video(path)
        return 0 if all([compare(path, case, options.rounds) for case in CASES]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
