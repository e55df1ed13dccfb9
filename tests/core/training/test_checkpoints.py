"""Checkpoints by the clock: when they come, what a kill or a failing disk leaves."""

import errno
import itertools
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from test_training_loop import CFG, StopError, same, stop_at, toy

from trajpilot_core.errors import StoreIOError
from trajpilot_core.training import checkpoint, loop
from trajpilot_core.training.checkpoint import NAME, read_progress
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


def test_a_killed_training_says_where_it_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trajpilot")
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
        later, done = {n: scores[epochs + n] for n in range(1, 7 - epochs)}, []  # the toy counts its own epochs
        resumed = fit(toy(scores=later), CFG, folder, "cpu", lambda epoch, *_, done=done: done.append(epoch))
        assert done == [*range(killed_at, 7)]
        assert same(whole.best, resumed.best), killed_at
        assert same(whole.best, read_progress(folder).best), killed_at
        assert whole.curve == resumed.curve, killed_at
    assert caplog.messages == [f"training toy seed 0 goes on after epoch {epoch}" for epoch in range(1, 6)]


def test_a_checkpoint_that_is_damaged_or_of_another_format_is_set_aside_and_one_that_ended_is_not_trained_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, path, again = fit(toy(), CFG, tmp_path, "cpu"), tmp_path / NAME, toy()
    object.__setattr__(again, "loss", None)
    assert same(first.best, fit(again, CFG, tmp_path, "cpu").best)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    assert same(first.best, fit(toy(), CFG, tmp_path, "cpu").best)
    assert (tmp_path / f"damaged-{NAME}").is_file()
    save_file({"model/x": torch.ones(1)}, path, {"progress": json.dumps({"format": 1, "name": "toy"})})
    assert same(first.best, fit(toy(), CFG, tmp_path, "cpu").best)
    assert "its format is 1, not 3" in caplog.text


def test_a_failing_disk_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, count = os.fsync, itertools.count(1)

    def fails(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_file() and next(count) == 2:
            raise OSError(errno.EIO, "planted")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreIOError, match=r"cannot write .*; nothing that was committed before is lost: fix the"):
        fit(toy(), CFG, tmp_path, "cpu")
    assert read_progress(tmp_path).epoch == 1


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
