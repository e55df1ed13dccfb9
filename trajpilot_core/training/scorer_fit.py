"""Fitting the scorers of one seed: queries from every chain, the two temperatures, the loop, and what is kept.

Source: docs/decisions/paper-gaps.md (28 to 32); docs/decisions/scorer.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.base import Record
from schemas.results import CurvePoint
from schemas.training import Ablation, ScorerConfig
from trajpilot_core.data.chains import Chain, ModelFiles, chains_of, query_takes
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.engine.progress import Progress, portion
from trajpilot_core.models.ranking import ranks_of, truth_ranks
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.retrieval.bank import Bank, ChainView, build_bank, chain_view
from trajpilot_core.retrieval.candidates import Candidates, find_candidates, label_votes, pool_mean, truth_of
from trajpilot_core.training.loop import Training, fit, index_batches, seeded
from trajpilot_core.training.scorer import (
    NEVER,
    Queries,
    class_weights,
    decide,
    dev_scores,
    gate_targets,
    inputs_at,
    join,
    plain_mean,
    queries_of,
    scorer_loss,
    shape_of,
)
from trajpilot_core.training.scorer_plus import PlusQueries, QueryGroup, gather, plus_queries
from trajpilot_core.training.scorer_plus_fit import FittedPlus, PlusData, fit_plus
from trajpilot_core.training.scorer_plus_statistics import PlusSource, StatisticsByChain, plus_source

WINDOWS_AT_ONCE = 1024
SCORER = "scorer"
"""Variant of the paper's scorer; the ablated ones are `scorer_<ablation>`."""


class ScorerDecision(Record):
    """What was chosen on dev for one seed, and what dev said."""

    threshold: float
    """A window opens where its gate probability reaches this; above 1: never."""
    knn_temperature: float
    pool_temperature: float
    n_queries: int
    n_dev: int
    gate_positive_share: float
    """Share of the training queries whose best candidate beats the fallback."""
    dev: dict[str, float]
    """Shares on dev, 0 to 1, of the epoch that was kept; empty without dev windows or without queries."""


class FittedScorer(NamedTuple):
    """One scorer and its curve."""

    state: dict[str, Tensor]
    shape: ScorerShape
    decision: ScorerDecision
    curve: list[CurvePoint]


class DevSet(NamedTuple):
    """Dev queries, and M@1 of both averages at every temperature of the grid."""

    queries: Queries | None
    knn_m1: Tensor
    pool_m1: Tensor


class Collected(NamedTuple):
    """What all scorers of one seed learn from."""

    train: Queries | None
    dev: DevSet
    shape: ScorerShape
    plus: PlusData | None = None


class FittedSeed(NamedTuple):
    """The scorers of one seed."""

    scorers: dict[str, FittedScorer]
    """Variant -> scorer: `scorer`, and `scorer_<ablation>` for each ablation of the configuration."""
    plus: FittedPlus | None
    """Scorer+, None where it is off."""

    def curves(self) -> list[CurvePoint]:
        """Return the rows of all trainings."""
        found = [row for scorer in self.scorers.values() for row in scorer.curve]
        return found + (self.plus.curve if self.plus is not None else [])


def fit_scorers(
    data: PlanningData,
    files: ModelFiles,
    config: ScorerConfig,
    seed: int,
    scratch: Path,
    device: str,
    progress: Progress,
    known: StatisticsByChain | None = None,
    checkpoint_s: float = 0.0,
) -> FittedSeed:
    """Fit the paper's scorer, its ablations and Scorer+ on the same queries; every choice is made on dev.

    Args:
        data: on `device`.
        files: frozen models of all chains.
        config: its `train.precision` is resolved.
        seed: which chains are read; also of the scorers' own weights, dropout and batches.
        scratch: folder for this seed's checkpoints.
        device: where the models run.
        progress: called with (done, total, what).
        known: what Scorer+ takes from this data in closed form, by chain; what is fitted here is added.
        checkpoint_s: seconds between checkpoints of each training; 0: one after every epoch.
    """
    total = epochs_of(config)
    collected = collect(data, files, config, seed, device, portion(progress, 0, total), known)
    plus = None
    if collected.plus is not None and config.plus is not None:
        shown = portion(progress, 0, total)
        plus = fit_plus(collected.plus, config.plus, seed, scratch / "scorer_plus", device, shown, checkpoint_s)
    before = total - (1 + len(config.ablations)) * config.train.epochs
    ablations: tuple[Ablation | None, ...] = (None, *config.ablations)
    fitted = {}
    for n, ablation in enumerate(ablations):
        own_progress = portion(progress, before + n * config.train.epochs, total)
        fitted[variant_of(ablation)] = train_scorer(
            collected, config, ablation, seed, scratch, device, own_progress, checkpoint_s
        )
    return FittedSeed(fitted, plus)


