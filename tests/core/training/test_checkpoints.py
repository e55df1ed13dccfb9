"""Checkpoints by the clock, from a thread, in two files: when they come, what a kill or a failing disk leaves."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from test_training_loop import CFG, StopError, same, stop_at, toy

from trajpilot_core.errors import StoreIOError
from trajpilot_core.training import checkpoint
from trajpilot_core.training.checkpoint import BEST, NAME, checkpoint_epoch, read_progress
from trajpilot_core.training.loop import fit

AT_ONCE = 1e-9
"""An interval that has always passed, and still no epoch waits for the write."""
FALLING = {1: 0.9, 2: 0.5, 3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_when_so_much_time_has_passed_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = [0.0]

    class TenSeconds(dict[int, float]):
        """Scores of epochs that take so long."""

        def __getitem__(self, epoch: int) -> float:
            clock_s[0] += 10.0
            return super().__getitem__(epoch)

    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock_s[0])
    written: list[int] = []
    put = checkpoint.CheckpointWriter._put
    monkeypatch.setattr(
        checkpoint.CheckpointWriter, "_put", lambda self, *of: (written.append(of[1]["epoch"]), put(self, *of))
    )
    for checkpoint_s, expected in ((0.0, [1, 2, 3, 4, 5, 6]), (15.0, [2, 4, 6]), (60.0, [6])):
        written.clear()
        fit(toy(scores=TenSeconds(FALLING)), CFG, tmp_path / str(checkpoint_s), "cpu", None, checkpoint_s)
        assert written == expected, "an interval and an epoch"


def test_a_write_that_the_training_overtakes_holds_the_epoch_that_it_was_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit(toy(), CFG, None, "cpu")
    write = checkpoint.write_atomically

    def slow(*given: object) -> None:
        time.sleep(0.05)
        write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "write_atomically", slow)
    with pytest.raises(StopError):
        fit(toy(), CFG, tmp_path, "cpu", stop_at(3), AT_ONCE)
    assert checkpoint_epoch(tmp_path) in (2, 3)
    resumed = fit(toy(), CFG, tmp_path, "cpu", None, AT_ONCE)
    assert same(whole.best, resumed.best)
    assert whole.curve == resumed.curve


def test_best_weights_are_written_when_they_change_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = checkpoint.write_atomically
    monkeypatch.setattr(checkpoint, "write_atomically", lambda p, t, m: (written.append(p.name), write(p, t, m)))
    scores = {1: 0.1, 2: 0.9, 3: 0.3, 4: 0.9, 5: 0.2, 6: 0.0}
    fitted = fit(toy(scores=scores), CFG, tmp_path, "cpu")
    assert [name == NAME for name in written] == [False, True, False, True, True, True, True, True]
    assert names(tmp_path) == sorted([written[2], NAME])
    assert same(read_progress(tmp_path).best, fitted.best)


def test_a_kill_before_any_of_the_files_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {1: 0.1, 2: 0.9, 3: 0.3, 4: 1.9, 5: 2.2, 6: 0.0}
    whole = fit(toy(scores=scores), CFG, None, "cpu")
    write = checkpoint.write_atomically
    for killed_at, epochs in enumerate((0, 0, 1, 1, 2, 3, 3, 4), start=1):
        folder, count = tmp_path / str(killed_at), itertools.count(1)

        def killed(*given: object, killed_at: int = killed_at, count: Iterator[int] = count) -> None:
            if next(count) == killed_at:
                raise StopError
            write(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_atomically", killed)
            with pytest.raises(StopError):
                fit(toy(scores=scores), CFG, folder, "cpu")
        assert checkpoint_epoch(folder) == epochs, killed_at
        later = {n: scores[epochs + n] for n in range(1, 7 - epochs)}  # the toy counts its own epochs
        folder.mkdir(exist_ok=True)
        (folder / f".{NAME}.77").touch()
        resumed = fit(toy(scores=later), CFG, folder, "cpu")
        assert same(whole.best, resumed.best), killed_at
        assert whole.curve == resumed.curve, killed_at
        assert len(names(folder)) == 2, f"what the kill {killed_at} left is removed"


def test_best_weights_that_are_gone_or_other_than_the_checkpoint_names_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = fit(toy(), CFG, None, "cpu")
    with pytest.raises(StopError):
        fit(toy(), CFG, tmp_path, "cpu", stop_at(3))
    (best,) = tmp_path.glob(BEST)
    save_file({name: value + 1 for name, value in read_progress(tmp_path).best.items()}, best)
    assert same(whole.best, fit(toy(), CFG, tmp_path, "cpu").best)
    assert "do not match their digest" in caplog.text
    (best,) = tmp_path.glob(BEST)
    best.unlink()
    assert same(whole.best, fit(toy(), CFG, tmp_path, "cpu").best)
    assert "are missing" in caplog.text


def test_a_training_that_has_ended_keeps_no_optimizer(tmp_path: Path) -> None:
    kept = {}
    for folder, done in (("going", stop_at(3)), ("ended", None)):
        try:
            fit(toy(), CFG, tmp_path / folder, "cpu", done)
        except StopError:
            assert folder == "going"
        with safe_open(tmp_path / folder / NAME, "pt") as file:
            kept[folder] = {key.split("/")[0] for key in file.keys()}  # noqa: SIM118
    assert kept == {"going": {"model", "optimizer", "random"}, "ended": {"random"}}


def test_a_checkpoint_of_another_format_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_file({"model/x": torch.ones(1)}, tmp_path / NAME, {"progress": json.dumps({"format": 1, "name": "toy"})})
    fit(toy(), CFG, tmp_path, "cpu")
    assert "its format is 1, not 2" in caplog.text
    assert (tmp_path / f"damaged-{NAME}").is_file()


def test_a_disk_that_fails_under_the_thread_comes_out_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, rising = checkpoint.save_file, {n: float(n) for n in range(1, 7)}
    for checkpoint_s, failing in ((0.0, 1), (0.0, 2), (0.0, 7), (AT_ONCE, 1), (AT_ONCE, 8)):
        count = itertools.count(1)

        def fails(*given: object, failing: int = failing, count: Iterator[int] = count) -> None:
            if next(count) == failing:
                raise SafetensorError("Error while serializing: I/O error: planted")
            save(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(checkpoint, "save_file", fails)
        folder = tmp_path / f"{checkpoint_s}-{failing}"
        with pytest.raises(StoreIOError, match=r"cannot write .*; nothing that was committed before is lost: fix the"):
            fit(toy(scores=rising), CFG, folder, "cpu", None, checkpoint_s)


def test_without_a_thread_error_the_failure_would_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.CheckpointWriter, "wait", lambda self: None)
    monkeypatch.setattr(checkpoint, "save_file", lambda *_: 1 / 0)
    fit(toy(), CFG, tmp_path, "cpu", None, AT_ONCE)
    assert names(tmp_path) == [], "the planted fault: nothing is written and nothing is said"


def test_a_training_on_the_cpu_does_not_touch_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("CUDA was touched")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("current_device", "get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, touched)
    with pytest.raises(StopError):
        fit(toy(), CFG, tmp_path, "cpu", stop_at(2))
    fit(toy(), CFG, tmp_path, "cpu")


def test_scratch_holds_eight_times_the_weights_at_the_worst_moment_and_once_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints of three times the weights and best weights, each old and new (docs/decisions/training.md)."""
    training = toy(scores={n: float(n) for n in range(1, 7)})
    wide = torch.nn.Linear(300, 300)
    training.model.register_parameter("wide", wide.weight)
    loss = training.loss
    object.__setattr__(training, "loss", lambda rows: loss(rows) + wide.weight.pow(2).sum())
    weights = sum(value.nbytes for value in training.model.state_dict().values())
    sizes: list[int] = []

    def lies_there() -> int:
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    sync = checkpoint.os.fsync
    monkeypatch.setattr(checkpoint.os, "fsync", lambda handle: (sizes.append(lies_there()), sync(handle))[1])
    fit(training, CFG, tmp_path, "cpu")
    overhead = 40_000
    """Headers, curves and random states."""
    assert 7.9 * weights < max(sizes) < 8 * weights + overhead
    assert lies_there() < weights + overhead
