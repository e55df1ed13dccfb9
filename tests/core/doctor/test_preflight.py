"""The pre-flight is red for weights that would fail hours later, green for good ones, and tries nothing in vain."""

from pathlib import Path

import pytest
import torch

from deployments.recipes import recipe
from schemas.config import FeatureConfig, PipelineConfig, RunOptions, TextConfig
from trajpilot_core.doctor import weights as looked
from trajpilot_core.doctor.weights import preflight, require_outside, try_text, try_video
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES


def options(root: Path) -> RunOptions:
    return RunOptions(root=str(root), data_root=str(root), device="cpu")


def small(checkpoint: Path) -> PipelineConfig:
    return PipelineConfig(
        features=FeatureConfig(model="tiny", size_px=64, n_frames=4, precision="fp32", checkpoint=str(checkpoint)),
        text_bank=TextConfig(encoder="bag_of_words"),
    )


def test_one_clip_goes_through_good_weights(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path / "tiny.pt")
    (found,) = preflight(small(tmp_path / "tiny.pt"), options(tmp_path / "root"), list(STAGES))
    assert (found.what, found.verdict) == ("trial of features", "ok")
    assert "256 finite numbers" in found.found


def test_weights_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pt"
    write_tiny_checkpoint(path)
    state = torch.load(path, weights_only=True)
    first = next(iter(state))
    name = next(name for name, value in state[first].items() if value.ndim > 1)
    state[first][name][:] = float("nan")
    torch.save(state, path)
    found = try_video(small(path).features, "cpu")
    assert (found.verdict, found.found) == ("bad", "numbers that are not finite")


def test_weights_of_another_layout_stop_the_run_and_what_to_do_is_said(tmp_path: Path) -> None:
    torch.save({"encoder": {"a": torch.zeros(2)}}, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"not started, .*trial of features: .*set features.checkpoint"):
        require_outside(small(tmp_path / "other.pt"), options(tmp_path / "root"), list(STAGES))


def test_a_folder_without_a_tokenizer_stops_the_run(tmp_path: Path) -> None:
    config = PipelineConfig(
        features=FeatureConfig(model="tiny"), text_bank=TextConfig(encoder="egovlpv2", model=str(tmp_path))
    )
    with pytest.raises(InputError, match=r"not started, .*weights of text_bank"):
        require_outside(config, options(tmp_path / "root"), list(STAGES))
    require_outside(config, options(tmp_path / "root"), ["ingest", "features"])
    assert try_text(config.text_bank, "cpu").verdict == "bad"


def test_weights_of_the_probe_are_looked_at_where_it_reads_every_patch(tmp_path: Path) -> None:
    config = small(tmp_path / "tiny.pt")
    config = config.replace(ingest=config.ingest.replace(corpus="epic_kitchens"))
    other = config.probe.replace(tokens="full", encoder=config.features.replace(model="vit_giant"))
    (found,) = preflight(config.replace(probe=other), options(tmp_path / "root"), ["probe"])
    assert (found.what, found.verdict) == ("weights of probe.encoder", "bad")
    assert preflight(config.replace(probe=other.replace(tokens=None)), options(tmp_path / "root"), ["probe"]) == []


def test_weights_of_the_second_motions_are_looked_at_where_pose_sources_are_asked_for(tmp_path: Path) -> None:
    config = recipe("keystep_poses")
    found = preflight(config, options(tmp_path / "root"), ["video_motions"])
    assert {row.what for row in found if row.verdict == "bad"} >= {"weights of trajectories"}
    without = config.replace(video_motions=config.video_motions.replace(source="odometry", fallback=None))
    assert preflight(without, options(tmp_path / "root"), ["video_motions"]) == []


def test_what_has_no_weights_is_not_tried_and_neither_is_what_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: object) -> None:
        pytest.fail(f"tried with {given}")

    monkeypatch.setattr(looked, "load_video_encoder", never)
    monkeypatch.setattr(looked, "load_text_encoder", never)
    plain = PipelineConfig(features=FeatureConfig(model="tiny"), text_bank=TextConfig(encoder="bag_of_words"))
    assert preflight(plain, options(tmp_path / "root"), list(STAGES)) == []
    monkeypatch.setattr(looked, "is_made", lambda *given: True)
    assert preflight(PipelineConfig(), options(tmp_path / "root"), list(STAGES)) == []


def test_a_large_encoder_is_not_tried_on_a_cpu(tmp_path: Path) -> None:
    assert try_video(FeatureConfig(model="vit_gigantic"), "cpu").verdict == "note"
