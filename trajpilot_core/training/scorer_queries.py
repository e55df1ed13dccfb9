"""Collecting the queries of one seed's scorers: part by part into files, so that memory does not grow with them.

Axes: N queries over all horizons, B windows of one part, K candidates, M middle steps, E text space, V labels, T takes
that a chain was fitted on. Source: docs/decisions/paper-gaps.md (28 to 32); docs/decisions/scorer.md.
"""

import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.training import ScorerConfig
from trajpilot_core.data.chains import ModelFiles, chains_of, query_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.memory import fits, free_bytes
from trajpilot_core.models.predictor import PredictorShape
from trajpilot_core.models.scorer import ScorerShape
from trajpilot_core.retrieval.bank import Bank, ChainView, blind_chain_view, build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates, mean_m1, vote_m1
from trajpilot_core.runtime import in_threads
from trajpilot_core.store.files import naming_failures
from trajpilot_core.store.lock import require_free_space
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer import ROWS, Queries, queries_of

WINDOWS_AT_ONCE = 1024


class Collected(NamedTuple):
    """What all scorers of one seed learn from."""

    train: Queries | None
    dev: Queries | None
    knn_m1: Tensor
    """(N, T) of the dev queries: M@1 of this average at every temperature of the grid."""
    pool_m1: Tensor
    """As `knn_m1`."""
    shape: ScorerShape


class QueryPart(NamedTuple):
    """Windows of one chain and horizon whose queries are made together."""

    split: str
    chain: str
    horizon: int
    rows: Tensor
    """(B,) long, of the horizon's windows."""


def collect(
    data: PlanningData, files: ModelFiles, config: ScorerConfig, seed: int, runtime: Runtime, *, sees_goal: bool = True
) -> Collected:
    """Collect the training queries of every chain and the dev queries of the final one.

    Args:
        data: on the device of `runtime`.
        seed: which chains are read; also of the sample of queries.
        runtime: its scratch is private to these queries; what a killed run has left there is replaced. On a CPU its
            workers are how many parts are made at a time, which changes no number.
        sees_goal: false: the goal-dropout twins of the chains make the queries, and no goal is given.

    Raises StoreError: the disk has not enough room for the queries, or chains lack the twins.
    """
    chains = chains_of(data)
    dev = {chains[0].name: dev_rows(data, config.max_queries)}
    parts = [*parts_of("dev", dev), *parts_of("train", draw_queries(data, chains, config.max_queries, seed))]
    models = PredictorShape.from_json(files.predictors.about["shape"])
    width, ends = data.bank.shape[1], 2 if sees_goal else 1
    query = ends * (data.features.shape[2] + width)
    shape = ScorerShape(query, width, models.max_horizon - 2, models.classes, ends)
    view_of = chain_view if sees_goal else blind_chain_view
    collector = QueryCollector(data, parts, config, runtime)
    for chain in chains:
        if chain.name in collector.offset:
            collector.add(view_of(data, files, chain, seed, runtime.device, config.decoding))
    queries, none = collector.queries("dev"), torch.empty(0, len(config.temperatures))
    knn_m1, pool_m1 = (none if queries is None else collector.mapped(f"dev/{name}") for name in ("knn_m1", "pool_m1"))
    return on_device(Collected(collector.queries("train"), queries, knn_m1, pool_m1, shape), runtime.device)


