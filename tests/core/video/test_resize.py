"""Frames are squashed by Pillow's antialiased bilinear filter, after they are upright RGB."""

from pathlib import Path

import av
import numpy as np
from checkout import DATA
from numpy.typing import NDArray
from PIL import Image
from video_fixture import write_video

from trajpilot_core.video.decode import DecodedClip, clips

REAL = DATA / "aria_mps_sample/takes/aria_mps_sample_1/frame_aligned_videos/downscaled/448/aria01_214-1.mp4"
Picture = NDArray[np.uint8]


def pil(image: Picture, size_px: int) -> Picture:
    return np.asarray(Image.fromarray(image).resize((size_px, size_px), Image.Resampling.BILINEAR))


def off(ours: Picture, theirs: Picture) -> int:
    """Largest difference in grey levels of 255."""
    return int(np.abs(ours.astype(int) - theirs.astype(int)).max())


def read(path: Path, times_s: list[float], size_px: int, resize: str) -> Picture:
    ((_, clip),) = clips(str(path), np.array([times_s]), size_px, resize)
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
        assert (read(path, times_s, size_px, "antialiased") == expected).all()
        assert off(read(path, times_s, size_px, "swscale"), expected) > 10


def test_real_frames_agree_with_pil() -> None:
    with av.open(str(REAL)) as container:
        frames = [frame for frame, _ in zip(container.decode(video=0), range(3), strict=False)]
    times_s = [float(frame.time - frames[0].time) for frame in frames]
    expected = np.stack([pil(frame.to_ndarray(format="rgb24"), 384) for frame in frames])
    assert (read(REAL, times_s, 384, "antialiased") == expected).all()
    assert 5 < off(read(REAL, times_s, 384, "swscale"), expected) < 60
