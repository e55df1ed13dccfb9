"""doctor: every check is red where its thing is missing, and green where it is there."""

import hashlib
import importlib.util
import os
from pathlib import Path

import egoexo_fixture as egoexo
import numpy as np
import pytest
from safetensors.numpy import save_file

from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, TextConfig
from schemas.features import n_parameters
from schemas.poses import Pi3Config, TrajectoryConfig
from trajpilot_core.doctor import checks
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.doctor.weights import check_pose_weights, check_text_weights, check_video_weights, check_weights
from trajpilot_core.encoders.video import registry
from trajpilot_core.engine import resolve
from trajpilot_core.engine.needs import Needs
from trajpilot_core.store.lock import root_lock

SMALL = IngestConfig(dev_min=1)


def verdicts(found: list[HealthFinding]) -> dict[str, str]:
    return {row.what: row.verdict for row in found}


def test_this_machine_can_run_the_project() -> None:
    found = [checks.check_python(), *checks.check_packages()]
    assert {row.verdict for row in found} == {"ok"}, found


def test_an_old_python_and_a_wrong_or_absent_package_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks.check_packages(["numpy>=99", "surely-not-there", "pydantic>=2", "av; extra == 'x'"])
    assert verdicts(found) == {"package numpy": "bad", "package surely-not-there": "bad"}
    assert found[1].found == "absent"
    monkeypatch.setattr(checks.sys, "version_info", (3, 10, 1))
    assert checks.check_python().verdict == "bad"


def test_a_local_build_of_a_pinned_package_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.metadata, "version", lambda name: "2.13.0+cpu")
    assert verdicts(checks.check_packages(["torch==2.13.0"])) == {"packages": "ok"}


def test_a_gpu_is_bad_only_where_it_is_asked_for_and_noted_where_it_lies_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve.resolve_device.cache_clear()
    monkeypatch.setattr(resolve, "_torch_has_cuda", lambda: False)
    monkeypatch.setattr(checks, "gpus", lambda: "no driver")
    assert checks.check_device("auto").verdict == "ok"
    assert checks.check_device("cuda").verdict == "bad"
    monkeypatch.setattr(checks, "gpus", lambda: "NVIDIA H200, 141 GB")
    assert checks.check_device("auto").verdict == "note"
    resolve.resolve_device.cache_clear()


def test_permission_and_another_run_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs" / "new"
    assert verdicts(checks.check_root(str(root))) == {"root": "ok"}
    assert not root.exists()
    root.mkdir(parents=True)
    with root_lock(str(root), 0.0):
        assert verdicts(checks.check_root(str(root)))["run"] == "note"

    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checks.tempfile, "TemporaryFile", refused)
    assert verdicts(checks.check_root(str(root)))["root"] == "bad"


def test_a_whole_corpus_is_ok_and_each_missing_part_is_named(tmp_path: Path) -> None:
    corpus = egoexo.healthy(tmp_path / "corpus")
    root = corpus.write()
    assert set(verdicts(checks.check_corpus(str(root), SMALL)).values()) == {"ok"}
    corpus.video("train_1").unlink()
    (root / "takes/train_0/trajectory/closed_loop_trajectory.csv").unlink()
    (root / "annotations/atomic_descriptions_val.json").unlink()
    (root / "annotations/atomic_descriptions_val.json.F14eE010").write_text("")
    found = {row.what: row for row in checks.check_corpus(str(root), SMALL)}
    assert {what: row.verdict for what, row in found.items()} == dict.fromkeys(found, "note") | {"annotations": "bad"}
    assert (found["videos"].expected, found["videos"].found[:1]) == ("4", "3")
    assert "train_1" in found["videos"].found
    assert "atomic_descriptions_val.json" in found["annotations"].found
    assert found["pose files"].found == "3"
    assert "F14eE010" in found["leftovers"].found


def test_a_corpus_that_cannot_be_read_or_has_no_video_at_all_is_bad(tmp_path: Path) -> None:
    assert verdicts(checks.check_corpus(str(tmp_path / "nowhere"), SMALL)) == {"data root": "bad"}
    assert verdicts(checks.check_corpus("ftp://x/y", SMALL)) == {"data root": "bad"}
    corpus = egoexo.healthy(tmp_path / "corpus")
    root = corpus.write()
    for video in root.rglob("*.mp4"):
        video.unlink()
    assert verdicts(checks.check_corpus(str(root), SMALL))["videos"] == "bad"


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
    assert found(revision="9fa3ddb") == {"weights of trajectories": "note"}
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
    save_file({"x": np.zeros(4, np.float32)}, tmp_path / "EgoVLPv2.safetensors")
    assert "no vocab.json, merges.txt" in check_text_weights(cfg).found
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    assert check_text_weights(cfg).verdict == "ok"
    any_model = TextConfig(encoder="transformers", model=str(tmp_path), embedding="mean")
    assert check_text_weights(any_model).verdict == "ok"
    content = (tmp_path / "EgoVLPv2.safetensors").read_bytes()
    (tmp_path / "EgoVLPv2.safetensors").write_bytes(content[:-3])
    assert (check_text_weights(cfg).verdict, "truncated" in check_text_weights(cfg).found) == ("bad", True)
    (tmp_path / "EgoVLPv2.safetensors").write_bytes(b"<html>please log in</html>")
    assert "not a safetensors file" in check_text_weights(any_model).found
    on_hub = TextConfig(encoder="transformers", model="somebody/model", revision="0" * 40, embedding="mean")
    assert check_text_weights(on_hub).verdict == "note"


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
    assert (memory.verdict, memory.found, disk.verdict) == ("note", "1.0 GB free", "note")
    assert memory.expected == "2.0 GB for scorer, by its last run; first run: unknown for 1 of 2"
    assert memory.todo.startswith("lower scorer.candidates, scorer.max_queries, scorer.train.batch, --workers, or")
    never = checks.check_needs({"scorer": None}, "cpu", "s3://bucket/run")
    assert [(row.what, row.expected, row.verdict) for row in never] == [("memory", "first run: unknown", "ok")]
    monkeypatch.setattr(checks, "asked_driver", lambda fields, form: ["24000", "80000"])
    found = {
        device: checks.check_needs(took(1, 30 * 10**9), device, root)[1] for device in ("cuda", "cuda:1", "cuda:2")
    }
    assert [(row.what, row.verdict) for row in found.values()] == [
        ("GPU memory", "note"),
        ("GPU memory", "ok"),
        ("GPU memory", "note"),
    ]
