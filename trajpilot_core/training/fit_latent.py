"""Fit predictors of latents and the classifier that reads labels from them (docs/decisions/latent-planning.md).

Shapes: S segments, C tokens of a clip, D feature width, G predicted tokens, H horizon, N windows, B windows of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.latent import LatentConfig, LatentVariant
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import SPLITS, PlanningData, rows_of_takes
from trajpilot_core.models.latent import (
    Controls,
    LatentHead,
    LatentPredictor,
    LatentShape,
    StepInputs,
    fit_controls,
    l1_between,
    targets_of,
)
from trajpilot_core.training.dev_scores import measured, row_training, sampled_fit
from trajpilot_core.training.fit_predictor import window_batches, windows_of_chain
from trajpilot_core.training.jobs import Fit, Task, TrainingJob
from trajpilot_core.training.loop import Training, seeded

M = TypeVar("M", bound=nn.Module)
NEXT = 2
"""Positions of a pair of neighbouring segments; the second one is predicted."""
AT_ONCE = 1024
"""Windows that are measured at once."""
QUANTITY = "-l1"
INPUTS: Mapping[LatentVariant, tuple[bool, bool]] = {
    "next_none": (False, False),
    "next_text": (True, False),
    "next_trajectory": (False, True),
    "next_both": (True, True),
    "plan_none": (False, False),
    "plan_trajectory": (False, True),
}
"""Variant -> whether it receives the text of a step's action, and the step's head motion."""


@dataclass(frozen=True)
class LatentTask(Task):
    """The tensors of one run."""

    SHARED: ClassVar[tuple[str, ...]] = ("features", "motions", "labels", "bank")

    features: Tensor
    """(S, C, D) float16, raw."""
    motions: Tensor
    """(S, 16, 6) float32, raw."""
    labels: Tensor
    """(S,) long."""
    bank: Tensor
    """(V, E) float32."""
    fit_rows: Tensor
    """(n,) long, segments of the fitted takes."""
    dev_rows: Tensor
    """(n,) long, segments of dev takes."""
    fit: dict[int, Tensor]
    """Horizon -> (N, H) long; NEXT: pairs of neighbours."""
    dev: dict[int, Tensor]
    """As `fit`."""

    def shape(self) -> LatentShape:
        """Return the sizes that follow from the data."""
        tokens, width = self.features.shape[1:]
        longest = max((*self.fit, *self.dev))
        return LatentShape(width, tokens, self.motions[0].numel(), self.bank.shape[1], longest, len(self.bank))


def pairs_of(windows: Mapping[int, Tensor]) -> Tensor:
    """Return (N, 2) long: neighbouring segments, each pair once, of (N, H) windows of some horizons."""
    pairs = [torch.stack([rows[:, :-1], rows[:, 1:]], -1).flatten(0, 1) for rows in windows.values()]
    return torch.unique(torch.cat(pairs), dim=0) if pairs else torch.zeros(0, NEXT, dtype=torch.long)


def latent_task(data: PlanningData, chain: Chain) -> LatentTask:
    """Collect the inputs of trainings of a chain; a horizon without windows to fit on or in dev is left out."""
    fit_rows, *parts = windows_of_chain(data, chain)
    kept = [h for h in data.windows if all(len(part[h]) for part in parts)]
    fit_windows, dev_windows = ({NEXT: pairs_of(part)} | {h: part[h] for h in kept} for part in parts)
    dev_takes = (data.take_split == SPLITS.index("dev")).nonzero()[:, 0]
    return LatentTask(
        features=data.features,
        motions=data.motions,
        labels=data.labels,
        bank=data.bank,
        fit_rows=fit_rows,
        dev_rows=rows_of_takes(data.segment_take, dev_takes),
        fit=fit_windows,
        dev=dev_windows,
    )


@dataclass(frozen=True)
class LatentFit:
    """The training of a predictor."""

    model: LatentPredictor
    task: LatentTask
    cfg: LatentConfig
    variant: LatentVariant
    controls: Controls

    def latents(self, segments_xH: Tensor) -> Tensor:
        """Return (..., G, D) normalised latents of segments."""
        return targets_of(self.task.features[segments_xH], self.cfg.target)

    def predict(self, segments_BH: Tensor, goal_seen_B: Tensor) -> Tensor:
        """Return (B, H - 1, G, D): the steps after Start, given the variant's inputs of the windows themselves."""
        horizon = segments_BH.shape[1]
        context = self.model.encode(
            self.latents(segments_BH[:, 0]),
            None if horizon == NEXT else self.latents(segments_BH[:, -1]),
            horizon,
            None if horizon == NEXT else goal_seen_B,
        )
        has_text, has_motion = INPUTS[self.variant]
        after_BT = segments_BH[:, 1:]
        motion = self.controls.standardised(self.task.motions[after_BT])[:, None] if has_motion else None
        text = self.task.bank[self.task.labels[after_BT]][:, None] if has_text else None
        is_moved = torch.ones(horizon - 1, dtype=torch.bool, device=segments_BH.device)
        is_moved[-1] = horizon == NEXT  # the goal step of a plan has no motion
        predicted: Tensor = self.model(context, StepInputs(motion, is_moved, text), horizon - 1, horizon)[:, 0]
        return predicted


