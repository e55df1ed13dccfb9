"""The memory of a decoder does not grow with the length of a take."""

import sys
from pathlib import Path

import pytest
from video_fixture import looped, write_video
from video_memory import decoded, spread

SIDE_PX, UNIT_FRAMES, UNITS = 1408, 50, 16
BOUND_MIB = 220.0
"""docs/decisions/video-backend.md has what a 30-minute file took."""
KEEPS_ALL = """
from collections import Counter
from trajpilot_core.video import decode
decode.Counter = lambda seen: Counter({key: 1 << 30 for key in seen})
"""


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_decoder_of_1408_px_frames_stays_within_its_memory_over_a_whole_take(tmp_path: Path) -> None:
    """Segments lie end to end over a file of 27 s; one that lets no frame go is seen to pass the bound."""
    unit = write_video(tmp_path / "unit.mp4", UNIT_FRAMES, width=SIDE_PX, height=SIDE_PX, keyframe=UNIT_FRAMES)
    path = looped(unit, tmp_path / "take.mp4", UNITS)
    times_s = spread(UNITS * UNIT_FRAMES / 30, 26, 1.0)
    healthy = decoded(path, times_s, UNIT_FRAMES)
    assert (healthy.n_clips, healthy.n_wrong) == (26, 0)
    assert healthy.peak_mib < BOUND_MIB
    leaking = decoded(path, times_s, UNIT_FRAMES, sabotage=KEEPS_ALL)
    assert leaking.peak_mib > BOUND_MIB