def epochs_of(config: ScorerConfig) -> int:
    """Return the most epochs of all trainings of one seed: Scorer+ first, then the scorer and its ablations."""
    plus = config.plus.train.epochs if config.plus is not None else 0
    return plus + (1 + len(config.ablations)) * config.train.epochs


def variant_of(ablation: Ablation | None) -> str:
    """Return the row that a scorer stands for."""
    return SCORER if ablation is None else f"{SCORER}_{ablation}"


def collect(
    data: PlanningData,
    files: ModelFiles,
    config: ScorerConfig,
    seed: int,
    device: str,
    progress: Progress,
    known: StatisticsByChain | None = None,
) -> Collected:
    """Collect the training queries of every chain and the dev queries of the final one; see `fit_scorers`."""
    chains = chains_of(data)
    final = chain_view(data, files, chains[0], seed, device)
    plus = PlusCollector(config, {} if known is None else known)
    dev = dev_set(final, config, plus)
    progress(0, 1, f"seed {seed}: dev queries {len(dev.knn_m1)}")
    drawn = draw_queries(data, chains, config.max_queries, seed)

    def parts() -> Iterator[Queries]:
        for chain in chains:
            view = final if chain == chains[0] else chain_view(data, files, chain, seed, device)
            for found in found_parts(view, drawn[chain.name], config):
                plus.add(view, found, plus.train)
                yield queries_of(view, found, config)
            progress(0, 1, f"seed {seed}: candidates of chain {chain.name}")

    train = join(parts(), sum(len(rows) for rows_of in drawn.values() for rows in rows_of.values()))
    return Collected(train, dev, shape_of(final), plus.collected(final))


class PlusCollector:
    """Makes the queries of Scorer+ of the candidates that pass by; nothing where it is off."""

    def __init__(self, config: ScorerConfig, known: StatisticsByChain) -> None:
        self.config, self.known = config, known
        self.train: list[tuple[QueryGroup, PlusQueries]] = []
        self.dev: list[tuple[QueryGroup, PlusQueries]] = []

    def add(self, view: ChainView, found: Candidates, queries: list[tuple[QueryGroup, PlusQueries]]) -> None:
        """Append the queries of B windows."""
        if self.config.plus is not None:
            queries.append((QueryGroup(view.chain.name, found.horizon), plus_queries(self.source(view), found)))

    def source(self, view: ChainView) -> PlusSource:
        """Return what Scorer+ takes from the training takes of a chain."""
        return plus_source(view, self.config, self.known)

    def collected(self, final: ChainView) -> PlusData | None:
        """Return everything that was added."""
        if self.config.plus is None:
            return None
        self.source(final)
        statistics = {chain: fitted.statistics for chain, fitted in self.known.items()}
        return PlusData(statistics, gather(self.train), gather(self.dev))


def train_scorer(
    collected: Collected,
    config: ScorerConfig,
    ablation: Ablation | None,
    seed: int,
    scratch: Path,
    device: str,
    progress: Progress,
    checkpoint_s: float = 0.0,
) -> FittedScorer:
    """Train one scorer; without training queries its weights stay as initialised and its gate never opens."""
    train, dev, shape = collected.train, collected.dev, collected.shape
    with seeded(seed):
        scorer = GateThenRankScorer(config, shape, ablation).to(device)
    if train is None:
        state = {name: value.detach().cpu().clone() for name, value in scorer.state_dict().items()}
        return FittedScorer(state, shape, _decision(config, dev, 0, 0.0, {}), [])
    opens = gate_targets(train, config.margin)
    weights = class_weights(opens)

    def loss(rows: Tensor) -> Tensor:
        """Return the loss of the training queries `rows`, long of shape (B,); a scalar."""
        gate_B, rank_BK = scorer(inputs_at(train, rows))
        return scorer_loss(gate_B, rank_BK, train.utility[rows], opens[rows], weights, config)

    def measure() -> dict[str, float]:
        if dev.queries is None:
            return {"dev/selection": 0.0}
        gate_N, choice_N = decide(scorer, dev.queries, config.train.batch)
        return {f"dev/{name}": value for name, value in dev_scores(gate_N, choice_N, dev.queries).items()}

    training = Training(
        name=f"final/{variant_of(ablation)}",
        seed=seed,
        model=scorer,
        selected="dev/selection",
        loss=loss,
        measure=measure,
        batches=lambda generator: index_batches(len(train), config.train.batch, generator, device),
    )
    fitted = fit(training, config.train, scratch / variant_of(ablation), device, progress, checkpoint_s)
    kept = {p.quantity: p.value for p in fitted.curve if p.epoch == fitted.best_epoch and p.split == "dev"}
    share = float(opens.float().mean())
    return FittedScorer(fitted.state, shape, _decision(config, dev, len(train), share, kept), fitted.curve)


