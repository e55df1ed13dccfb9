"""What verdicts on planning in latents rest on, take by take: conditions, and energies against step accuracy.

Shapes: N windows or pairs, H horizon.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.latent import ENERGIES, Condition
from schemas.latent_worlds import ConditionTake, EnergyTake
from trajpilot_core.arrays import Array
from trajpilot_core.data.cross_fitting import Chain, seeds_of
from trajpilot_core.data.planning import SPLITS, PlanningData, rows_of_takes
from trajpilot_core.engine.progress import Progress
from trajpilot_core.evaluation.bootstrap import cluster_sums
from trajpilot_core.evaluation.latent_plans import LatentModels, latent_windows, load_latents, random_entries
from trajpilot_core.evaluation.latent_scores import (
    ROLLED_AT_ONCE,
    condition_distances,
    energies_and_accuracy,
    next_pairs,
)
from trajpilot_core.retrieval.neighbours import NeighbourBank, fit_end_keys, neighbour_bank
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.fit_latent import pairs_of

PERCENT = 100.0


def condition_takes(models: LatentModels, data: PlanningData) -> list[ConditionTake]:
    """Return the l1 of every condition on the test pairs of each take."""
    of_split = {h: w.segments[w.split == SPLITS.index("test")] for h, w in data.windows.items()}
    found = pairs_of(of_split)
    if len(found) < 2:
        return []
    pairs = next_pairs(data, found, "test", models.cfg.seed)
    names = take_names(data, found)
    distances = condition_distances(models, data, pairs)
    return [row for name, l1 in distances.items() for row in _of_condition(name, models.seed, names, pairs.take, l1)]


def _of_condition(
    name: Condition, seed: int, names: list[str], take_N: NDArray[np.int64], l1_N: Array
) -> list[ConditionTake]:
    sums, counts = cluster_sums(PERCENT * l1_N[:, None], take_N, len(names))
    return [
        ConditionTake(condition=name, seed=seed, take_id=take, n_pairs=int(n), total=round(float(total), 9))
        for take, n, total in zip(names, counts, sums[:, 0], strict=True)
    ]


def take_names(data: PlanningData, segments_NH: torch.Tensor) -> list[str]:
    """Return the ids of the takes of (N, H) windows, in the order of the codes that `np.unique` gives them."""
    codes = np.unique(data.segment_take[segments_NH[:, 0]].cpu().numpy())
    return [data.take_ids[int(code)] for code in codes]


@torch.inference_mode()
def energy_takes(models: LatentModels, data: PlanningData, bank: NeighbourBank, horizon: int) -> list[EnergyTake]:
    """Return sums of energies and accuracies over drawn training windows, take by take.

    The windows, and the strangers whose motion they follow, are those of `latent_scores.energy_rows`.

    Args:
        models: of one seed.
        data: on the device.
        bank: windows of the horizon of the fitted takes.
        horizon: H.
    """
    cfg, n = models.cfg, len(bank.segments)
    if n < 2:
        return []
    generator = torch.Generator().manual_seed(1_000_003 * cfg.seed + horizon)
    drawn = torch.randperm(n, generator=generator)[: cfg.correlation_windows].sort().values.to(bank.segments.device)
    strangers = random_entries(bank, bank.take[drawn], cfg.seed + horizon).clamp_min(0)
    found: dict[tuple[str, str], list[torch.Tensor]] = {}
    for rows, others in zip(torch.split(drawn, ROLLED_AT_ONCE), torch.split(strangers, ROLLED_AT_ONCE), strict=True):
        windows = latent_windows(models, data, bank.segments[rows])
        for motion, followed in (("bank", bank.segments[others]), ("own", bank.segments[rows])):
            measured = energies_and_accuracy(windows, followed)
            for energy in ENERGIES:
                both = torch.stack([measured[energy, "l1"], measured["right", ""]], 1)
                found.setdefault((energy, motion), []).append(both)
    segments = bank.segments[drawn]
    take = np.unique(data.segment_take[segments[:, 0]].cpu().numpy(), return_inverse=True)[1].astype(np.int64)
    names = take_names(data, segments)
    return [
        row
        for (energy, motion), parts in found.items()
        for row in _of_energy((energy, motion), (models.seed, horizon), names, take, torch.cat(parts).cpu().numpy())
    ]


def _of_energy(
    which: tuple[str, str], where: tuple[int, int], names: list[str], take_N: NDArray[np.int64], both_N2: Array
) -> list[EnergyTake]:
    """Return the sums of one energy and motion; `where` is seed and horizon, (N, 2) are energies and accuracies."""
    energy, right = both_N2.T
    values = np.stack([energy, energy**2, right, right**2, energy * right], 1)
    sums, counts = cluster_sums(values, take_N, len(names))
    columns = ("energy_sum", "energy_squares", "accuracy_sum", "accuracy_squares", "products")
    head = {"seed": where[0], "horizon": where[1], "energy": which[0], "motion": which[1]}
    return [
        EnergyTake.model_validate(
            {**head, "take_id": take, "n_windows": int(n), **dict(zip(columns, map(float, of_take), strict=True))}
        )
        for take, n, of_take in zip(names, counts, sums, strict=True)
    ]


def take_tables(
    entry: Models, data: PlanningData, chain: Chain, device: str, progress: Progress
) -> tuple[list[ConditionTake], list[EnergyTake]]:
    """Return the sums of every seed and horizon.

    Args:
        entry: `latent_models`.
        data: on the device.
        chain: the final one.
        device: where the models run.
        progress: called after every horizon.
    """
    from trajpilot_core.data.chains import fit_takes

    conditions: list[ConditionTake] = []
    energies: list[EnergyTake] = []
    for seed in seeds_of(entry.keys):
        models = load_latents(entry, data, chain, seed, device)
        conditions += condition_takes(models, data)
        fitted = rows_of_takes(data.segment_take, fit_takes(data, chain))
        keys = fit_end_keys(data.features, fitted, models.cfg.key_width)
        for number, horizon in enumerate(data.windows, start=1):
            energies += energy_takes(models, data, neighbour_bank(data, chain, keys, horizon), horizon)
            progress(number, len(data.windows), f"seed {seed}, H={horizon}")
    return conditions, energies
