"""Fit low-rank weights to the recogniser: one segment at a time, the loss on its answer alone.

Source: paper, appendix on the recogniser; docs/decisions/vlm.md. Shapes: T tokens of the question, A of the answer, V
tokens that a model knows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.training import TrainConfig
from schemas.vlm import VlmTuning
from trajpilot_core.training.loop import EpochDone, FittedModel, Training, fit, seeded
from trajpilot_core.vlm.local.inputs import model_inputs
from trajpilot_core.vlm.local.model import LocalModel
from trajpilot_core.vlm.requests import Asking
from trajpilot_core.vlm.tuning.low_rank import TunedModel
from trajpilot_core.vlm.tuning.pairs import FramesOf, TuningPair, question_of

SELECTED = "dev/-loss"
NAME = "vlm/recogniser"


@dataclass(frozen=True)
class TuningTask:
    """What is shown to which model."""

    local: LocalModel
    asking: Asking
    frames_of: FramesOf
    train: Sequence[TuningPair]
    dev: Sequence[TuningPair]


def answered_inputs(task: TuningTask, pair: TuningPair) -> tuple[dict[str, Tensor], Tensor]:
    """Return what the model is called with, question and answer, and the answer alone.

    Returns:
        As `model_inputs`, with input_ids, attention_mask and mm_token_type_ids (1, T + A); and (A,) long: the tokens
        of the label, and the one that ends an answer.

    Raises:
        LeakError, TrainingError: as `question_of`.
    """
    local = task.local
    request, images = question_of(pair, task.asking, task.frames_of)
    found = model_inputs(request, images, local.tokenizer, local.template, local.rules, local.image_id)
    ends = local.network.generation_config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    answer_A = torch.tensor([*local.tokenizer(pair.label, add_special_tokens=False)["input_ids"], end])
    found["input_ids"] = torch.cat([found["input_ids"], answer_A[None]], dim=1)
    for name, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
        more = found[name].new_full((1, len(answer_A)), value)
        found[name] = torch.cat([found[name], more], dim=1)
    return {name: value.to(local.device) for name, value in found.items()}, answer_A.to(local.device)


def answer_loss(network: Any, inputs: dict[str, Tensor], answer_A: Tensor) -> Tensor:
    """Return the mean cross-entropy of the tokens of an answer, a scalar; of the question there is no loss.

    Args:
        network: the model; only its logits of the places before each token of the answer are computed.
        inputs: question and answer.
        answer_A: the last tokens of `inputs`.
    """
    logits_1LV = network(**inputs, use_cache=False, logits_to_keep=len(answer_A) + 1).logits
    return F.cross_entropy(logits_1LV[0, :-1].float(), answer_A)


def batch_loss(tuned: TunedModel, task: TuningTask, rows: Sequence[int]) -> Tensor:
    """Return the mean loss of some training pairs, a scalar, of which only the last has a graph.

    The others leave their gradients at once: so many steps are accumulated, and one segment lies in memory.
    """
    total = torch.zeros((), device=task.local.device)
    for row in rows[:-1]:
        loss = answer_loss(tuned.model, *answered_inputs(task, task.train[row])) / len(rows)
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total + answer_loss(tuned.model, *answered_inputs(task, task.train[rows[-1]])) / len(rows)


def rounds_of(n: int, cfg: VlmTuning) -> tuple[int, int]:
    """Return how many rounds a pass over n pairs has, and how many steps a round; the last one may begin again."""
    steps = math.ceil(n / cfg.train.batch)
    each = math.ceil(steps / cfg.rounds)
    return math.ceil(steps / each), each


def next_batches(tuned: TunedModel, n: int, cfg: VlmTuning) -> list[list[int]]:
    """Return the pairs of the steps of the next round, and count it: the count lies in the checkpoint.

    The order of a pass follows from seed and pass. What lacks to whole rounds is filled from the order's beginning.
    """
    rounds, steps = rounds_of(n, cfg)
    at = int(tuned.n_rounds)
    tuned.n_rounds += 1
    order = torch.randperm(n, generator=torch.Generator().manual_seed(cfg.seed * 1000 + at // rounds)).tolist()
    first = at % rounds * steps * cfg.train.batch
    taken = [order[place % n] for place in range(first, first + steps * cfg.train.batch)]
    return [taken[begin : begin + cfg.train.batch] for begin in range(0, len(taken), cfg.train.batch)]


def tuning_of(task: TuningTask, cfg: VlmTuning) -> tuple[Training, TrainConfig]:
    """Return the training and its settings; added weights begin as the seed says."""
    with seeded(cfg.seed):
        tuned = TunedModel(task.local.network, cfg)
    n = len(task.train)

    def measure() -> dict[str, float]:
        lost = [float(answer_loss(tuned.model, *answered_inputs(task, one))) for one in task.dev]
        return {SELECTED: -sum(lost) / len(lost)}

    training = Training(
        name=NAME,
        seed=cfg.seed,
        model=tuned,
        batches=lambda _: next_batches(tuned, n, cfg),
        loss=lambda rows: batch_loss(tuned, task, rows),
        measure=measure,
        selected=SELECTED,
    )
    return training, cfg.train.replace(epochs=rounds_of(n, cfg)[0] * cfg.passes)


def tune(
    task: TuningTask,
    cfg: VlmTuning,
    folder: Path | None,
    epoch_done: EpochDone | None = None,
    checkpoint_s: float = 0.0,
) -> FittedModel:
    """Fit, and return the weights of the round that answers best on dev: name -> tensor of `TunedModel`.

    Args:
        task: what is shown to which model, which answers with the last weights afterwards.
        cfg: how.
        folder: holds the checkpoint, from which a second call goes on; None: no checkpoint.
        epoch_done: called after every round.
        checkpoint_s: seconds between checkpoints at least.

    Raises:
        TrainingError: the loss is not finite, or frames cannot be decoded.
    """
    training, train = tuning_of(task, cfg)
    return fit(training, train, folder, task.local.device, epoch_done, checkpoint_s)