def latent_loss(latent_fit: LatentFit, horizon: int, rows: Tensor) -> Tensor:
    """Return the mean l1 of the windows `rows` (B,), long, of a horizon, a scalar: all middle steps, and the goal step
    where the goal was hidden."""
    segments_BH = latent_fit.task.fit[horizon][rows]
    seen_B = torch.rand(len(rows), device=rows.device) >= latent_fit.cfg.goal_dropout
    l1_BT = l1_between(latent_fit.predict(segments_BH, seen_B), latent_fit.latents(segments_BH[:, 1:]))
    weight_BT = torch.ones_like(l1_BT)
    if horizon != NEXT:
        weight_BT[:, -1] = goal_weight(seen_B)
    return (l1_BT * weight_BT).sum() / weight_BT.sum()


def goal_weight(seen_B: Tensor) -> Tensor:
    """Return (B,) weights of the goal step: 0 where the goal is an input, which the model would copy."""
    return (~seen_B).float()


def distances(latent_fit: LatentFit, windows: Mapping[int, Tensor]) -> dict[str, float]:
    """Return minus the mean l1 of middles (or next steps), of copies of Start, and of goal steps, of windows: horizon
    -> (N, H) long segments."""

    def l1_of(segments_BH: Tensor, *, seen: bool) -> Tensor:
        goal_seen = torch.full((len(segments_BH),), seen, device=segments_BH.device)
        return l1_between(latent_fit.predict(segments_BH, goal_seen), latent_fit.latents(segments_BH[:, 1:]))

    steps, goals, copies = [], [], []
    for horizon, all_NH in windows.items():
        for segments in torch.split(all_NH, AT_ONCE):
            start, true = latent_fit.latents(segments[:, :1]), latent_fit.latents(segments[:, 1:])
            before_goal = slice(None if horizon == NEXT else -1)
            steps.append(l1_of(segments, seen=True)[:, before_goal].flatten())
            copies.append(l1_between(start.expand_as(true), true)[:, before_goal].flatten())
            if horizon != NEXT:
                goals.append(l1_of(segments, seen=False)[:, -1])
    scores = {QUANTITY: -float(torch.cat(steps).mean()), f"{QUANTITY} of copy": -float(torch.cat(copies).mean())}
    return scores | ({f"{QUANTITY} of goal": -float(torch.cat(goals).mean())} if goals else {})


def latent_training(job: TrainingJob, task: LatentTask, cfg: LatentConfig) -> Training:
    """Return the training of the variant that the job names; all predictors start with equal weights."""
    variant = cast(LatentVariant, job.variant)
    if variant == "latent_head":
        return head_training(job, task, cfg)
    with seeded(job.seed):
        model = standardising(LatentPredictor(cfg, task.shape()), task, cfg).to(job.device)
    controls = fit_controls(task.motions[task.fit_rows], cfg.search.variance)
    latent_fit, is_next = LatentFit(model, task, cfg, variant, controls), variant.startswith("next")
    windows, dev = ({h: rows for h, rows in of.items() if (h == NEXT) == is_next} for of in (task.fit, task.dev))
    scored = {split: rows for split, rows in (("dev", dev), ("train", sampled_fit(windows, dev, job.seed))) if rows}
    return Training(
        name=job.name,
        seed=job.seed,
        model=model,
        cfg=cfg.train,
        batches=lambda generator: window_batches(windows, cfg.train.batch, generator),
        loss=lambda batch: latent_loss(latent_fit, *batch),
        measure=lambda: measured(scored, partial(distances, latent_fit)),
        selected=f"dev/{QUANTITY}",
    )


def head_training(job: TrainingJob, task: LatentTask, cfg: LatentConfig) -> Training:
    """Return the training of the classifier on true latents of the fitted takes."""
    with seeded(job.seed):
        head = standardising(LatentHead(task.shape()), task, cfg).to(job.device)

    def logits(rows: Tensor) -> Tensor:
        logits_RV: Tensor = head(targets_of(task.features[rows], cfg.target))
        return logits_RV

    common = task.labels[task.fit_rows].bincount(minlength=len(task.bank)).argmax()

    def shares(all_N: Tensor) -> dict[str, float]:
        is_right = [logits(rows).argmax(-1) == task.labels[rows] for rows in torch.split(all_N, AT_ONCE)]
        floor = (task.labels[all_N] == common).double().mean()
        return {"right": float(torch.cat(is_right).double().mean()), "right of majority": float(floor)}

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(logits(rows), task.labels[rows])

    splits = {"dev": task.dev_rows, "train": task.fit_rows}
    return row_training(job, head, cfg.head, splits, loss, shares, selected="dev/right")


FIT = Fit(LatentTask, LatentConfig, latent_training)


def standardising(model: M, task: LatentTask, cfg: LatentConfig) -> M:
    """Set the buffers (D,) that standardise latents to the statistics of the fitted takes."""
    total = torch.zeros(task.features.shape[-1], dtype=torch.float64, device=task.features.device)
    squares, n = torch.zeros_like(total), 0
    for rows in torch.split(task.fit_rows, AT_ONCE):
        latents = targets_of(task.features[rows], cfg.target).flatten(0, 1).double()
        total, squares, n = total + latents.sum(0), squares + latents.square().sum(0), n + len(latents)
    mean = total / max(1, n)
    scale = (squares / max(1, n) - mean.square()).clamp_min(1e-12).sqrt()
    buffers = dict(model.named_buffers())
    buffers["latent_mean"].copy_(mean.float())
    buffers["latent_scale"].copy_(scale.float())
    return model
