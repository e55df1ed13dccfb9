"""Checkpoints by the clock: when they come, what a kill or a failing disk leaves."""

import errno
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from test_training_loop import CFG, StopError, same, stop_at, toy

from trajpilot_core.errors import StoreIOError
from trajpilot_core.training import checkpoint, loop
from trajpilot_core.training.checkpoint import NAME, checkpoint_epoch, read_progress
from trajpilot_core.training.loop import fit

FALLING = {1: 0.9, 2: 0.5, 3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}


def test_a_checkpoint_comes_when_so_much_time_has_passed_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = [0.0]

    class TenSeconds(dict[int, float]):
        """Scores of epochs that take so long."""

        def __getitem__(self, epoch: int) -> float:
            clock_s[0] += 10.0
            return super().__getitem__(epoch)

    monkeypatch.setattr(loop.time, "monotonic", lambda: clock_s[0])
    written: list[int] = []
    monkeypatch.setattr(loop, "write_checkpoint", lambda *given, has_ended: written.append(given[2].epoch))
    for checkpoint_s, expected in ((0.0, [1, 2, 3, 4, 5, 6]), (15.0, [2, 4, 6]), (60.0, [6])):
        written.clear()
        fit(toy(scores=TenSeconds(FALLING)), CFG, tmp_path / str(checkpoint_s), "cpu", None, checkpoint_s)
        assert written == expected, "an interval and an epoch"


def test_a_kill_before_a_checkpoint_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {1: 0.1, 2: 0.9, 3: 0.3, 4: 1.9, 5: 2.2, 6: 0.0}
    whole = fit(toy(scores=scores), CFG, None, "cpu")
    write = checkpoint.write_atomically
    for killed_at in range(1, 7):
        folder, count = tmp_path / str(killed_at), itertools.count(1)

        def killed(*given: object, killed_at: int = killed_at, count: Iterator[int] = count) -> None:
            if next(count) == killed_at:
                raise StopError
            write(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_atomically", killed)
            with pytest.raises(StopError):
                fit(toy(scores=scores), CFG, folder, "cpu")
        epochs = killed_at - 1
        assert checkpoint_epoch(folder) == epochs
        later = {n: scores[epochs + n] for n in range(1, 7 - epochs)}  # the toy counts its own epochs
        resumed = fit(toy(scores=later), CFG, folder, "cpu")
        assert same(whole.best, resumed.best), killed_at
        assert same(whole.best, read_progress(folder).best), killed_at
        assert whole.curve == resumed.curve, killed_at


def test_a_training_that_has_ended_keeps_no_optimizer(tmp_path: Path) -> None:
    kept = {}
    for folder, done in (("going", stop_at(3)), ("ended", None)):
        try:
            fit(toy(), CFG, tmp_path / folder, "cpu", done)
        except StopError:
            assert folder == "going"
        with safe_open(tmp_path / folder / NAME, "pt") as file:
            kept[folder] = {key.split("/")[0] for key in file.keys()}  # noqa: SIM118
    assert kept == {"going": {"best", "model", "optimizer", "random"}, "ended": {"best", "random"}}


def test_a_checkpoint_of_another_format_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_file({"model/x": torch.ones(1)}, tmp_path / NAME, {"progress": json.dumps({"format": 1, "name": "toy"})})
    fit(toy(), CFG, tmp_path, "cpu")
    assert "its format is 1, not 3" in caplog.text
    assert (tmp_path / f"damaged-{NAME}").is_file()


def test_a_failing_disk_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, count = os.fsync, itertools.count(1)

    def fails(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_file() and next(count) == 2:
            raise OSError(errno.EIO, "planted")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreIOError, match=r"cannot write .*; nothing that was committed before is lost: fix the"):
        fit(toy(), CFG, tmp_path, "cpu")
    assert checkpoint_epoch(tmp_path) == 1


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
    """A checkpoint of the weights, two moments and the best weights, old and new (docs/decisions/training.md)."""
    training = toy(scores={n: float(n) for n in range(1, 7)})
    wide = torch.nn.Linear(300, 300)
    training.model.register_parameter("wide", wide.weight)
    loss = training.loss
    object.__setattr__(training, "loss", lambda rows: loss(rows) + wide.weight.pow(2).sum())
    weights = sum(value.nbytes for value in training.model.state_dict().values())
    sizes: list[int] = []

    def lies_there() -> int:
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (sizes.append(lies_there()), sync(handle))[1])
    fit(training, CFG, tmp_path, "cpu")
    overhead = 40_000
    """Headers, curves and random states."""
    assert 7.9 * weights < max(sizes) < 8 * weights + overhead
    assert lies_there() < weights + overhead
