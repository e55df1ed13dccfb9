"""doctor and the pre-flight: a check is red where its thing is missing or would fail, and green where it is good."""

import hashlib
import importlib.util
import os
from pathlib import Path

import egoexo_fixture as egoexo
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from deployments.recipes import recipe
from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, RunOptions, TextConfig
from schemas.features import n_parameters
from schemas.poses import Pi3Config, TrajectoryConfig
from trajpilot_core.doctor import checks
from trajpilot_core.doctor import weights as looked
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.doctor.weights import (
    check_pose_weights,
    check_text_weights,
    check_video_weights,
    check_weights,
    preflight,
    require_outside,
    try_text,
    try_video,
)
from trajpilot_core.encoders.video import registry
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.engine import resolve
from trajpilot_core.engine.needs import Needs
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES

SMALL = IngestConfig(dev_min=1)


def verdicts(found: list[HealthFinding]) -> dict[str, str]:
    return {row.what: row.verdict for row in found}


def test_packages_are_compared_with_what_is_declared() -> None:
    found = checks.check_packages()
    assert found.verdict == "ok", "this machine can run the project"
    found = checks.check_packages(["numpy>=99", "surely-not-there", "pydantic>=2", "av; extra == 'x'"])
    assert (found.verdict, found.expected) == ("bad", "3 as declared")
    assert found.found == f"numpy {np.__version__}, not >=99; surely-not-there absent"


def test_a_local_build_of_a_pinned_package_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.metadata, "version", lambda name: "2.13.0+cpu")
    assert checks.check_packages(["torch==2.13.0"]).verdict == "ok"


def test_a_gpu_is_bad_only_where_it_is_asked_for_and_noted_where_it_lies_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve.resolve_device.cache_clear()
    monkeypatch.setattr(resolve, "_torch_has_cuda", lambda: False)
    monkeypatch.setattr(checks, "gpus", list)
    assert checks.check_device("auto").verdict == "ok"
    assert checks.check_device("cuda").verdict == "bad"
    monkeypatch.setattr(checks, "gpus", lambda: ["NVIDIA H200, 143771 MiB"])
    assert checks.check_device("auto").verdict == "note"
    resolve.resolve_device.cache_clear()


def test_a_root_that_cannot_be_written_is_bad_and_one_that_does_not_exist_yet_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "runs" / "new"
    assert checks.check_root(str(root)).verdict == "ok"
    assert list(tmp_path.iterdir()) == []

    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checks.tempfile, "TemporaryFile", refused)
    found = checks.check_root(str(root))
    assert (found.verdict, "Permission denied" in found.todo) == ("bad", True)


def test_a_whole_corpus_is_ok_and_each_missing_part_is_named(tmp_path: Path) -> None:
    corpus = egoexo.healthy(tmp_path / "corpus")
    root = corpus.write()
    assert set(verdicts(checks.check_corpus(str(root), SMALL)).values()) == {"ok"}
    corpus.video("train_1").unlink()
    (root / "takes/train_0/trajectory/closed_loop_trajectory.csv").unlink()
    (root / "annotations/atomic_descriptions_val.json").unlink()
    found = {row.what: row for row in checks.check_corpus(str(root), SMALL)}
    assert {what: row.verdict for what, row in found.items()} == dict.fromkeys(found, "note") | {"annotations": "bad"}
    assert (found["videos"].expected, found["videos"].found[:1]) == ("4", "3")
    assert "train_1" in found["videos"].found
    assert "atomic_descriptions_val.json" in found["annotations"].found
    assert found["pose files"].found == "3"


def video_weights(path: Path, **changes: object) -> HealthFinding:
    return check_video_weights(FeatureConfig(checkpoint=str(path)).replace(**changes))


def of_size(path: Path, n_bytes: int) -> Path:
    """A file that begins as a torch file does and takes no room on the disk."""
    path.write_bytes(b"PK\x03\x04")
    os.truncate(path, n_bytes)
    return path


def test_weights_that_are_not_named_or_not_there_are_bad(tmp_path: Path) -> None:
    words = TextConfig(encoder="bag_of_words")
    assert check_weights(PipelineConfig(features=FeatureConfig(model="tiny"), text_bank=words)) == []
    assert verdicts(check_weights(PipelineConfig())) == {"weights of features": "bad", "weights of text_bank": "bad"}
    assert "not found" in video_weights(tmp_path / "vjepa2_1_vitG_384.pt").todo


def test_a_checkpoint_is_looked_at_for_kind_size_and_name(tmp_path: Path) -> None:
    whole = of_size(tmp_path / "mine.pt", 2 * n_parameters("vit_gigantic", "2.0"))
    found = video_weights(whole)
    assert (found.verdict, "not pinned" in found.found) == ("ok", True)
    broken_off = video_weights(of_size(tmp_path / "cut.pt", 10**9))
    assert (broken_off.verdict, "vit_gigantic has at least 3.6" in broken_off.found) == ("bad", True)
    saved_page = tmp_path / "page.pt"
    saved_page.write_bytes(b"<html>")
    assert "not a torch zip file" in video_weights(saved_page).found
    other = video_weights(of_size(tmp_path / "vjepa2_1_vitg_384.pt", 10**10))
    assert (other.verdict, other.todo) == ("bad", "set features.model=vit_giant")


