"""The loop: seeds, best epoch, early stopping, and a killed training that ends as if nothing had happened."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from schemas.training import TrainConfig
from trajpilot_core.errors import CheckpointError, TrainingError
from trajpilot_core.training.loop import EpochDone, Training, fit, index_batches, learning_rate, seeded

CFG = TrainConfig(epochs=6, patience=None, lr=1e-2, batch=8, precision="fp32")


def toy(name: str = "toy", seed: int = 0, scores: Mapping[int, float] | None = None) -> Training:
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

    return Training(name, seed, model, batches, loss, measure, "dev/score")


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
    first, second, other = (fit(toy(seed=s), CFG, None, "cpu") for s in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state()), "the caller's random state is left alone"
    assert same(first.best, second.best)
    assert first.curve == second.curve
    assert not same(first.best, other.best)


def test_the_best_epoch_is_kept_and_its_score_told() -> None:
    fitted = fit(toy(scores={1: 0.1, 2: 0.9, 3: 0.3, 4: 0.9, 5: 0.2, 6: 0.0}), CFG, None, "cpu")
    assert (fitted.best_epoch, fitted.best_score) == (2, 0.9)
    told = {(row.epoch, row.split, row.quantity) for row in fitted.curve}
    assert told == {(e, *q) for e in range(1, 7) for q in (("train", "loss"), ("dev", "score"))}


def test_training_stops_when_dev_has_not_improved() -> None:
    cfg = CFG.replace(patience=2, lr=0.1)
    scores = {1: 0.5, 2: 0.6, 3: 0.6, 4: 0.1, 5: 0.1, 6: 0.1}
    for rates, last in (({}, 4), ({"lr": 1e-6, "min_lr": 1e-6}, 6)):  # of a loss that has not fallen nothing is asked
        fitted = fit(toy(scores=scores), cfg.replace(**rates), None, "cpu")
        assert max(row.epoch for row in fitted.curve) == last


def test_a_resume_that_forgets_the_random_state_is_seen_by_that_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit(toy(), CFG, None, "cpu")
    with pytest.raises(StopError):
        fit(toy(), CFG, tmp_path, "cpu", stop_at(3))
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    assert not same(whole.best, fit(toy(), CFG, tmp_path, "cpu").best)


def test_the_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    fit(toy("first"), CFG, tmp_path, "cpu")
    with pytest.raises(CheckpointError, match="first"):
        fit(toy("second"), CFG, tmp_path, "cpu")


def test_a_loss_that_is_not_finite_and_a_precision_that_is_not_resolved_are_refused() -> None:
    training = toy()
    object.__setattr__(training, "loss", lambda rows: training.model(torch.zeros(1, 4)).sum() * float("nan"))
    with pytest.raises(TrainingError, match="loss nan"):
        fit(training, CFG, None, "cpu")
    with pytest.raises(TrainingError, match="auto"):
        fit(toy(), CFG.replace(precision="auto"), None, "cpu")


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
