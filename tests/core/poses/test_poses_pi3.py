"""The Pi3 adapter, on a package that answers as Pi3 does, and once on the real one where it is installed."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from pi3_fixture import pi3_package
from poses_fixture import FPS, video_take
from safetensors.torch import save_file
from test_poses_sources import motions, of_video
from trajectory_fixture import Memory, run_stage

from schemas.config import FeatureConfig
from schemas.poses import Pi3Config, TrajectoryConfig
from trajpilot_core.engine.resolve import resolve_precision
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.poses.motions import step_rms
from trajpilot_core.poses.sources.base import origins
from trajpilot_core.poses.sources.child import patch_size
from trajpilot_core.poses.sources.pi3_model import MODELS, Pi3Model, load_pi3
from trajpilot_core.poses.sources.video import scale_of
from trajpilot_core.stages import trajectories


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with pi3_package(tmp_path, monkeypatch) as weights:
        yield weights


def config(weights: Path, **changes: object) -> TrajectoryConfig:
    pi3 = Pi3Config(weights=str(weights), pixel_limit=3000).replace(**changes)
    return TrajectoryConfig(source="pi3", pi3=pi3)


def computed(folder: Path, cfg: TrajectoryConfig) -> tuple[Memory, str]:
    take = video_take(folder, 1.2)
    return run_stage(folder, of_video(take, [(0.0, 16 / FPS)]), cfg), take.take_id


def test_sixteen_frames_become_sixteen_motions_whatever_world_and_scale_they_came_in(
    tmp_path: Path, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, take_id = computed(tmp_path, config(package))
    assert "Pi3 runs on the CPU, which is slow" in caplog.text
    table, rejects, _ = kept.shards[take_id]
    assert rejects == []
    assert origins(table) == [("pi3", "camera", "arbitrary")]
    (clip,) = motions(table)
    assert step_rms(clip[:, :3]) == pytest.approx(1.0, rel=1e-5)
    # 0.4 rad about the upright y axis, which is the raw camera's x axis, in 16 equal turns
    assert_allclose(clip[:, 3:], np.tile([0.4 / 16, 0, 0], (16, 1)), atol=1e-5)
    # the first step goes to the right, along minus y of the raw camera
    assert_allclose(clip[0, :3] / np.linalg.norm(clip[0, :3]), [0, -1, 0], atol=0.03)
    assert table["quality"].to_pylist() == [pytest.approx(float(torch.sigmoid(torch.tensor(2.0))))]
    assert table["coverage"].to_pylist()[0] == pytest.approx(15 / 16)
    digest = hashlib.sha256((package / "model.safetensors").read_bytes()).hexdigest()
    assert table.schema.metadata[b"weights"] == digest.encode()


def test_pi3x_says_metres_when_its_scale_is_left_alone(tmp_path: Path, package: Path) -> None:
    kept, take_id = computed(tmp_path, config(package, model="pi3x"))
    (table, _, _) = kept.shards[take_id]
    assert origins(table) == [("pi3", "camera", "metric")]
    assert np.linalg.norm(motions(table)[0, :, :3], axis=1).sum() == pytest.approx(14.0, rel=0.02)
    assert scale_of("pi3", config(package, model="pi3x").replace(scale="rms")) == "arbitrary"


def test_the_file_of_weights_is_part_of_the_key_and_its_digest_is_checked(package: Path, tmp_path: Path) -> None:
    kept, file = of_video(video_take(tmp_path, 1.2), [(0.0, 1.0)]), package / "model.safetensors"
    (source,) = trajectories.sources(kept, config(package), "")  # type: ignore[arg-type]
    assert source.files == ("take.mp4", str(file))
    with pytest.raises(CheckpointError, match="expected 0000"):
        load_pi3(Pi3Config(weights=str(file), weights_sha256="0" * 64, precision="fp32"), "cpu")


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pi3", None)
    with pytest.raises(InputError, match=r"pip install .*trajpilot\[pi3\].*odometry"):
        load_pi3(Pi3Config(weights=str(tmp_path)), "cpu")


def test_missing_or_wrong_weights_say_what_to_do(package: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"download model\.safetensors of yyfz233/Pi3 "):
        load_pi3(Pi3Config(weights=str(tmp_path)), "cpu")
    with pytest.raises(InputError, match="the weights are not set"):
        load_pi3(Pi3Config(), "cpu")
    with pytest.raises(InputError, match="needs a GPU"):
        load_pi3(Pi3Config(weights=str(package), precision="bf16"), "cpu")
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="does not fit Pi3"):
        load_pi3(Pi3Config(weights=str(tmp_path)), "cpu")
    (tmp_path / "model.safetensors").write_bytes(b"<html>")
    with pytest.raises(CheckpointError, match="does not fit Pi3"):
        load_pi3(Pi3Config(weights=str(tmp_path)), "cpu")


def test_an_answer_of_another_kind_is_refused() -> None:
    class Other(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"camera_poses": torch.zeros(1, 2, 3, 4)}

    model = Pi3Model(Other(), torch.device("cpu"), False, "")
    with pytest.raises(CheckpointError, match="it is not Pi3"):
        model.poses(np.zeros((2, 14, 14, 3), np.uint8))


def test_frames_get_the_largest_size_that_the_network_reads() -> None:
    for width, height in ((448, 448), (1920, 1080), (1080, 1920), (1408, 1408), (4000, 30)):
        across, down = patch_size(width / height, 255_000)
        assert across % 14 == 0 and down % 14 == 0 and across * down <= 255_000  # noqa: PT018
        if max(width, height) < 3 * min(width, height):
            assert abs(across / down / (width / height) - 1) < 0.03
            assert across * down > 0.93 * 255_000


def test_precision_is_resolved_for_pi3_alone() -> None:
    pi3, aria = TrajectoryConfig(source="pi3"), TrajectoryConfig()
    assert resolve_precision(pi3, "cuda").pi3.precision == "bf16"  # type: ignore[attr-defined]
    assert resolve_precision(pi3, "cpu").pi3.precision == "fp32"  # type: ignore[attr-defined]
    assert resolve_precision(aria, "cuda") == aria
    assert resolve_precision(FeatureConfig(), "cpu").precision == "fp32"  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["pi3", "pi3x"])
def test_the_real_package_with_random_weights_answers_as_the_adapter_expects(tmp_path: Path, name: str) -> None:
    """Runs where the extra `pi3` is installed; needs 11 GB of memory and some minutes on a CPU."""
    module, network = MODELS[name]
    build = getattr(pytest.importorskip(module, reason="the extra pi3 is not installed"), network)
    torch.manual_seed(0)
    save_file({key: value.contiguous() for key, value in build().state_dict().items()}, tmp_path / "model.safetensors")
    model = load_pi3(Pi3Config.model_validate({"model": name, "weights": str(tmp_path), "precision": "fp32"}), "cpu")
    images = np.random.default_rng(0).integers(0, 255, (16, 56, 70, 3), dtype=np.uint8)
    T, confidence = model.poses(images)
    assert T.shape == (16, 4, 4)
    assert 0 <= confidence <= 1
    assert_allclose(T[:, 3], np.tile([0, 0, 0, 1], (16, 1)), atol=1e-6)
    assert_allclose(np.linalg.det(T[:, :3, :3]), 1.0, atol=1e-4)
    other, _ = model.poses(images[::-1])
    assert np.abs(other[::-1] - T).max() < 1e-3, "the order of the frames does not matter"
