"""Every training on a pretended accelerator: no tensor is left on the CPU."""

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from planning_fixture import SCORER, TRAIN, model_files, on_cpu, planning_data
from pretend_device import DeviceTensor, MixedDevicesError, pretend_cuda
from torch import Tensor, nn
from torch.testing import assert_close
from trainings_fixture import E_TAU, PREDICTOR, memory_task, segment_task

from trajpilot_core.engine.stage import no_progress
from trajpilot_core.models import predictor as predictor_model
from trajpilot_core.training import fit_alignment, fit_predictor, jobs, scorer_fit
from trajpilot_core.training.checkpoint import TrainingProgress
from trajpilot_core.training.jobs import TrainingJob
from trajpilot_core.training.loop import Training, fit

EPOCHS = TRAIN.replace(epochs=2, batch=32)
Run = Callable[[str], Any]


def losses_on(device: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Run trainings on `cpu` or on the pretended `cuda`, without checkpoints; return the loss of every step."""
    losses: list[Tensor] = []

    def watched(
        training: Training, folder: Any, device: str, epoch_done: Any = None, checkpoint_s: float = 0.0
    ) -> TrainingProgress:
        def loss(batch: Any) -> Tensor:
            found = training.loss(batch)
            losses.append(found.detach())
            return found

        return fit(replace(training, loss=loss), None, device, epoch_done)

    for module in (jobs, scorer_fit):
        monkeypatch.setattr(module, "fit", watched)
    with pretend_cuda() if device == "cuda" else nullcontext():
        run(device)
        assert all(isinstance(loss, DeviceTensor) == (device == "cuda") for loss in losses)
        return [float(loss.cpu()) for loss in losses]


def job(device: str, variant: str, config: str) -> TrainingJob:
    return TrainingJob(f"final/{variant}", 0, variant, Path(), Path(), Path(), config, device)


def given(tensors: dict[str, Tensor], device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a training read these tensors from its device."""
    there = {name: value.to(device) for name, value in tensors.items()}
    monkeypatch.setattr(jobs, "job_tensors", lambda job: there)


def alignment(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given(segment_task(70, 20, is_clear=True), device, monkeypatch)
    cfg = E_TAU.replace(train=EPOCHS, dropout=0.1)
    fit_alignment.FIT(job(device, "e_tau", cfg.model_dump_json()), no_progress)


def predictor(device: str, monkeypatch: pytest.MonkeyPatch, variant: str = "traj", goal_dropout: float = 0.0) -> None:
    shared, own = memory_task().tensors()
    given(shared | own, device, monkeypatch)
    cfg = PREDICTOR.replace(train=EPOCHS, dropout=0.1, goal_dropout=goal_dropout)
    fit_predictor.FIT(job(device, variant, cfg.model_dump_json()), no_progress)


def scorers(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SCORER.replace(train=EPOCHS, dropout=0.1)
    data = planning_data()
    with tempfile.TemporaryDirectory() as folder:
        where = replace(on_cpu(Path(folder)), device=device)
        scorer_fit.fit_scorers(data.to(device), model_files(data), config, 0, where)


@pytest.mark.parametrize(
    "train", [alignment, lambda device, patch: predictor(device, patch, "endpoint_traj", 0.5), scorers]
)
def test_every_training_stays_on_its_device(
    train: Callable[[str, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs with their measures."""
    there, here = (losses_on(at, lambda at: train(at, monkeypatch), monkeypatch) for at in ("cuda", "cpu"))
    assert len(there) >= 4
    assert_close(there, here, atol=1e-6, rtol=1e-6)


def test_a_tensor_that_a_step_leaves_on_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a mask without its device."""
    mask = predictor_model.structured_mask
    monkeypatch.setattr(
        predictor_model, "structured_mask", lambda context, mids, plans=1, device=None: mask(context, mids)
    )
    with pytest.raises(MixedDevicesError, match="cuda:0 and cpu"):
        losses_on("cuda", lambda device: predictor(device, monkeypatch), monkeypatch)


def test_tensors_of_two_devices_are_refused() -> None:
    for act in (
        lambda x: x + torch.arange(4),
        lambda x: torch.cat([x, torch.zeros(1, 4)]),
        lambda x: torch.where(x > 0, x, torch.zeros(4)),
        lambda x: nn.Linear(4, 2)(x),
        lambda x: x.gather(1, torch.zeros(3, 1, dtype=torch.long)),
    ):
        with pretend_cuda(), pytest.raises(MixedDevicesError):
            act(torch.ones(3, 4, device="cuda"))
    with torch.inference_mode():
        assert torch.ones(2).is_inference(), "afterwards nothing is pretended"
    with pytest.raises((AssertionError, RuntimeError), match="CUDA"):
        torch.ones(2, device="cuda")
