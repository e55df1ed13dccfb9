"""The one training loop: flat, resumable, the same for alignment, predictor and scorer.

How a stage uses it: build the model inside `with seeded(seed):`, move it to the device, describe the training as a
`Training`, and call `fit(training, folder, device)`. The data stay on the device; a batch is whatever the
training's own `batches` hands to its own `loss`, normally index tensors. Nothing here knows what is trained.

    training = Training(
        name="final/scorer", seed=0, model=scorer, cfg=cfg.train, selected="dev/M@1",
        batches=lambda generator: index_batches(n, cfg.train.batch, generator, device),  # one epoch
        loss=lambda rows: loss_of(scorer, data, rows),                     # scalar tensor, mean over the batch
        measure=lambda: {"dev/M@1": dev_score(scorer), "train/M@1": ...},  # once per epoch, scorer in eval mode
    )
    fitted = fit(training, scratch / "final-s0-scorer", device)
    fitted.best                                                            # best weights by `selected`, on the CPU
    fitted.curve                                                           # rows for the stage's curves table

Randomness: `seeded` and `fit` leave the global random state of the caller as it was. `fit` seeds the global state
(dropout) and the generator (batches) once from the training's seed; both are part of the checkpoint, so a killed
training that is started again ends with the same weights, bit for bit on one CPU thread.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from schemas.results import CurvePoint
from schemas.training import TrainConfig
from trajpilot_core.errors import TrainingError
from trajpilot_core.training.checkpoint import Trained, TrainingProgress, load_checkpoint, write_checkpoint

log = logging.getLogger("trajpilot")
Batch = Any
EpochDone = Callable[[int, int, str], None]
PLATEAU = 0.05
"""A training has left its first plateau when the loss is lower by this part of that of the first epoch."""


@dataclass(frozen=True)
class Training:
    """What one training optimises."""

    name: str
    """`<chain>/<variant>`; `model` of the curve rows."""
    seed: int
    model: nn.Module
    """On the device already."""
    cfg: TrainConfig
    """`precision` is resolved to fp32 or bf16."""
    batches: Callable[[torch.Generator], Sequence[Batch]]
    """The batches of one epoch, drawn from a CPU generator; their number must not change between epochs."""
    loss: Callable[[Batch], Tensor]
    """Scalar loss of one batch; runs in training mode under autocast."""
    measure: Callable[[], Mapping[str, float]]
    """Scores after an epoch, keys `<split>/<quantity>`; runs in evaluation mode without gradients, without autocast."""
    selected: str
    """The key of `measure` that decides which epoch is kept; higher is better."""
    keeps_last: bool = False
    """The last epoch is kept, whatever its score."""
    rate: Callable[[int, int, TrainConfig], float] | None = None
    """(step, steps in all, `cfg`) -> the rate of a step; None: `learning_rate`."""
    stepped: Callable[[], None] | None = None
    """Called after every step of the optimiser: what averages weights keeps them in the model, so that they resume."""
    decays_all: bool = False
    """Weight decay acts on vectors, too."""
    parts: Sequence["TrainedPart"] = ()
    """Modules that are trained side by side and share no parameter, e.g. the probes of a grid; none: the model."""


class TrainedPart(NamedTuple):
    """A part of a model with a rate and a decay of its own."""

    module: nn.Module
    rate: float
    """Times that of the training."""
    weight_decay: float


def fit(
    training: Training,
    folder: Path | None,
    device: str,
    epoch_done: EpochDone | None = None,
    checkpoint_s: float = 0.0,
) -> TrainingProgress:
    """Train until the epochs are over or dev stops improving; return the progress, with the best epoch's weights.

    Args:
        folder: private to this training; holds its checkpoint, from which a second call goes on. None: no checkpoint.
        device: of the model; on a CPU one thread is used.
        epoch_done: called with (epoch, most epochs, one line) after every epoch.
        checkpoint_s: seconds between checkpoints (`RunOptions.checkpoint_s`), for each of which the training waits; 0:
            one after every epoch. The last epoch always leaves one.

    Raises:
        TrainingError: the loss is not finite, there is nothing to train on, or `precision` is still `auto`.
        StoreIOError: the disk of the checkpoints failed or is full.
    """
    cfg = training.cfg
    with seeded(training.seed, device), one_thread(device):
        generator = torch.Generator().manual_seed(training.seed)
        optimizer = build_optimizer(training.model, cfg, device, training.parts, decays_all=training.decays_all)
        trained = Trained(training.name, training.model, optimizer, generator, device)
        state = load_checkpoint(folder, trained) or TrainingProgress()
        if state.epoch:
            log.info("training %s seed %d goes on after epoch %d", training.name, training.seed, state.epoch)
        written_s = time.monotonic()
        while not finished(state, cfg):
            run_epoch(training, optimizer, generator, state, device)
            has_ended = finished(state, cfg)
            if folder is not None and (has_ended or time.monotonic() - written_s >= checkpoint_s):
                write_checkpoint(folder, trained, state, has_ended=has_ended)
                written_s = time.monotonic()
            if epoch_done is not None:
                said = f"{training.name}: {training.selected.replace('/', ' ')} {state.scores[-1]:.3f}"
                epoch_done(state.epoch, cfg.epochs, said)
    return state


def run_epoch(
    training: Training,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    state: TrainingProgress,
    device: str,
) -> None:
    """Train one epoch, measure, and note the outcome in `state`."""
    cfg, batches = training.cfg, training.batches(generator)
    if not batches:
        raise TrainingError(f"{training.name}: nothing to train on; more takes, or a smaller holdout, are needed")
    total_steps, step = cfg.epochs * len(batches), state.epoch * len(batches)
    loss_sum = torch.zeros((), device=device)
    rate = training.rate or learning_rate
    training.model.train()
    for batch in batches:
        for group in optimizer.param_groups:
            group["lr"] = rate(step, total_steps, cfg) * group["times"]
        optimizer.zero_grad(set_to_none=True)
        with autocast(cfg, device):
            loss = training.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if cfg.clip is not None:
            nn.utils.clip_grad_norm_(training.model.parameters(), cfg.clip)
        optimizer.step()
        if training.stepped is not None:
            training.stepped()
        loss_sum += loss.detach()
        step += 1
    note_epoch(training, state, loss_sum.item() / len(batches))


def note_epoch(training: Training, state: TrainingProgress, loss: float) -> None:
    """Measure the model, keep it when it is the best so far, and add the curve rows of this epoch."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"{training.name}: loss {loss} in epoch {state.epoch + 1}; lower the rate of its stage, for example with "
            "--set predictor.train.lr"
        )
    training.model.eval()
    with torch.no_grad():
        measured = {"train/loss": loss, **training.measure()}
    state.epoch += 1
    for key, value in measured.items():
        split, quantity = key.split("/", 1)
        row = {"split": split, "quantity": quantity, "value": float(value)}
        state.curve.append(
            CurvePoint.model_validate({"model": training.name, "seed": training.seed, "epoch": state.epoch, **row})
        )
    score = float(measured[training.selected])
    state.scores.append(score)
    if training.keeps_last or not state.best or score > state.best_score:
        state.best_score, state.best_epoch = score, state.epoch
        state.best = {name: value.detach().cpu().clone() for name, value in training.model.state_dict().items()}


