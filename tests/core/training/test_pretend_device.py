"""Every training on a pretended accelerator: no tensor is left on the CPU, and no step waits for the device."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from planning_fixture import ALIGNMENT, PREDICTOR, SCORER, TRAIN, World, model_files, on_cpu, planning_data
from pretend_device import DEVICE, DeviceTensor, MixedDevicesError, Stalls, pretend_cuda
from torch import Tensor, nn
from torch.testing import assert_close

from schemas.training import PredictorConfig
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.models import predictor as predictor_model
from trajpilot_core.training import fit_alignment, fit_predictor, scorer_fit
from trajpilot_core.training.checkpoint import TrainingProgress
from trajpilot_core.training.jobs import TrainingJob
from trajpilot_core.training.loop import Training, fit

EPOCHS = TRAIN.replace(epochs=2, batch=32)
ONE = TypeVar("ONE")


class Steps(list[ONE]):
    """The batches of an epoch; notes the stalls of the steps, and not those between two epochs."""

    def __init__(self, batches: Sequence[ONE], seen: "Seen") -> None:
        super().__init__(batches)
        self.seen = seen

    def __iter__(self) -> Iterator[ONE]:
        before = Counter(self.seen.stalls)
        yield from super().__iter__()
        self.seen.in_steps += self.seen.stalls - before
        self.seen.n_steps += len(self)


@dataclass
class Seen:
    """What was seen of one or several trainings."""

    stalls: Stalls
    losses: list[Tensor] = field(default_factory=list)
    in_steps: Stalls = field(default_factory=Counter)
    n_steps: int = 0

    def fit(
        self, training: Training, cfg: Any, folder: Any, device: str, epoch_done: Any = None, checkpoint_s: float = 0.0
    ) -> TrainingProgress:
        """Stand in for `loop.fit`: the same, without a checkpoint."""

        def loss(batch: Any) -> Tensor:
            found = training.loss(batch)
            self.losses.append(found.detach())
            return found

        noted = replace(training, loss=loss, batches=lambda generator: Steps(training.batches(generator), self))
        return fit(noted, cfg, None, device, epoch_done)

    def values(self) -> list[float]:
        return [float(loss.cpu()) for loss in self.losses]


Run = Callable[[str], Any]


def seen_on(device: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Run trainings on `cpu` or on the pretended `cuda`."""

    def watched(stalls: Stalls) -> Seen:
        seen = Seen(stalls)
        for module in (fit_alignment, fit_predictor, scorer_fit):
            monkeypatch.setattr(module, "fit", seen.fit)
        run(device)
        return seen

    if device == "cpu":
        return watched(Counter())
    with pretend_cuda() as stalls:
        seen = watched(stalls)
        assert all(isinstance(loss, DeviceTensor) for loss in seen.losses)
        seen.losses = [loss.cpu() for loss in seen.losses]
        return seen


def job(device: str, variant: str, config: str) -> TrainingJob:
    return TrainingJob(f"final/{variant}", 0, variant, Path(), Path(), Path(), config, device)


def kinds(stalls: Stalls) -> dict[str, int]:
    """Stalls by kind, wherever they are."""
    found: Counter[str] = Counter()
    for stall, n in stalls.items():
        found[stall.kind] += n
    return dict(found)


DATA = planning_data(World(labels=40))


