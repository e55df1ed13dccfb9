"""The loop: seeds, best epoch, early stopping; checkpoints by the clock, what a kill or a failing disk leaves."""

import errno
import itertools
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from schemas.training import TrainConfig
from trajpilot_core.errors import CheckpointError, StoreIOError, TrainingError
from trajpilot_core.training import checkpoint, loop
from trajpilot_core.training.checkpoint import NAME, read_progress
from trajpilot_core.training.loop import EpochDone, Training, fit, index_batches, learning_rate, seeded

CFG = TrainConfig(epochs=6, patience=None, lr=1e-2, batch=8, precision="fp32")


def toy(
    name: str = "toy", seed: int = 0, scores: Mapping[int, float] | None = None, cfg: TrainConfig = CFG
) -> Training:
    """A small regression with dropout; `scores` replaces the dev score of an epoch."""
    with seeded(seed):
        model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 1))
        x = torch.randn(64, 4)
    y, epoch = x.sum(1, keepdim=True).sin(), [0]

    def measure() -> dict[str, float]:
        epoch[0] += 1
        own = -float((model(x) - y).pow(2).mean())
        return {"dev/score": own if scores is None else scores[epoch[0]]}

    def loss(rows: Tensor) -> Tensor:
        return (model(x[rows]) - y[rows]).pow(2).mean()

    def batches(generator: torch.Generator) -> list[Tensor]:
        return index_batches(64, CFG.batch, generator)

    return Training(name, seed, model, cfg, batches, loss, measure, "dev/score")


class StopError(Exception):
    """Stands for a kill."""


def stop_at(last: int) -> EpochDone:
    def stop(epoch: int, epochs: int, line: str) -> None:
        if epoch == last:
            raise StopError

    return stop


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not() -> None:
    before = torch.get_rng_state()
    first, second, other = (fit(toy(seed=s), None, "cpu") for s in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state()), "the caller's random state is left alone"
    assert same(first.best, second.best)
    assert first.curve == second.curve
    assert not same(first.best, other.best)


def test_the_best_epoch_is_kept_and_its_score_told() -> None:
    fitted = fit(toy(scores={1: 0.1, 2: 0.9, 3: 0.3, 4: 0.9, 5: 0.2, 6: 0.0}), None, "cpu")
    assert (fitted.best_epoch, fitted.best_score) == (2, 0.9)
    told = {(row.epoch, row.split, row.quantity) for row in fitted.curve}
    assert told == {(e, *q) for e in range(1, 7) for q in (("train", "loss"), ("dev", "score"))}


def test_training_stops_when_dev_has_not_improved() -> None:
    cfg = CFG.replace(patience=2, lr=0.1)
    scores = {1: 0.5, 2: 0.6, 3: 0.6, 4: 0.1, 5: 0.1, 6: 0.1}
    for rates, last in (({}, 4), ({"lr": 1e-6, "min_lr": 1e-6}, 6)):  # of a loss that has not fallen nothing is asked
        fitted = fit(toy(scores=scores, cfg=cfg.replace(**rates)), None, "cpu")
        assert max(row.epoch for row in fitted.curve) == last


def test_a_resume_that_forgets_the_random_state_is_seen_by_that_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit(toy(), None, "cpu")
    with pytest.raises(StopError):
        fit(toy(), tmp_path, "cpu", stop_at(3))
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    assert not same(whole.best, fit(toy(), tmp_path, "cpu").best)


def test_the_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    fit(toy("first"), tmp_path, "cpu")
    with pytest.raises(CheckpointError, match="first"):
        fit(toy("second"), tmp_path, "cpu")


def test_a_loss_that_is_not_finite_and_a_precision_that_is_not_resolved_are_refused() -> None:
    training = toy()
    object.__setattr__(training, "loss", lambda rows: training.model(torch.zeros(1, 4)).sum() * float("nan"))
    with pytest.raises(TrainingError, match="loss nan"):
        fit(training, None, "cpu")
    with pytest.raises(TrainingError, match="auto"):
        fit(toy(cfg=CFG.replace(precision="auto")), None, "cpu")


def test_the_rate_warms_up_and_falls_to_its_end() -> None:
    cfg = TrainConfig(warmup=0.1, lr=1.0, min_lr=0.1)
    rates = [learning_rate(step, 100, cfg) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert rates[100] == pytest.approx(0.1)


def test_batches_hold_every_row_once() -> None:
    batches = index_batches(21, 8, torch.Generator().manual_seed(0))
    assert [len(b) for b in batches] == [8, 8, 5]
    assert sorted(torch.cat(batches).tolist()) == list(range(21))


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
        fit(toy(scores=TenSeconds(FALLING)), tmp_path / str(checkpoint_s), "cpu", None, checkpoint_s)
        assert written == expected, "an interval and an epoch"


def test_a_killed_training_says_where_it_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trajpilot")
    scores = {1: 0.1, 2: 0.9, 3: 0.3, 4: 1.9, 5: 2.2, 6: 0.0}
    whole = fit(toy(scores=scores), None, "cpu")
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
                fit(toy(scores=scores), folder, "cpu")
        epochs = killed_at - 1
        later, done = {n: scores[epochs + n] for n in range(1, 7 - epochs)}, []  # the toy counts its own epochs
        resumed = fit(toy(scores=later), folder, "cpu", lambda epoch, *_, done=done: done.append(epoch))
        assert done == [*range(killed_at, 7)]
        assert same(whole.best, resumed.best), killed_at
        assert same(whole.best, read_progress(folder).best), killed_at
        assert whole.curve == resumed.curve, killed_at
    assert caplog.messages == [f"training toy seed 0 goes on after epoch {epoch}" for epoch in range(1, 6)]


def test_a_checkpoint_that_is_damaged_or_of_another_format_is_set_aside_and_one_that_ended_is_not_trained_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, path, again = fit(toy(), tmp_path, "cpu"), tmp_path / NAME, toy()
    object.__setattr__(again, "loss", None)
    assert same(first.best, fit(again, tmp_path, "cpu").best)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    assert same(first.best, fit(toy(), tmp_path, "cpu").best)
    assert (tmp_path / f"damaged-{NAME}").is_file()
    save_file({"model/x": torch.ones(1)}, path, {"progress": json.dumps({"format": 1, "name": "toy"})})
    assert same(first.best, fit(toy(), tmp_path, "cpu").best)
    assert "its format is 1, not 3" in caplog.text


def test_a_failing_disk_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, count = os.fsync, itertools.count(1)

    def fails(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_file() and next(count) == 2:
            raise OSError(errno.EIO, "planted")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StoreIOError, match=r"cannot write .*; nothing that was committed before is lost: fix the"):
        fit(toy(), tmp_path, "cpu")
    assert read_progress(tmp_path).epoch == 1


def test_a_training_on_the_cpu_does_not_touch_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("CUDA was touched")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("current_device", "get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, touched)
    with pytest.raises(StopError):
        fit(toy(), tmp_path, "cpu", stop_at(2))
    fit(toy(), tmp_path, "cpu")


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
    fit(training, tmp_path, "cpu")
    overhead = 40_000
    """Headers, curves and random states."""
    assert 7.9 * weights < max(sizes) < 8 * weights + overhead
    assert lies_there() < weights + overhead
