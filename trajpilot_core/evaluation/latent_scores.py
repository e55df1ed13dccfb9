"""Measurements of predictors of latents: conditions, and the energy against step accuracy.

Shapes: N pairs or windows, T takes, H horizon, G tokens, D feature width. Source: docs/decisions/latent-planning.md.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.latent import ENERGIES, Condition, ConditionScore, EnergyCorrelation, LatentConfig
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Array
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.evaluation.bootstrap import ends_of_means
from trajpilot_core.evaluation.latent_plans import LatentModels, LatentWindows, latent_windows, random_entries
from trajpilot_core.evaluation.trained_rows import TRAINED, dev_rows, judge_scores
from trajpilot_core.methods.plans import derangement
from trajpilot_core.models.latent import StepInputs, l1_between, targets_of
from trajpilot_core.retrieval.bank import Bank
from trajpilot_core.training.fit_latent import NEXT

AT_ONCE = 1024
ROLLED_AT_ONCE = 64
TRAININGS: Mapping[Condition, str] = {
    "none": "next_none",
    "text": "next_text",
    "trajectory": "next_trajectory",
    "text_and_trajectory": "next_both",
    "shuffled_text": "next_both",
    "shuffled_trajectory": "next_both",
}
"""Condition -> the training that answers it."""


class NextPairs(NamedTuple):
    """Pairs of neighbouring segments."""

    segments: Tensor
    """(N, 2) long."""
    other: Tensor
    """(N,) long, the segment of another pair whose text or motion is the replacement."""
    take: NDArray[np.int64]
    """(N,) int64, codes from 0 on."""


def next_pairs(data: PlanningData, pairs_N2: Tensor, seed: int) -> NextPairs:
    """Return pairs, each with the second segment of another pair: a random cycle, so that none keeps its own."""
    other = pairs_N2[derangement(len(pairs_N2), seed).to(pairs_N2.device), 1]
    take = data.segment_take[pairs_N2[:, 0]].cpu().numpy()
    return NextPairs(pairs_N2, other, np.unique(take, return_inverse=True)[1].astype(np.int64))


@torch.inference_mode()
def condition_distances(models: LatentModels, data: PlanningData, pairs: NextPairs) -> dict[Condition, Array]:
    """Return condition -> (N,) l1 distances of predicted and true next latents."""
    distances: dict[Condition, list[Tensor]] = {}
    for segments, other in zip(torch.split(pairs.segments, AT_ONCE), torch.split(pairs.other, AT_ONCE), strict=True):
        start, true = (targets_of(data.features[segments[:, at]], models.cfg.target) for at in (0, 1))
        distances.setdefault("copy", []).append(l1_between(start, true))
        for condition, variant in TRAININGS.items():
            model = next(net for name, net in models.of_variant.items() if name == variant)
            texts = other if condition == "shuffled_text" else segments[:, 1]
            moves = other if condition == "shuffled_trajectory" else segments[:, 1]
            has_text, has_motion = condition not in ("none", "trajectory"), condition not in ("none", "text")
            motion = models.controls.standardised(data.motions[moves])[:, None, None] if has_motion else None
            steps = StepInputs(motion, None, data.bank[data.labels[texts]][:, None, None] if has_text else None)
            predicted: Tensor = model(model.encode(start, None, NEXT), steps, 1, NEXT)
            distances.setdefault(condition, []).append(l1_between(predicted[:, 0, 0], true))
    return {condition: torch.cat(parts).double().cpu().numpy() for condition, parts in distances.items()}


def condition_scores(
    of_seeds: Sequence[Mapping[Condition, Array]], pairs: NextPairs, cfg: LatentConfig
) -> list[ConditionScore]:
    """Return the mean over the seeds of each condition, gains with intervals over takes."""
    mean = {name: np.mean([distances[name] for distances in of_seeds], 0) for name in of_seeds[0]}
    rows: list[ConditionScore] = []
    for condition, values in mean.items():
        gain = values - mean["none"]
        low, high, n_takes = ends_of_means(gain[:, None], pairs.take, cfg)
        score = ConditionScore(
            condition=condition,
            l1=values.mean(),
            gain=gain.mean(),
            low=low[0],
            high=high[0],
            n_pairs=len(values),
            n_takes=n_takes,
        )
        rows.append(score)
    return rows


@torch.inference_mode()
def energy_rows(
    models: LatentModels, data: PlanningData, bank: Bank, horizon: int
) -> tuple[list[EnergyCorrelation], dict[str, float]]:
    """Return the correlation of energies with step accuracy over sampled training windows, and energy -> mean spread
    among candidates; `bank`: windows of the fitted takes, both the sampled ones and those whose motion they follow.
    """
    cfg, n = models.cfg, len(bank.segments)
    if n < 2:
        return [], {}
    generator = torch.Generator().manual_seed(1_000_003 * cfg.seed + horizon)
    sampled = torch.randperm(n, generator=generator)[: cfg.correlation_windows].sort().values.to(bank.segments.device)
    strangers = random_entries(bank, bank.take[sampled], cfg.seed + horizon).clamp_min(0)
    energies: dict[tuple[str, str, str], list[Tensor]] = {}
    spreads: dict[str, list[Tensor]] = {}
    for rows, others in zip(torch.split(sampled, ROLLED_AT_ONCE), torch.split(strangers, ROLLED_AT_ONCE), strict=True):
        windows = latent_windows(models, data, bank.segments[rows])
        for motion, followed in (("bank", bank.segments[others]), ("own", bank.segments[rows])):
            for key, value in energies_and_accuracy(windows, followed).items():
                energies.setdefault((motion, *key), []).append(value)
        several = bank.segments[torch.stack([strangers.roll(k)[: len(rows)] for k in range(8)], 1)]
        for ranking in ENERGIES:
            energy_BS = windows.energy(windows.motions_of(several), ranking)
            spreads.setdefault(ranking, []).append(relative_spread(windows, energy_BS))
    common = {"seed": models.seed, "horizon": horizon, "n_windows": len(sampled)}
    varied = {of: float(torch.cat(parts).mean()) for of, parts in spreads.items()}
    values = {key: torch.cat(parts).cpu().numpy() for key, parts in energies.items()}
    correlated = []
    for (motion, name, distance), energy in values.items():
        if name != "right":  # the accuracy of the same plans
            r = pearson(energy, values[motion, "right", ""])
            place = {"energy": name, "distance": distance, "motion": motion}
            figures = {"pearson": r, "explained": None if r is None else 100 * r * r}
            correlated.append(EnergyCorrelation.model_validate({**common, **place, **figures}))
    return correlated, varied


def relative_spread(windows: LatentWindows, energy_BS: Tensor) -> Tensor:
    """Return (B,) deviations of energies over the candidates, relative to the distance between goals of windows."""
    between = l1_between(windows.goal, windows.goal.roll(1, 0)).mean()
    return energy_BS.std(1) / between.clamp_min(torch.finfo(torch.float32).tiny)


def energies_and_accuracy(windows: LatentWindows, followed_BH: Tensor) -> dict[tuple[str, str], Tensor]:
    """Return (energy, distance) -> (B,) energies of plans under the middles of given windows; `right` is accuracy."""
    motion = windows.motions_of(followed_BH)[:, None]
    plan = windows.roll_out(motion)[:, 0]
    truth = windows.data.labels[windows.segments[:, 1:-1]]
    right = (windows.models.head(plan).argmax(-1) == truth).double().mean(1)
    goal_step = windows.roll_out(motion, sees_goal=False, with_goal=True)[:, 0, -1]
    energies = {("right", ""): right}
    for name, latent in (("last_mid", plan[:, -1]), ("goal_step", goal_step)):
        energies[name, "l1"] = l1_between(latent, windows.goal).double()
        energies[name, "cosine"] = 1 - torch.cosine_similarity(latent.flatten(1), windows.goal.flatten(1)).double()
    return energies


def pearson(one_N: Array, other_N: Array) -> float | None:
    """Return Pearson's correlation of (N,) values; None where one of them never varies."""
    if min(one_N.std(), other_N.std()) < 1e-12:
        return None
    return float(np.corrcoef(one_N, other_N)[0, 1])