def finished(state: TrainingProgress, cfg: TrainConfig) -> bool:
    """Return whether the epochs are over, or dev has not improved for `patience` of them after the first plateau."""
    if state.epoch >= cfg.epochs or cfg.patience is None:
        return state.epoch >= cfg.epochs
    losses = [row.value for row in state.curve if (row.split, row.quantity) == ("train", "loss")]
    fallen = (n for n, loss in enumerate(losses, 1) if losses[0] - loss > PLATEAU * abs(losses[0]))
    return state.epoch - max(state.best_epoch, next(fallen, state.epoch)) >= cfg.patience


def learning_rate(step: int, total_steps: int, cfg: TrainConfig) -> float:
    """Return the rate of one step: linear warm-up to `lr`, then a cosine down to `min_lr` (D 2)."""
    warmup = round(cfg.warmup * total_steps)
    if step < warmup:
        return cfg.lr * (step + 1) / warmup
    share = (step - warmup) / max(1, total_steps - warmup)
    return cfg.min_lr + 0.5 * (cfg.lr - cfg.min_lr) * (1 + math.cos(math.pi * min(share, 1.0)))


def build_optimizer(
    model: nn.Module, cfg: TrainConfig, device: str, parts: Sequence[TrainedPart] = (), *, decays_all: bool = False
) -> torch.optim.Optimizer:
    """Return AdamW with weight decay on matrices, and on vectors where `decays_all`; fused where the device has it."""
    groups = []
    for part in parts or (TrainedPart(model, 1.0, cfg.weight_decay),):
        parameters = [p for p in part.module.parameters() if p.requires_grad]
        matrices, vectors = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
        decay = part.weight_decay if decays_all else 0.0
        groups += [
            {"params": matrices, "weight_decay": part.weight_decay, "times": part.rate},
            {"params": vectors, "weight_decay": decay, "times": part.rate},
        ]
    return torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas, fused=torch.device(device).type in ("cpu", "cuda"))


def autocast(cfg: TrainConfig, device: str) -> torch.autocast:
    """Return the arithmetic of the loss: bf16 autocast, or none for fp32."""
    if cfg.precision == "auto":
        raise TrainingError("the precision is 'auto'; it must be resolved to fp32 or bf16 before training")
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=cfg.precision == "bf16")


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed the global random state inside the block, which samples on `device`, and put the caller's state back after
    it; with `cpu`, CUDA is not touched."""
    on_gpu = device.startswith("cuda") and torch.cuda.is_available()
    with torch.random.fork_rng([torch.device(device)] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """Use one CPU thread inside the block: faster for small models, and sums do not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def index_batches(n: int, batch: int, generator: torch.Generator, device: torch.device | str = "cpu") -> list[Tensor]:
    """Return the numbers 0..n-1 in random order, cut into long tensors of shape (batch,); the last may be shorter.

    They are drawn on the CPU and moved to `device` at once, so that no step of the epoch waits for its own numbers.
    """
    return list(torch.split(torch.randperm(n, generator=generator).to(device), batch)) if n else []
