"""The encoder behind the stage `features`: name, arithmetic, buffers of a device, and what it does without memory."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pretend_device import pretend_cuda

from schemas.config import FeatureConfig
from trajpilot_core.encoders.video.frozen_vjepa import encoder_digest, normalised
from trajpilot_core.encoders.video.vjepa import VjepaEncoder
from trajpilot_core.errors import CheckpointError
from trajpilot_core.stages.features import load_embedder

SMALL = FeatureConfig(model="tiny", size_px=32, batch=4, precision="fp32", resize="swscale")
Frames = NDArray[np.uint8]


def clips(n: int, seed: int = 0) -> Frames:
    return np.random.default_rng(seed).integers(0, 255, (n, 16, 32, 32, 3), dtype=np.uint8)


def test_the_encoder_on_a_device_gives_the_vectors_of_the_cpu(tmp_path: Path) -> None:
    here = load_embedder(SMALL, "cpu", tmp_path).embed(clips(6))
    with pretend_cuda():
        there = load_embedder(SMALL, "cuda", tmp_path).embed(list(clips(6)))
    assert there.tobytes() == here.tobytes()


CONFIG = FeatureConfig(model="tiny", size_px=64, batch=4, precision="fp32", resize="swscale", decode_timeout_s=60)


def test_the_name_of_the_encoder_is_fixed_and_every_setting_changes_it() -> None:
    assert encoder_digest(CONFIG, "0" * 64, bf16=False) == GOLDEN_ENCODER
    changed = (CONFIG.replace(resize="antialiased"), CONFIG.replace(tokens="temporal"), CONFIG.replace(n_frames=8))
    assert len({encoder_digest(cfg, "0" * 64, bf16=False) for cfg in (CONFIG, *changed)}) == 4


GOLDEN_ENCODER = "13f60467d7bc9d9f79e85421aabb6bf10290912692b22ab4025b3d3976f853ca"


def test_out_of_memory_halves_the_batch_and_changes_no_more_than_the_last_digit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (6, 16, 32, 32, 3), dtype=np.uint8)
    cfg = CONFIG.replace(size_px=32, batch=6)
    expected = load_embedder(cfg, "cpu", tmp_path).embed(frames)
    forward = VjepaEncoder.forward

    def small(self: VjepaEncoder, clip: torch.Tensor, hierarchical: bool = False) -> torch.Tensor:
        if len(clip) > 2:
            raise torch.OutOfMemoryError("planted")
        return forward(self, clip, hierarchical)

    monkeypatch.setattr(VjepaEncoder, "forward", small)
    embedder = load_embedder(cfg, "cpu", tmp_path)
    with caplog.at_level(logging.WARNING, "trajpilot"):
        found = embedder.embed(frames)  # float16; a kernel may round a batch of another size otherwise
    np.testing.assert_allclose(found, expected, rtol=2**-10, atol=1e-6)
    assert embedder.batch == 1
    assert [record.levelname for record in caplog.records if record.levelno >= logging.WARNING] == ["WARNING"]


def test_a_released_model_without_its_file_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"features\.checkpoint is not set"):
        load_embedder(FeatureConfig(), "cpu", tmp_path)


def test_frames_are_normalised_as_in_the_paper() -> None:
    frames = torch.zeros(1, 2, 4, 4, 3, dtype=torch.uint8)
    frames[..., 0] = 255
    out = normalised(frames)
    assert out.shape == (1, 3, 2, 4, 4)
    torch.testing.assert_close(out[0, :, 0, 0, 0], torch.tensor([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