def alignment(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.arange(len(DATA.labels))
    given = {"motions": DATA.motions, "labels": DATA.labels, "bank": DATA.bank, "fit": rows[:70], "dev": rows[70:90]}
    tensors = {name: value.to(device) for name, value in given.items()}
    monkeypatch.setattr(fit_alignment, "job_tensors", lambda job: tensors)
    cfg = ALIGNMENT.replace(train=EPOCHS, dropout=0.1)
    fit_alignment.train_alignment(job(device, "e_tau", cfg.model_dump_json()), no_progress)


def predictor(device: str, monkeypatch: pytest.MonkeyPatch, variant: str = "traj", goal_dropout: float = 0.0) -> None:
    task = fit_predictor.PredictorTask(
        features=DATA.features,
        latents=nn.functional.normalize(DATA.motions.flatten(1)[:, :16], dim=1),
        labels=DATA.labels,
        bank=DATA.bank,
        fit_rows=torch.arange(70),
        fit={h: w.segments[w.split == 0] for h, w in DATA.windows.items()},
        dev={h: w.segments[w.split == 1] for h, w in DATA.windows.items()},
        max_horizon=4,
    )
    shared, own = task.tensors()
    tensors = {name: value.to(device) for name, value in (shared | own).items()}
    monkeypatch.setattr(fit_predictor, "job_tensors", lambda job: tensors)
    cfg: PredictorConfig = PREDICTOR.replace(train=EPOCHS, dropout=0.1, goal_dropout=goal_dropout)
    fit_predictor.train_predictor(job(device, variant, cfg.model_dump_json()), no_progress)


def scorers(device: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    config = SCORER.replace(train=EPOCHS, dropout=0.1, **changes)
    data = planning_data()
    with tempfile.TemporaryDirectory() as folder:
        scorer_fit.fit_scorers(
            data.to(device), model_files(data), config, 0, replace(on_cpu(Path(folder)), device=device)
        )


TRAININGS = {
    "alignment": alignment,
    "predictor": predictor,
    "predictor of the ends, goal dropout": lambda device, patch: predictor(device, patch, "endpoint_traj", 0.5),
    "scorer and ablations": scorers,
}


def test_every_training_stays_on_its_device_and_no_step_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs with their measures."""
    for name, run in TRAININGS.items():
        there = seen_on("cuda", lambda device, run=run: run(device, monkeypatch), monkeypatch)
        assert there.n_steps >= 4, name
        assert not there.in_steps, name
        here = seen_on("cpu", lambda device, run=run: run(device, monkeypatch), monkeypatch)
        assert_close(there.values(), here.values(), atol=1e-6, rtol=1e-6, msg=lambda said, name=name: f"{name}: {said}")


def test_a_value_that_a_step_reads_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the loss is logged in every step."""
    segment_loss = fit_alignment.segment_loss

    def logged(*given: Any) -> Tensor:
        loss = segment_loss(*given)
        assert loss.item() > 0
        return loss

    monkeypatch.setattr(fit_alignment, "segment_loss", logged)
    seen = seen_on("cuda", lambda device: alignment(device, monkeypatch), monkeypatch)
    assert kinds(seen.in_steps) == {"item": seen.n_steps}
    assert {stall.where.split(":")[0] for stall in seen.in_steps} == {"fit_alignment.py"}


def test_a_tensor_that_a_step_leaves_on_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a mask without its device."""
    mask = predictor_model.structured_mask
    monkeypatch.setattr(
        predictor_model, "structured_mask", lambda context, mids, plans=1, device=None: mask(context, mids)
    )
    with pytest.raises(MixedDevicesError, match="cuda:0 and cpu"):
        seen_on("cuda", lambda device: predictor(device, monkeypatch), monkeypatch)


WAITS: tuple[tuple[str, Callable[[Tensor], Any]], ...] = (
    ("item", lambda x: x.sum().item()),
    ("item", lambda x: bool((x > 0).all())),
    ("equal", lambda x: torch.equal(x, x)),
    ("tolist", lambda x: x.tolist()),
    ("download", lambda x: x.cpu()),
    ("download", lambda x: torch.zeros(3, 4).copy_(x)),
    ("upload", lambda x: torch.ones(3, 4).to(x.device)),
    ("upload", lambda x: torch.tensor([1.0], device=x.device)),
    ("nonzero", lambda x: (x > 0).nonzero()),
    ("unique", torch.unique),
    ("masked_select", lambda x: x.masked_select(x > 0)),
    ("index by bool", lambda x: x[x > 0]),
    ("index on the host", lambda x: x[[0, -1]]),
    ("index on the host", lambda x: x[torch.tensor([0, 1])]),
    ("to_sparse", lambda x: x.to_sparse()),
)


def test_every_way_to_wait_is_counted() -> None:
    for kind, act in WAITS:
        with pretend_cuda() as stalls:
            x = torch.arange(12.0, device="cuda").view(3, 4)
            assert stalls == Counter()
            act(x)
            assert kinds(stalls) == {kind: 1}
            assert {stall.where.split(":")[0] for stall in stalls} == {Path(__file__).name}


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


def test_numbers_gradients_and_weights_are_those_of_the_cpu() -> None:
    """Clipping and fused AdamW included; scalars of the CPU, views, slices and writes in place are allowed."""

    def steps(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)).to(device)
        x = torch.rand(3, 4, device=device)
        x[:, 0] = 2.0 * torch.tensor(0.5)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            model(x.view(3, 4)[:, :]).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
        assert {p.device.type for p in model.parameters()} == {device}
        return [p.detach().cpu() for p in model.parameters()]

    with pretend_cuda() as stalls:
        there = steps("cuda")
        assert kinds(stalls) == {"upload": 4, "download": 4}
    assert_close(there, steps("cpu"), atol=0, rtol=0)


def test_afterwards_nothing_is_pretended() -> None:
    with pretend_cuda():
        assert torch.ones(2, device="cuda").device == DEVICE
    with torch.inference_mode():
        assert torch.ones(2).is_inference()
    with pytest.raises((AssertionError, RuntimeError), match="CUDA"):
        torch.ones(2, device="cuda")