def test_a_pinned_checkpoint_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "n_parameters", lambda model, release: 1)
    path = of_size(tmp_path / "w.pt", 100)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert "sha256 as pinned" in video_weights(path, checkpoint_sha256=digest).found
    found = video_weights(path, checkpoint_sha256="0" * 64)
    assert (found.verdict, digest in found.found) == ("bad", True)


def test_pi3_is_looked_at_for_its_package_and_its_weights_where_a_recipe_takes_poses_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(**changes: object) -> dict[str, str]:
        return verdicts(check_pose_weights(Pi3Config.model_validate(changes)))

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert found() == {"package pi3": "bad", "weights of trajectories": "bad"}
    asked = PipelineConfig(trajectories=TrajectoryConfig(source="pi3"))
    assert "package pi3" in verdicts(check_weights(asked))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert found(weights=str(tmp_path)) == {"weights of trajectories": "bad"}
    whole = tmp_path / "model.safetensors"
    save_file({"x": np.zeros(4, np.float32)}, whole)
    assert found(weights=str(tmp_path)) == {"weights of trajectories": "ok"}
    assert found(weights=str(whole), weights_sha256="0" * 64) == {"weights of trajectories": "bad"}
    whole.write_bytes(whole.read_bytes()[:-3])
    assert found(weights=str(tmp_path)) == {"weights of trajectories": "bad"}


def test_the_folder_of_a_text_encoder_is_looked_at_for_weights_and_tokenizer(tmp_path: Path) -> None:
    cfg = TextConfig(encoder="egovlpv2", model=str(tmp_path))
    assert "EgoVLPv2" in check_text_weights(cfg).todo
    released, weights = tmp_path / "EgoVLPv2.pth", tmp_path / "model.safetensors"
    torch.save({}, released)
    assert "no vocab.json, merges.txt" in check_text_weights(cfg).found
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    assert check_text_weights(cfg).verdict == "ok"
    released.write_bytes(b"<html>please log in</html>")
    assert "not a torch zip file" in check_text_weights(cfg).found
    save_file({"x": np.zeros(4, np.float32)}, weights)
    any_model = TextConfig(encoder="transformers", model=str(tmp_path), embedding="mean")
    assert check_text_weights(any_model).verdict == "ok"
    weights.write_bytes(weights.read_bytes()[:-3])
    assert check_text_weights(any_model).verdict == "bad"
    weights.write_bytes(b"<html>please log in</html>")
    assert "not a whole safetensors file" in check_text_weights(any_model).found
    by_id = TextConfig(encoder="transformers", model="somebody/model", embedding="mean")
    assert "needs a folder" in check_text_weights(by_id).todo


def took(memory: int, gpu: int = 0, disk: int = 0) -> dict[str, Needs | None]:
    """Two stages, of which one ran here."""
    return {"scorer": Needs(1.0, memory, gpu, disk), "report": None}


def test_memory_disk_and_gpu_are_compared_with_what_stages_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "free_memory", lambda: 10**9)
    root = str(tmp_path / "runs" / "new")
    assert verdicts(checks.check_needs(took(1), "cpu", root)) == {"memory": "ok", "disk": "ok"}
    memory, disk = checks.check_needs(took(2 * 10**9, disk=10**18), "cpu", root)
    assert (memory.verdict, memory.found, disk.verdict) == ("note", "1.0 GB available", "note")
    assert memory.expected == "2.0 GB for scorer, by its last run; first run: unknown for 1 of 2"
    assert memory.todo.startswith("lower scorer.candidates, scorer.max_queries, scorer.train.batch, --workers, or")
    assert "gc" in disk.todo
    never = checks.check_needs({"scorer": None}, "cpu", "s3://bucket/run")
    assert [(row.what, row.expected, row.verdict) for row in never] == [("memory", "first run: unknown", "ok")]
    monkeypatch.setattr(checks, "gpus", lambda: ["small, 24000 MiB", "large, 80000 MiB", "part, [N/A]"])
    for device, verdict in (("auto", "note"), ("cuda", "note"), ("cuda:1", "ok"), ("cuda:2", "note")):
        gpu = checks.check_needs(took(1, 30 * 10**9), device, root)[1]
        assert (gpu.what, gpu.verdict, gpu.found == "unknown on this system") == (
            "GPU memory",
            verdict,
            device == "cuda:2",
        )


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
    without = config.replace(video_motions=config.video_motions.replace(source="odometry"))
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
