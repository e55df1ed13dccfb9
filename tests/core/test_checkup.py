"""doctor: every check is red where its thing is missing, and green where it is there."""

import os
from pathlib import Path

import egoexo_fixture as egoexo
import pytest

from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, TextConfig
from trajpilot_core import checkup
from trajpilot_core.checkup import Finding
from trajpilot_core.stages import resolve
from trajpilot_core.store.lock import root_lock

SMALL = IngestConfig(dev_min=1)


def verdicts(found: list[Finding]) -> dict[str, str]:
    return {row.what: row.verdict for row in found}


def test_this_machine_can_run_the_project() -> None:
    found = [checkup.check_python(), *checkup.check_packages()]
    assert {row.verdict for row in found} == {"ok"}, found


def test_an_old_python_and_a_wrong_or_absent_package_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkup.check_packages(["numpy>=99", "surely-not-there", "pydantic>=2", "av; extra == 'x'"])
    assert verdicts(found) == {"package numpy": "bad", "package surely-not-there": "bad"}
    assert found[1].found == "absent"
    monkeypatch.setattr(checkup.sys, "version_info", (3, 10, 1))
    assert checkup.check_python().verdict == "bad"


def test_a_local_build_of_a_pinned_package_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup.metadata, "version", lambda name: "2.13.0+cpu")
    assert verdicts(checkup.check_packages(["torch==2.13.0"])) == {"packages": "ok"}


def test_a_gpu_is_bad_only_where_it_is_asked_for_and_noted_where_it_lies_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve.resolve_device.cache_clear()
    monkeypatch.setattr(resolve, "_torch_has_cuda", lambda: False)
    monkeypatch.setattr(checkup, "gpus", lambda: "no driver")
    assert checkup.check_device("auto").verdict == "ok"
    assert checkup.check_device("cuda").verdict == "bad"
    monkeypatch.setattr(checkup, "gpus", lambda: "NVIDIA H200, 141 GB")
    assert checkup.check_device("auto").verdict == "note"
    resolve.resolve_device.cache_clear()


def test_disk_permission_and_another_run_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs" / "new"
    assert verdicts(checkup.check_root(str(root), 1)) == {"disk": "ok", "root": "ok"}
    assert not root.exists()
    assert verdicts(checkup.check_root(str(root), 10**18))["disk"] == "bad"
    root.mkdir(parents=True)
    with root_lock(str(root), 0.0):
        assert verdicts(checkup.check_root(str(root), 1))["run"] == "note"

    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkup.tempfile, "TemporaryFile", refused)
    assert verdicts(checkup.check_root(str(root), 1))["root"] == "bad"


def test_a_whole_corpus_is_ok_and_each_missing_part_is_named(tmp_path: Path) -> None:
    corpus = egoexo.healthy(tmp_path / "corpus")
    root = corpus.write()
    assert set(verdicts(checkup.check_corpus(str(root), SMALL)).values()) == {"ok"}
    corpus.video("train_1").unlink()
    (root / "takes/train_0/trajectory/closed_loop_trajectory.csv").unlink()
    (root / "annotations/atomic_descriptions_val.json").unlink()
    (root / "annotations/atomic_descriptions_val.json.F14eE010").write_text("")
    found = {row.what: row for row in checkup.check_corpus(str(root), SMALL)}
    assert {what: row.verdict for what, row in found.items()} == dict.fromkeys(found, "note")
    assert (found["videos"].expected, found["videos"].found[:1]) == ("4", "3")
    assert "train_1" in found["videos"].found
    assert "atomic_descriptions_val.json" in found["annotations"].found
    assert found["pose files"].found == "3"
    assert "F14eE010" in found["leftovers"].found


def test_a_corpus_that_cannot_be_read_or_has_no_video_at_all_is_bad(tmp_path: Path) -> None:
    assert verdicts(checkup.check_corpus(str(tmp_path / "nowhere"), SMALL)) == {"data root": "bad"}
    assert verdicts(checkup.check_corpus("ftp://x/y", SMALL)) == {"data root": "bad"}
    corpus = egoexo.healthy(tmp_path / "corpus")
    root = corpus.write()
    for video in root.rglob("*.mp4"):
        video.unlink()
    assert verdicts(checkup.check_corpus(str(root), SMALL))["videos"] == "bad"


def test_weights_that_are_not_named_or_not_there_are_bad(tmp_path: Path) -> None:
    words = TextConfig(encoder="bag_of_words")
    assert checkup.check_weights(PipelineConfig(features=FeatureConfig(model="tiny"), text_bank=words)) == []
    assert verdicts(checkup.check_weights(PipelineConfig())) == {
        "weights of features": "bad", "weights of text_bank": "bad",
    }  # fmt: skip
    weights = tmp_path / "vitg.pt"
    config = PipelineConfig(features=FeatureConfig(checkpoint=str(weights)), text_bank=words)
    assert verdicts(checkup.check_weights(config)) == {"weights of features": "bad"}
    weights.write_bytes(b"1")
    assert verdicts(checkup.check_weights(config)) == {"weights of features": "ok"}


def test_memory_is_read_and_little_of_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/proc/meminfo"):  # noqa: PTH110
        pytest.skip("this system does not say")
    monkeypatch.setattr(checkup, "MEMORY_BYTES", 1)
    assert checkup.check_memory().verdict == "ok"
    monkeypatch.setattr(checkup, "MEMORY_BYTES", 10**18)
    assert checkup.check_memory().verdict == "note"