def _decision(
    config: ScorerConfig, dev: DevSet, n_queries: int, share: float, kept: dict[str, float]
) -> ScorerDecision:
    """Gather what dev decided; without dev windows the gate stays shut and the temperatures are the grid's highest."""
    horizon = dev.queries.n_mids if dev.queries is not None else torch.empty(0, dtype=torch.long)
    return ScorerDecision(
        threshold=kept.get("threshold", NEVER),
        knn_temperature=best_temperature(config.temperatures, dev.knn_m1, horizon),
        pool_temperature=best_temperature(config.temperatures, dev.pool_m1, horizon),
        n_queries=n_queries,
        n_dev=len(horizon),
        gate_positive_share=share,
        dev={name: value for name, value in kept.items() if name != "threshold"},
    )


def best_temperature(grid: tuple[float, ...], m1_NT: Tensor, horizon_N: Tensor) -> float:
    """Return the temperature with the highest plain mean over H of (N, T) M@1; ties to the higher temperature."""
    ranked = [(plain_mean(m1_NT[:, t], horizon_N), temperature) for t, temperature in enumerate(grid)]
    return max(ranked)[1]


def draw_queries(data: PlanningData, chains: tuple[Chain, ...], limit: int, seed: int) -> dict[str, dict[int, Tensor]]:
    """Return, per chain and horizon, the rows of the windows whose takes the chain has not seen.

    Where there are more than `limit` in all, a random subset of that size, drawn by `seed` over everything.
    """
    device = data.fold.device
    places = []
    for chain in chains:
        takes = query_takes(data, chain)
        for horizon, windows in data.windows.items():
            places.append((chain.name, horizon, torch.isin(windows.take, takes).nonzero()[:, 0]))
    total = sum(len(rows) for _, _, rows in places)
    kept = torch.zeros(total, dtype=torch.bool)
    kept[torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:limit]] = True
    drawn: dict[str, dict[int, Tensor]] = {chain.name: {} for chain in chains}
    parts = torch.split(kept.to(device), [len(rows) for _, _, rows in places])
    for (name, horizon, rows), keep in zip(places, parts, strict=True):
        drawn[name][horizon] = rows[keep]
    return drawn


def found_parts(view: ChainView, rows_of: dict[int, Tensor], config: ScorerConfig) -> Iterator[Candidates]:
    """Yield the candidates of the wanted rows, horizon by horizon, in parts that fit the memory."""
    for horizon, rows in rows_of.items():
        if not len(rows):
            continue
        bank: Bank = build_bank(view, horizon, config.key)
        for part in torch.split(rows, WINDOWS_AT_ONCE):
            yield find_candidates(view, bank, part, config)


def dev_set(view: ChainView, config: ScorerConfig, plus: PlusCollector | None = None) -> DevSet:
    """Collect at most `max_queries` dev windows with the final chain, and try the temperatures on them."""
    data = view.data
    dev = SPLITS.index("dev")
    every = {horizon: (windows.split == dev).nonzero()[:, 0] for horizon, windows in data.windows.items()}
    total = sum(len(rows) for rows in every.values())
    step = -(-total // config.max_queries) or 1
    rows_of = {horizon: rows[::step] for horizon, rows in every.items()}
    knn, pool = [], []

    def parts() -> Iterator[Queries]:
        for found in found_parts(view, rows_of, config):
            knn.append(torch.stack([_vote_m1(found, data, t) for t in config.temperatures], 1))
            pool.append(torch.stack([_mean_m1(found, data, t) for t in config.temperatures], 1))
            if plus is not None:
                plus.add(view, found, plus.dev)
            yield queries_of(view, found, config)

    queries = join(parts(), sum(len(rows) for rows in rows_of.values()))
    if queries is None:
        none = torch.empty(0, len(config.temperatures))
        return DevSet(None, none, none)
    return DevSet(queries, torch.cat(knn), torch.cat(pool))


def _vote_m1(found: Candidates, data: PlanningData, temperature: float) -> Tensor:
    """Return (B,) M@1 of kNN-labels."""
    truth_BM = truth_of(data, found.segments)
    votes_BMV = label_votes(found, data, temperature)[:, 1:-1]
    return (ranks_of(votes_BMV.flatten(0, 1), truth_BM.flatten()) == 0).float().view(truth_BM.shape).mean(1)


def _mean_m1(found: Candidates, data: PlanningData, temperature: float) -> Tensor:
    """Return (B,) M@1 of Pool-Mean."""
    rank = truth_ranks(pool_mean(found, temperature), truth_of(data, found.segments), data.bank)
    return (rank == 0).float().mean(1)
