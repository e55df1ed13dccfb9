"""How the paper's scorer behaves, and what more queries change: scorers on parts of the queries, on test windows.

What is learned and what is decided comes from training and dev takes; test windows are only reported on.
Axes: N queries, K candidates. Source: docs/decisions/scorer.md; docs/scorer.md holds the figures.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from schemas.checks import StudyConfig
from schemas.results import ScorerStudy
from schemas.training import ScorerConfig
from trajpilot_core.arrays import Array
from trajpilot_core.data.chains import ModelFiles, chains_of, open_model_files
from trajpilot_core.data.planning import PlanningData, load_planning_data
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.bank import ChainView, chain_view
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer import Queries, gate_targets, inputs_at
from trajpilot_core.training.scorer_fit import QUERIES, SCORER, FittedScorer, train_scorer
from trajpilot_core.training.scorer_queries import collect, collect_windows, split_rows

STAGE = "scorer study"
BATCH = 512


def study(
    inputs: Inputs, config: ScorerConfig, cfg: StudyConfig, scratch: Path, device: str, progress: Progress
) -> list[ScorerStudy]:
    """Train the paper's scorer on parts of its queries and report each on the test windows.

    Args:
        inputs: what the scorer stage reads.
        config: of the scorer; its ablations and Scorer+ are left out.
        cfg: shares of the queries.
        scratch: folder for queries and checkpoints.
        device: where the models run.
        progress: called with (done, total, what).
    """
    data, files = load_planning_data(inputs, STAGE).to(device), open_model_files(inputs)
    alone = config.replace(ablations=(), plus=None)
    rows: list[ScorerStudy] = []
    with one_thread(device):
        for seed in files.seeds:
            rows += list(study_seed(data, files, alone, cfg, seed, scratch / f"s{seed}", device, progress))
    return rows


def study_seed(
    data: PlanningData,
    files: ModelFiles,
    config: ScorerConfig,
    cfg: StudyConfig,
    seed: int,
    scratch: Path,
    device: str,
    progress: Progress,
) -> Iterator[ScorerStudy]:
    """Yield the rows of one seed; nothing where there are no training queries or no test window."""
    collected = collect(data, files, config, seed, scratch / QUERIES, device, progress)
    test = queries_of_test(chain_view(data, files, chains_of(data)[0], seed, device), config, seed, scratch / QUERIES)
    train = collected.train
    if train is None or test is None:
        return
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    for number, share in enumerate(cfg.shares):
        kept = order[: max(1, round(len(train) * share / 100))]
        fitted = train_scorer(collected, config, None, seed, scratch / f"{share:g}", device, progress, rows=kept)
        values = judged(fitted, test, config, cfg)
        for horizon in (None, *sorted({int(n) + 2 for n in torch.unique(test.n_mids)})):
            for quantity, value_N in values.items():
                yield row_of(quantity, value_N, horizon, test, (seed, share, len(kept)))
        progress(number + 1, len(cfg.shares), f"seed {seed}: {len(kept)} queries")


def row_of(
    quantity: str, value_N: Array, horizon: int | None, test: Queries, head: tuple[int, float, int]
) -> ScorerStudy:
    """Return the mean of one quantity, shape (N,), over the windows of a horizon; NaN stands for a window without it.

    Over all horizons it is the plain mean of theirs.
    """
    n_mids = test.n_mids.cpu().numpy()
    wanted = np.unique(n_mids) if horizon is None else np.array([horizon - 2])
    means = [value_N[(n_mids == n) & ~np.isnan(value_N)] for n in wanted]
    filled = [float(part.mean()) for part in means if len(part)]
    seed, share, n_queries = head
    return ScorerStudy(
        model=SCORER,
        seed=seed,
        share=share,
        n_queries=n_queries,
        horizon=horizon,
        quantity=quantity,
        value=round(sum(filled) / max(1, len(filled)), 9),
        n_windows=sum(len(part) for part in means),
    )


def queries_of_test(view: ChainView, config: ScorerConfig, seed: int, folder: Path) -> Queries | None:
    """Collect the test windows of the final chain as queries, in files below a folder; None where there is none."""
    return collect_windows(view, "test", split_rows(view.data, "test"), config, seed, folder).queries("test")


def judged(fitted: FittedScorer, test: Queries, config: ScorerConfig, cfg: StudyConfig) -> dict[str, Array]:
    """Return quantity -> values of shape (N,) in percent (a correlation in hundredths); NaN where a window has none."""
    gate_N, rank_NK = scores(fitted, test, config)
    some_N = test.valid.any(1)
    choice_N = rank_NK.max(dim=1).indices
    chosen_N = torch.where(some_N, test.m1.gather(1, choice_N[:, None])[:, 0], test.fallback_m1)
    opened_N = (gate_N >= fitted.decision.threshold) & some_N
    row_N = torch.where(opened_N, chosen_N, test.fallback_m1)
    best_N = test.utility.argmax(dim=1)
    place_N = (rank_NK > rank_NK.gather(1, best_N[:, None])).sum(1)
    target_N = gate_targets(test, config.margin)
    nothing_N = ~some_N
    values = {
        "M@1": row_N,
        "always open M@1": chosen_N,
        "fallback M@1": test.fallback_m1,
        "MSeq": (row_N == 1.0).float(),
        "open rate": opened_N.float(),
        "harmed": _only((row_N < test.fallback_m1).float(), ~opened_N),
        "some candidate is better": target_N.float(),
        "rank: best candidate first": _only((place_N == 0).float(), nothing_N),
        f"rank: best candidate among the first {cfg.first}": _only((place_N < cfg.first).float(), nothing_N),
    }
    found = {name: 100.0 * value.double().cpu().numpy() for name, value in values.items()}
    found["rank: Spearman correlation with utility"] = 100.0 * spearman(rank_NK, test.utility)
    found["rank: area under the gate's curve"] = 100.0 * gate_areas(gate_N, target_N, test.n_mids)
    return found


def _only(value_N: Tensor, absent_N: Tensor) -> Tensor:
    """Put NaN where a window has no such value."""
    return value_N.masked_fill(absent_N, torch.nan)


@torch.no_grad()
def scores(fitted: FittedScorer, queries: Queries, config: ScorerConfig) -> tuple[Tensor, Tensor]:
    """Return gate probabilities (N,) and rank scores (N, K), -inf where there is no candidate."""
    scorer = GateThenRankScorer(config, fitted.shape, None)
    scorer.load_state_dict(fitted.state)
    scorer = scorer.to(queries.latents.device).eval()
    gates, ranks = [], []
    for rows in torch.split(torch.arange(len(queries), device=queries.take.device), BATCH):
        gate_B, rank_BK = scorer(inputs_at(queries, rows))
        gates.append(gate_B.sigmoid().to(queries.take.device))
        ranks.append(rank_BK.to(queries.take.device))
    return torch.cat(gates), torch.cat(ranks)


def spearman(rank_NK: Tensor, utility_NK: Tensor) -> Array:
    """Return the rank correlation of every window's (N, K) scores with the utilities, shape (N,).

    NaN where a candidate is missing or one of the two does not vary.
    """
    there = torch.isfinite(rank_NK).all(1) & torch.isfinite(utility_NK).all(1)
    ranked: list[Any] = [rankdata(x.cpu().numpy(), axis=1) for x in (rank_NK, utility_NK)]
    first, second = (x - x.mean(axis=1, keepdims=True) for x in ranked)
    scale = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(scale > 0, (first * second).sum(axis=1) / scale, np.nan)
    return np.asarray(np.where(there.cpu().numpy(), found, np.nan))


def gate_areas(gate_N: Tensor, target_N: Tensor, n_mids_N: Tensor) -> Array:
    """Return for every window, shape (N,), the area under the gate's ROC curve over the windows of its horizon.

    One number per horizon, repeated, so that means over horizons are plain ones. NaN where all targets are equal.
    """
    gate, target, horizon = (x.cpu().numpy() for x in (gate_N, target_N, n_mids_N))
    found = np.full(len(gate), np.nan)
    for n in np.unique(horizon):
        here = horizon == n
        ranks, good = rankdata(gate[here]), target[here].astype(bool)
        n_good, n_bad = int(good.sum()), int((~good).sum())
        if n_good and n_bad:
            found[here] = (ranks[good].sum() - n_good * (n_good + 1) / 2) / (n_good * n_bad)
    return found
