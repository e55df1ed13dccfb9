"""Frames are squashed as PIL does it with its antialiased bilinear filter, within one grey level of 255."""

from pathlib import Path

import av
import cv2
import numpy as np
from checkout import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from video_fixture import write_video

from trajpilot_core.video.decode import DecodedClip, clips
from trajpilot_core.video.resize import squash

REAL = DATA / "aria_mps_sample/takes/aria_mps_sample_1/frame_aligned_videos/downscaled/448/aria01_214-1.mp4"
Picture = NDArray[np.uint8]


def pil(image: Picture, size_px: int) -> Picture:
    return np.asarray(Image.fromarray(image).resize((size_px, size_px), Image.Resampling.BILINEAR))


def off(ours: Picture, theirs: Picture) -> int:
    """Largest difference in grey levels of 255."""
    return int(np.abs(ours.astype(int) - theirs.astype(int)).max())


def noise(height: int, width: int, seed: int = 0) -> Picture:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_squashed_picture_is_that_of_pil_within_one_level() -> None:
    """Shrinking, enlarging, odd sizes and rectangles. Planted fault: the filter without antialiasing."""
    for height, width, size_px in (
        (448, 448, 384),
        (1408, 1408, 384),
        (720, 1280, 384),
        (333, 517, 224),
        (97, 131, 384),
        (384, 384, 384),
        (2000, 9, 96),
    ):
        image = noise(height, width)
        assert off(squash(image, size_px), pil(image, size_px)) <= 1, (height, width)
        if min(height, width) > size_px:
            hard = cv2.resize(image, (size_px, size_px), interpolation=cv2.INTER_LINEAR)
            assert off(np.asarray(hard, np.uint8), pil(image, size_px)) > 20


@settings(max_examples=30)
@given(st.integers(1, 150), st.integers(1, 150), st.integers(1, 120), st.integers(0, 99))
def test_any_size_agrees_with_pil(height: int, width: int, size_px: int, seed: int) -> None:
    image = noise(height, width, seed)
    assert off(squash(image, size_px), pil(image, size_px)) <= 1


def read(path: Path, times_s: list[float], size_px: int, resize: str, backend: str = "pyav") -> Picture:
    ((_, clip),) = clips(str(path), np.array([times_s]), size_px, backend, resize)
    assert isinstance(clip, DecodedClip), clip
    return clip.frames


def shown(path: Path, wanted: list[int], size_px: int) -> Picture:
    """Frames by number: decoded whole, turned to RGB, squashed by PIL."""
    with av.open(str(path)) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack([pil(pictures[number], size_px) for number in wanted])


def test_decoded_frames_agree_with_pil_where_that_is_set(tmp_path: Path) -> None:
    """The other filter shrinks colour before it is RGB and is far off, which is why the setting exists."""
    wanted = [0, 7, 8, 30]
    times_s = [number / 30 for number in wanted]
    for width, height, size_px in ((256, 256, 128), (320, 192, 96), (128, 96, 160)):
        path = write_video(tmp_path / "v.mp4", 40, width=width, height=height)
        expected = shown(path, wanted, size_px)
        assert off(read(path, times_s, size_px, "antialiased"), expected) <= 1
        assert off(read(path, times_s, size_px, "swscale"), expected) > 10


def test_real_frames_agree_with_pil_within_one_level() -> None:
    with av.open(str(REAL)) as container:
        frames = [frame for frame, _ in zip(container.decode(video=0), range(3), strict=False)]
    times_s = [float(frame.time - frames[0].time) for frame in frames]
    expected = np.stack([pil(frame.to_ndarray(format="rgb24"), 384) for frame in frames])
    assert off(read(REAL, times_s, 384, "antialiased"), expected) <= 1
    assert 5 < off(read(REAL, times_s, 384, "swscale"), expected) < 60
