"""The memory of a decoder does not grow with the length of a take."""

import sys
from pathlib import Path

import numpy as np
import pytest
from video_fixture import burnt_in, looped, write_video

from trajpilot_core.video.isolate import run_jobs

SIDE_PX, FPS, UNIT_FRAMES, UNITS, SEGMENTS = 1408, 30, 50, 16, 26
BOUND_MIB = 220.0
"""docs/decisions/video-backend.md has what a 30-minute file took."""
MEASURED = """
import re, sys
{sabotage}
from trajpilot_core.video import child
child.main()
kib = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
open(sys.argv[1], "w").write(kib)
"""
KEEPS_ALL = """
from collections import Counter
from trajpilot_core.video import decode
decode.Counter = lambda seen: Counter({key: 1 << 30 for key in seen})
"""


def peak_mib(path: Path, folder: Path, sabotage: str = "") -> float:
    """Decode segments all over the file in one child process; returns its peak memory."""
    starts = np.linspace(0, UNITS * UNIT_FRAMES / FPS - 1.5, SEGMENTS)
    times_s = np.round((starts[:, None] + np.linspace(0, 1.0, 16)) * FPS) / FPS
    command = (sys.executable, "-P", "-c", MEASURED.format(sabotage=sabotage), str(folder / "peak"))
    job = {"kind": "clips", "path": str(path), "times_s": times_s.tolist(), "size_px": 384, "backend": "pyav"}
    n_clips = 0
    for event in run_jobs([job], workers=1, timeout_s=300, ahead=2, command=command):
        if event.frames is not None:
            n_clips += 1
            wanted = np.round(times_s[event.values["segment"]] * FPS).astype(int) % UNIT_FRAMES
            assert [burnt_in(image) for image in event.frames] == wanted.tolist()
    assert n_clips == SEGMENTS
    return int((folder / "peak").read_text()) / 1024


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_decoder_of_1408_px_frames_stays_within_its_memory_over_a_whole_take(tmp_path: Path) -> None:
    """Segments lie end to end over a file of 27 s; one that lets no frame go is seen to pass the bound."""
    unit = write_video(tmp_path / "unit.mp4", UNIT_FRAMES, width=SIDE_PX, height=SIDE_PX, keyframe=UNIT_FRAMES)
    path = looped(unit, tmp_path / "take.mp4", UNITS)
    assert peak_mib(path, tmp_path) < BOUND_MIB
    assert peak_mib(path, tmp_path, KEEPS_ALL) > BOUND_MIB