class QueryCollector:
    """Makes the queries of the chains that pass by, in the order of their parts, and appends them to files."""

    def __init__(self, data: PlanningData, parts: Sequence[QueryPart], config: ScorerConfig, runtime: Runtime) -> None:
        self.data, self.parts, self.config, self.runtime = data, parts, config, runtime
        names = dict.fromkeys(part.chain for part in parts)
        self.offset = {name: n * len(data.labels) for n, name in enumerate(names)}
        self.latents = data.bank.new_zeros(1 + len(names) * len(data.labels), data.bank.shape[1])
        self.done = Counter[str]()
        """Split -> queries so far."""
        self.kinds: dict[str, tuple[torch.dtype, torch.Size]] = {}
        """Field, such as `dev/plans` -> type and shape of its rows."""
        shutil.rmtree(runtime.scratch, ignore_errors=True)

    def add(self, view: ChainView) -> None:
        """Make the parts of a chain; progress is reported before each."""
        first = 1 + self.offset[view.chain.name]
        self.latents[first : first + len(view.latents)] = view.latents
        parts = [part for part in self.parts if part.chain == view.chain.name]
        total = sum(len(part.rows) for part in self.parts)
        work = (  # the bank of a horizon is made for its first part
            partial(self._rows, view, bank, part)
            for horizon, of_horizon in groupby(parts, lambda part: part.horizon)
            for bank in [build_bank(view, horizon, self.config.key)]
            for part in of_horizon
        )
        threads = self.runtime.workers if self.runtime.device == "cpu" else 1
        with closing(in_threads(work, threads)) as made:
            for part in parts:
                told = f"{self.done.total():,} of {total:,} queries, chain {view.chain.name}"
                self.runtime.progress(0, 1, told)
                self._append(part.split, next(made))

    def _rows(self, view: ChainView, bank: Bank, part: QueryPart) -> dict[str, Tensor]:
        """Make the queries of a part; return their fields with one row per query, (B, ...) each."""
        with one_thread(view.latents.device.type):
            candidates = find_candidates(view, bank, part.rows, self.config)
            queries = queries_of(view, candidates, self.config)
            columns = {name: getattr(queries, name) for name in ROWS}
            columns["middle"] = columns["middle"] + self.offset[part.chain] * (columns["middle"] > 0)
            if part.split == "dev":
                grid = self.config.temperatures
                columns["knn_m1"] = torch.stack([vote_m1(candidates, view.data, t) for t in grid], 1)
                columns["pool_m1"] = torch.stack([mean_m1(candidates, view, t) for t in grid], 1)
        return columns

    def _append(self, split: str, columns: Mapping[str, Tensor]) -> None:
        """Write the rows of a part behind those of earlier ones.

        Raises StoreError: the disk has no room for all parts, by the size of the rows of the first one.
        """
        if not self.done:
            n_queries = sum(len(part.rows) for part in self.parts)
            need = n_queries * sum(values[0].nbytes for values in columns.values())
            what = f"keeping {n_queries:,} queries of {self.config.candidates} candidates each"
            remedy = "free some space, choose another --root, or lower scorer.max_queries or scorer.candidates"
            require_free_space(self.runtime.scratch, need, what, remedy)
        for name, values in columns.items():
            self.kinds[f"{split}/{name}"] = values.dtype, values.shape[1:]
            path = self.runtime.scratch / split / name
            with naming_failures("write", path, values.nbytes):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    file.write(values.cpu().contiguous().numpy().data)
        self.done[split] += len(columns["take"])

    def queries(self, split: str) -> Queries | None:
        """Return all queries of a split, mapped; None where there is none."""
        if not self.done[split]:
            return None
        rows = {name: self.mapped(f"{split}/{name}") for name in ROWS}
        return Queries(latents=self.latents, texts=F.pad(self.data.bank, (0, 0, 1, 0)), **rows)

    def mapped(self, field: str) -> Tensor:
        """Return the rows (N, ...) of a field from its file, such as `dev/knn_m1`."""
        (dtype, shape), n = self.kinds[field], self.done[field.split("/")[0]]
        size = n * math.prod(shape)
        if not size:
            return torch.empty(n, *shape, dtype=dtype)
        path = str(self.runtime.scratch / field)
        return torch.from_file(path, shared=True, size=size, dtype=dtype).view(n, *shape)  # shared: reserves no memory


def parts_of(split: str, rows_of: Mapping[str, Mapping[int, Tensor]]) -> list[QueryPart]:
    """Cut windows into parts that fit the memory: chain -> horizon -> (n,) long, rows of its windows."""
    return [
        QueryPart(split, chain, horizon, part)
        for chain, by_horizon in rows_of.items()
        for horizon, rows in by_horizon.items()
        for part in (torch.split(rows, WINDOWS_AT_ONCE) if len(rows) else ())
    ]


def draw_queries(data: PlanningData, chains: tuple[Chain, ...], limit: int, seed: int) -> dict[str, dict[int, Tensor]]:
    """Return, per chain and horizon, the rows of the windows whose takes the chain has not seen.

    Where there are more than `limit` in all, a random subset of that size, drawn by `seed` over everything.
    """
    places = []
    for chain in chains:
        takes = query_takes(data, chain)
        for horizon, windows in data.windows.items():
            places.append((chain.name, horizon, torch.isin(windows.take, takes).nonzero()[:, 0]))
    total = sum(len(rows) for _, _, rows in places)
    kept = torch.zeros(total, dtype=torch.bool)
    kept[torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:limit]] = True
    sampled: dict[str, dict[int, Tensor]] = {chain.name: {} for chain in chains}
    parts = torch.split(kept.to(data.fold.device), [len(rows) for _, _, rows in places])
    for (name, horizon, rows), keep in zip(places, parts, strict=True):
        sampled[name][horizon] = rows[keep]
    return sampled


def dev_rows(data: PlanningData, limit: int) -> dict[int, Tensor]:
    """Return, per horizon, the rows of at most `limit` dev windows in all, thinned evenly; long of shape (n,)."""
    code = SPLITS.index("dev")
    every = {horizon: (windows.split == code).nonzero()[:, 0] for horizon, windows in data.windows.items()}
    step = -(-sum(len(rows) for rows in every.values()) // limit) or 1
    return {horizon: rows[::step] for horizon, rows in every.items()}


def on_device(collected: Collected, device: str) -> Collected:
    """Move all queries to the device where they fit comfortably; else, and on a CPU, they stay mapped."""
    queries = [part for part in (collected.train, collected.dev) if part is not None]
    values = [getattr(part, name) for part in queries for name in ROWS]
    if not fits(sum(value.nbytes for value in values), free_bytes(device)):
        return collected

    def moved(part: Queries | None) -> Queries | None:
        return None if part is None else replace(part, **{name: getattr(part, name).to(device) for name in ROWS})

    m1 = collected.knn_m1.to(device), collected.pool_m1.to(device)
    return Collected(moved(collected.train), moved(collected.dev), *m1, collected.shape)
