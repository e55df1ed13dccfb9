"""Dev scores that select an epoch, computed on the device, and the sample of fitted rows that is scored next to dev.

Shapes: N rows, V labels, E text width, H horizon. The tables of the report come from trajpilot_core.evaluation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from schemas.training import TrainConfig
from trajpilot_core.memory import in_parts
from trajpilot_core.models.ranking import ranks_of
from trajpilot_core.training.jobs import TrainingJob
from trajpilot_core.training.loop import Training, index_batches

ROWS_PER_CALL = 2048
MOST_SAMPLED = 2048
"""Fitted rows of a group that are scored next to dev, at most: enough for a curve (a standard error of one point)."""
SampledGroup = TypeVar("SampledGroup")
SplitRows = TypeVar("SplitRows")


def measured(scored: Mapping[str, SplitRows], score: Callable[[SplitRows], Mapping[str, float]]) -> dict[str, float]:
    """Return what `Training.measure` does, `<split>/<quantity>` -> value, from the rows of each split."""
    return {f"{split}/{name}": value for split, rows in scored.items() for name, value in score(rows).items()}


def row_measure(
    splits: Mapping[str, Tensor], seed: int, score: Callable[[Tensor], Mapping[str, float]]
) -> Callable[[], dict[str, float]]:
    """Return `Training.measure`: the scores of rows (n, ...) on dev, and on as many fitted rows, sampled by `seed`.

    `splits` are `train` and `dev` -> rows, in the order of the curve.
    """
    sample = sampled_fit({"train": splits["train"]}, {"train": splits["dev"]}, seed)
    scored = {split: sample.get(split, rows) for split, rows in splits.items() if split == "dev" or split in sample}
    return lambda: measured(scored, score)


def row_training(
    job: TrainingJob,
    model: nn.Module,
    cfg: TrainConfig,
    splits: Mapping[str, Tensor],
    loss: Callable[[Tensor], Tensor],
    score: Callable[[Tensor], Mapping[str, float]],
    **more: Any,
) -> Training:
    """Return the training of a model on fitted rows, (n,) long, in random order; `splits` as in `row_measure`.

    `loss` maps rows (B,), long, to a scalar, and `score` to their scores; `more` are further fields of the training.
    """
    fitted = splits["train"]

    def batches(generator: torch.Generator) -> list[Tensor]:
        return [fitted[rows] for rows in index_batches(len(fitted), cfg.batch, generator, fitted.device)]

    return Training(job.name, job.seed, model, cfg, batches, loss, row_measure(splits, job.seed, score), **more)


def recalls_at(predicted_NE: Tensor, bank_VE: Tensor, ids_N: Tensor, ks: Sequence[int]) -> dict[int, float]:
    """Return, for each k, the share of rows whose true label (N,) is among the best k of the bank; a tie goes to the
    smaller id. Predictions (N, E) and the bank (V, E) are unit vectors."""
    parts = zip(torch.split(predicted_NE, ROWS_PER_CALL), torch.split(ids_N, ROWS_PER_CALL), strict=True)
    rank_N = torch.cat([ranks_of(predicted @ bank_VE.T, ids) for predicted, ids in parts])
    return {k: (rank_N < k).double().mean().item() for k in ks}


def mid_accuracy(answers: Mapping[int, Tensor], truth: Mapping[int, Tensor]) -> dict[str, float]:
    """Return M@1 per horizon and its plain mean over the horizons, of horizon -> (N, H - 2) long, the predicted label
    of each mid, and horizon -> (N, H) long, the true labels, Start and Goal included."""
    per_horizon = {h: (answers[h] == truth[h][:, 1:-1]).double().mean().item() for h in sorted(answers)}
    scores = {f"M@1 H={h}": value for h, value in per_horizon.items()}
    return {"M@1": sum(per_horizon.values()) / max(1, len(per_horizon)), **scores}


def nearest_labels(
    predict: Callable[[Tensor], Tensor], segments: Mapping[int, Tensor], score: Callable[[Tensor], Tensor]
) -> dict[int, Tensor]:
    """Return horizon -> (N, H - 2) long, the label of the highest score for each predicted mid.

    Args:
        predict: (n, H) long rows of segments -> (n, H, E) unit vectors.
        segments: horizon -> (N, H) long.
        score: (..., E) unit vectors -> (..., V), such as their cosines with the label bank.
    """

    def labels(windows: Tensor) -> Tensor:
        parts = in_parts(len(windows), ROWS_PER_CALL, lambda rows: score(predict(windows[rows])[:, 1:-1]).argmax(-1))
        return torch.cat(parts)

    return {horizon: labels(windows) for horizon, windows in segments.items()}


def floor_scores(fit: Mapping[int, Tensor], dev: Mapping[int, Tensor], n_labels: int) -> dict[str, dict[str, float]]:
    """Return the dev M@1 of two rows that need no model; a trained row must beat both (D 51).

    `majority` predicts the most frequent mid label of the fitted windows (ties: the smaller id) for every mid;
    `previous` predicts the true label of position t - 1 for mid t, which no planner knows. `fit` and `dev` are horizon
    -> (N, H) long, the labels of these windows.
    """
    mids = torch.cat([labels[:, 1:-1].flatten() for labels in fit.values()])
    most = torch.bincount(mids, minlength=n_labels).argmax()
    majority = {h: torch.full_like(labels[:, 1:-1], int(most)) for h, labels in dev.items()}
    previous = {h: labels[:, :-2] for h, labels in dev.items()}
    return {"majority": mid_accuracy(majority, dev), "previous": mid_accuracy(previous, dev)}


def sampled_fit(
    fitted: Mapping[SampledGroup, Tensor], dev: Mapping[SampledGroup, Tensor], seed: int
) -> dict[SampledGroup, Tensor]:
    """Sample the fitted rows that are scored: per group at most as many as dev has, and at most `MOST_SAMPLED`.

    A separate generator samples, so that no random state changes and the training is the same as without the measure.
    `seed` is that of the training; variants of one seed are scored on the same sample. Rows (n, ...) of a group, such
    as a horizon, are in their order and on their device; empty groups are left out.
    """
    generator = torch.Generator().manual_seed(seed)
    sample = {}
    for group, of_group in fitted.items():
        rows = torch.randperm(len(of_group), generator=generator)[: min(len(dev.get(group, ())), MOST_SAMPLED)]
        if len(rows):
            sample[group] = of_group[rows.sort().values.to(of_group.device)]
    return sample
