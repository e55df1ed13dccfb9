"""Pictures of V-JEPA 2's probes: operations and crops are those of the original, sampled as it samples them."""

import base64
import json
import random
from collections import Counter
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkout import CHECKOUT
from numpy.typing import NDArray
from PIL import Image
from video_fixture import with_matrix, write_video

from trajpilot_core.video.child import shape_of_job
from trajpilot_core.video.decode import clips
from trajpilot_core.video.views import OPERATIONS, augmented, centre_crop, sampled_box, sampled_operations

ORIGINAL = json.loads((CHECKOUT / "tests/data/epic_probe/views.json").read_text())
HOW = {"operations": 4, "level": 7.0, "deviation": 0.5, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
Picture = NDArray[np.uint8]


def drawn(height: int, width: int) -> Picture:
    """The picture of the golden values."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((7 * x + 5 * y + 40 * c + 6 * (x * y % 17)) % 256).astype(np.uint8)


def off(ours: Picture, coded: str) -> int:
    """Largest difference from coded bytes, in grey levels."""
    theirs = np.frombuffer(base64.b64decode(coded), np.uint8).reshape(ours.shape)
    return int(np.abs(ours.astype(int) - theirs).max())


def test_every_operation_is_that_of_the_original() -> None:
    """Golden values: the original's AugmentOp; planted: another level."""
    picture = Image.fromarray(drawn(12, 16))
    assert {name[:-2] for name in ORIGINAL["operations"]} == set(OPERATIONS)
    strong = 0
    for name, coded in ORIGINAL["operations"].items():
        ours = [np.asarray(OPERATIONS[name[:-2]](picture, level, int(name[-2:]))) for level in (0.73, 0.2)]
        assert off(ours[0], coded) <= 1, name
        strong += off(ours[1], coded) > 1
    assert strong == len(ORIGINAL["operations"]) - 3, "all but those that have no level"


def test_the_centre_is_cut_out_as_in_the_original() -> None:
    for name, coded in ORIGINAL["centre_crops"].items():
        shape, _, size = name.partition(" to ")
        height, width = map(int, shape.split("x"))
        assert off(np.ascontiguousarray(centre_crop(drawn(height, width), int(size))[::3, ::3]), coded) <= 1


def test_operations_and_levels_are_sampled_as_in_the_original() -> None:
    sampled = [sampled_operations(random.Random(seed), 4, 7.0, 0.5) for seed in range(3000)]
    applied = Counter(len(operations) for operations in sampled)
    assert [applied[n] / 3000 for n in range(5)] == pytest.approx([1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16], abs=0.03)
    names = Counter(name for operations in sampled for name, _, _ in operations)
    assert set(names) == set(OPERATIONS)
    assert max(names.values()) / min(names.values()) < 1.4
    levels = [level for operations in sampled for _, level, _ in operations]
    assert (mean(levels), stdev(levels)) == (pytest.approx(0.7, abs=0.005), pytest.approx(0.05, abs=0.005))
    assert abs(mean(sign for operations in sampled for _, _, sign in operations)) < 0.05


def test_crops_fit_have_the_wanted_share_and_shape_and_fill_the_square() -> None:
    boxes = [sampled_box(random.Random(seed), 90, 160, (0.08, 1.0), (3 / 4, 4 / 3)) for seed in range(2000)]
    assert all(0 <= top <= 90 - high and 0 <= left <= 160 - wide for top, left, high, wide in boxes)
    shares = [high * wide / (90 * 160) for _, _, high, wide in boxes]
    assert 0.07 < min(shares) < 0.1
    assert 0.7 < max(shares) <= 0.76, "3/4 of this picture is the largest crop of an allowed shape"
    assert all(0.7 < wide / high < 1.42 for _, _, high, wide in boxes)
    assert sampled_box(random.Random(0), 90, 160, (1.0, 1.0), (3 / 4, 4 / 3)) == (0, 20, 90, 120), "the centre"
    picture, how = drawn(90, 160), {**HOW, "operations": 0, "seed": 3}
    top, left, high, wide = sampled_box(random.Random(3), 90, 160, (0.08, 1.0), (3 / 4, 4 / 3))
    crop = torch.from_numpy(picture[top : top + high, left : left + wide]).permute(2, 0, 1)[None].float()
    theirs = F.interpolate(crop, (32, 32), mode="bilinear", align_corners=False)[0].permute(1, 2, 0)
    assert np.abs(augmented(picture, 32, **how) - theirs.numpy()).max() <= 1  # type: ignore[arg-type]


def test_whole_upright_frames_are_augmented_alike(tmp_path: Path) -> None:
    wide, whole = write_video(tmp_path / "wide.mp4", 8, width=96, height=48, fps=8), list[Picture]()
    path = with_matrix(wide, tmp_path / "turned.mp4", (0, 1, -1, 0))

    def kept(image: Picture, size_px: int) -> Picture:
        whole.append(image)
        return augmented(image, size_px, seed=5, **HOW)  # type: ignore[arg-type]

    ((_, clip),) = clips(str(path), np.array([[0.0, 0.5]]), 32, kept)
    assert [image.shape for image in whole] == [(96, 48, 3)] * 2
    job = {"augment": {**HOW, "seed": 5}, "resize": "swscale"}
    ((_, other),) = clips(str(path), np.array([[0.0, 0.5]]), 32, shape_of_job(job))
    assert (other.frames == clip.frames).all()
    boxes = {sampled_box(random.Random(seed), 96, 48, (0.08, 1.0), (3 / 4, 4 / 3)) for seed in (5, 5, 6)}
    assert len(boxes) == 2, "the seed alone decides"
