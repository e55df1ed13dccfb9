"""Peak memory of a decoder process over all segments of a take; by itself, of a 30-minute 1408 px file.

    python tests/core/video_memory.py --folder runs/video-memory [--seconds 1800] [--segments 140]

The file is made of 10 s that are encoded once (1408 x 1408, 30 frames/s, H.264 with 3 B-frames, a keyframe every 250
frames) and repeated by copying packets; a 30-minute one is 760 MB. A frame's burnt-in number is checked in every clip.
"""

import argparse
import logging
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from video_fixture import burnt_in, looped, write_video

from trajpilot_core.video.isolate import run_jobs

log = logging.getLogger("video_memory")
SIDE_PX, FPS, UNIT_S, OUT_PX = 1408, 30, 10, 384
MEASURED = """
import re, sys
{sabotage}
from trajpilot_core.video import child
child.main()
kib = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
open(sys.argv[1], "w").write(kib)
"""


@dataclass(frozen=True)
class Decoded:
    """What decoding a take gave."""

    n_clips: int
    n_wrong: int
    """Clips that hold another frame than the one that was asked for."""
    peak_mib: float
    """Largest resident size of the decoder process."""
    wall_s: float


def spread(length_s: float, n_segments: int, segment_s: float = 2.0) -> NDArray[np.float64]:
    """Return 16 times (S, 16) of each of so many segments, evenly over the file."""
    starts = np.linspace(0, length_s - segment_s - 0.5, n_segments)
    return np.round((starts[:, None] + np.linspace(0, segment_s, 16)) * FPS) / FPS


def decoded(path: Path, times_s: NDArray[np.float64], unit_frames: int, sabotage: str = "") -> Decoded:
    """Decode a take in one child process, as the stage does."""
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        command = (sys.executable, "-P", "-c", MEASURED.format(sabotage=sabotage), str(peak))
        job = {"kind": "clips", "path": str(path), "times_s": times_s.tolist(), "size_px": OUT_PX, "backend": "pyav"}
        n_clips = n_wrong = 0
        began = time.monotonic()
        for event in run_jobs([job], workers=1, timeout_s=300, ahead=2, command=command):
            if event.frames is not None:
                n_clips += 1
                wanted = np.round(times_s[event.values["segment"]] * FPS).astype(int) % unit_frames
                n_wrong += [burnt_in(image) for image in event.frames] != wanted.tolist()
        return Decoded(n_clips, n_wrong, int(peak.read_text()) / 1024, time.monotonic() - began)


def main() -> None:
    """Make the file where it is absent, decode its segments and say what that took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/video-memory"))
    parser.add_argument("--seconds", type=int, default=1800)
    parser.add_argument("--segments", type=int, default=140)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    asked.folder.mkdir(parents=True, exist_ok=True)
    unit, path = asked.folder / "unit.mp4", asked.folder / f"{asked.seconds}s.mp4"
    if not unit.exists():
        write_video(unit, FPS * UNIT_S, width=SIDE_PX, height=SIDE_PX, keyframe=250)
    if not path.exists():
        looped(unit, path, asked.seconds // UNIT_S)
    found = decoded(path, spread(asked.seconds, asked.segments), FPS * UNIT_S)
    log.info("%s, %.0f MB: %s", path, path.stat().st_size / 1e6, found)
    sys.exit(1 if found.n_wrong or found.n_clips < asked.segments else 0)


if __name__ == "__main__":
    main()