FLAT = 0.02
"""Least spread of the energies of real motions; below it the choice by energy is noise."""


def judge_latents(curve: Sequence[CurvePoint]) -> list[Judgement]:
    """Judge every training by the one rule (`evaluation.trained_rows`).

    The floor of a predictor is the l1 of copying the current latent, that of the classifier the most common label.
    """
    judged = []
    for model, seed in sorted({(row.model, row.seed) for row in curve}):
        is_head = model.endswith("latent_head")
        quantity, floor = ("right", "right of majority") if is_head else ("-l1", "-l1 of copy")
        scores = [row.value for row in dev_rows(curve, model, seed, quantity)]
        floors = {floor.split(" of ")[1]: row.value for row in dev_rows(curve, model, seed, floor)}
        judged.append(judge_scores(f"{TRAINED}{model}, seed {seed}", scores, floors, quantity, is_share=is_head))
    return judged


def judge_energies(spreads: Sequence[tuple[int, Mapping[str, float]]]) -> list[Judgement]:
    """Judge whether energies differ among candidates: one that hardly varies (a seen goal) cannot choose.

    `spreads`: (horizon, energy -> its spread) of every seed and horizon.
    """
    judged = []
    for name in ENERGIES:
        mine = [(of[name], horizon) for horizon, of in spreads if name in of]
        if mine:
            least, horizon = min(mine)
            detail = f"least spread {100 * least:.2f} % of the distance between goals (H={horizon})"
            flat = least < FLAT
            detail += "; typical of a predictor that sees the goal or ignores head motion" if flat else ""
            check = f"latent planning: the energy {name} varies among candidates"
            judged.append(Judgement(check=check, verdict="fails" if flat else "holds", detail=detail))
    return judged
