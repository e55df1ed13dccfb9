"""Collecting the queries of one seed's scorers: part by part into mapped files, so that a killed run goes on.

Axes: N queries over all horizons, B windows of one part, K candidates, M middle steps, E text space, V labels, T takes
that a chain was fitted on. Source: docs/decisions/paper-gaps.md (28 to 32); docs/decisions/scorer.md.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.base import fingerprint
from schemas.training import ScorerConfig
from trajpilot_core.data.chains import ModelFiles, chains_of, query_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.data.row_files import FieldRows, Place, allocated_bytes, mapped, read_part, write_part
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.memory import fits, free_bytes
from trajpilot_core.models.predictor import PredictorShape
from trajpilot_core.models.scorer import ScorerShape
from trajpilot_core.retrieval.bank import Bank, ChainView, blind_chain_view, build_bank, chain_view
from trajpilot_core.retrieval.candidates import find_candidates, mean_m1, vote_m1
from trajpilot_core.runtime import in_threads
from trajpilot_core.store.lock import require_free_space
from trajpilot_core.training.checkpoint import tensors_digest
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer import ROWS, Queries, queries_of

VERSION = 1  # raise when the rows of a part change: parts that an older version left in scratch are made again
WINDOWS_AT_ONCE = 1024
WORTH_SAYING = 10**9
"""Bytes on disk from which on the log announces them."""
log = logging.getLogger("trajpilot")


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
    """Windows of one chain and horizon whose queries are made and committed together."""

    split: str
    number: int
    """Among the parts of the split."""
    chain: str
    horizon: int
    rows: Tensor
    """(B,) long, of the horizon's windows."""
    first: int
    """Place of its first row among all rows of the split."""
    total: int
    """Rows of the split."""

    @property
    def name(self) -> str:
        """Name of its marker."""
        return f"{self.split}-{self.number:05d}"


def collect(
    data: PlanningData, files: ModelFiles, config: ScorerConfig, seed: int, runtime: Runtime, *, sees_goal: bool = True
) -> Collected:
    """Collect the training queries of every chain and the dev queries of the final one.

    Args:
        data: on the device of `runtime`.
        seed: which chains are read; also of the sample of queries.
        runtime: its scratch is private to these queries; parts that a killed run has left there are not made again. On
            a CPU its workers are how many parts are made at a time, which changes no number.
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
    collector = QueryCollector(data, shape, parts, config, seed, runtime.scratch)
    for chain in chains:
        if chain.name in collector.offset:
            view = view_of(data, files, chain, seed, runtime.device, config.decoding)
            collector.add(view, runtime.progress, runtime.workers if runtime.device == "cpu" else 1)
    queries, none = collector.queries("dev"), torch.empty(0, len(config.temperatures))
    knn_m1, pool_m1 = (none if queries is None else collector.mapped(f"dev/{name}") for name in ("knn_m1", "pool_m1"))
    return on_device(Collected(collector.queries("train"), queries, knn_m1, pool_m1, shape), runtime.device)


class QueryCollector:
    """Makes the queries of the chains that pass by, and keeps them in files.

    What was made before by the same configuration and models is read back.
    """

    def __init__(
        self,
        data: PlanningData,
        shape: ScorerShape,
        parts: list[QueryPart],
        config: ScorerConfig,
        seed: int,
        folder: Path,
    ) -> None:
        self.data, self.parts, self.config, self.seed, self.folder = data, parts, config, seed, folder
        self.places: dict[str, Place] = {}
        self.collected = 0
        names = list(dict.fromkeys(part.chain for part in parts))
        self.offset = {name: n * len(data.labels) for n, name in enumerate(names)}
        require_room(folder, disk_need(parts, shape, config), parts, config, seed)
        self.latents = data.bank.new_zeros(1 + len(names) * len(data.labels), data.bank.shape[1])

    def add(self, view: ChainView, progress: Progress, threads: int = 1) -> None:
        """Make the parts of a chain that are not in the folder yet; progress is called before each."""
        first = 1 + self.offset[view.chain.name]
        self.latents[first : first + len(view.latents)] = view.latents
        models = tensors_digest(view.plan_sources())
        parts = [part for part in self.parts if part.chain == view.chain.name]
        keys = {part.name: self._key(part, models) for part in parts}
        kept = {name: read_part(self.folder, name, key) for name, key in keys.items()}
        missing = [part for part in parts if kept[part.name] is None]
        total = sum(len(part.rows) for part in self.parts)
        with closing(in_threads(self._pieces(view, missing), threads)) as made:
            for part in parts:
                progress(0, 1, f"seed {self.seed}: {self.collected:,} of {total:,} queries, chain {view.chain.name}")
                self.collected += len(part.rows)
                places = kept[part.name] or write_part(self.folder, part.name, keys[part.name], next(made))
                self.places |= {place.field: place for place in places}
        if len(missing) < len(parts):
            counted = f"{len(parts) - len(missing)} of {len(parts)} parts of the queries were kept from before"
            log.info("seed %d, chain %s: %s", self.seed, view.chain.name, counted)

    def _pieces(self, view: ChainView, parts: list[QueryPart]) -> Iterator[Callable[[], list[FieldRows]]]:
        """Yield the work on each part; the bank of a horizon is made for its first part."""
        bank: Bank | None = None
        for part in parts:
            if bank is None or bank.horizon != part.horizon:
                bank = build_bank(view, part.horizon, self.config.key)
            yield partial(self._rows, view, bank, part)

    def queries(self, split: str) -> Queries | None:
        """Return all queries of a split, mapped; None where there is none."""
        if f"{split}/{ROWS[0]}" not in self.places:
            return None
        rows = {name: self.mapped(f"{split}/{name}") for name in ROWS}
        return Queries(latents=self.latents, texts=F.pad(self.data.bank, (0, 0, 1, 0)), **rows)

    def mapped(self, field: str) -> Tensor:
        """Return the rows of a field, such as `dev/knn_m1`, from the files."""
        return mapped(self.folder, self.places[field])

    def _rows(self, view: ChainView, bank: Bank, part: QueryPart) -> list[FieldRows]:
        """Make the queries of a part."""
        with one_thread(view.latents.device.type):
            candidates = find_candidates(view, bank, part.rows, self.config)
            queries = queries_of(view, candidates, self.config)
            columns = {name: getattr(queries, name) for name in ROWS}
            columns["middle"] = columns["middle"] + self.offset[part.chain] * (columns["middle"] > 0)
            if part.split == "dev":
                grid = self.config.temperatures
                columns["knn_m1"] = torch.stack([vote_m1(candidates, view.data, t) for t in grid], 1)
                columns["pool_m1"] = torch.stack([mean_m1(candidates, view, t) for t in grid], 1)
        return [FieldRows(f"{part.split}/{name}", value, part.first, part.total) for name, value in columns.items()]

    def _key(self, part: QueryPart, models: str) -> str:
        """Return what a part is made from, as a digest; `models` is that of its chain's models."""
        return fingerprint(
            {
                "version": VERSION,
                "config": self.config.content(),
                "seed": self.seed,
                "group": [part.chain, part.horizon],
                "rows": hashlib.sha256(part.rows.cpu().numpy().tobytes()).hexdigest(),
                "places": [part.first, part.total],
                "models": [self.offset[part.chain], models],
            }
        )


def parts_of(split: str, rows_of: Mapping[str, Mapping[int, Tensor]]) -> list[QueryPart]:
    """Cut windows into parts that fit the memory: chain -> horizon -> (n,) long, rows of its windows."""
    total = sum(len(rows) for by_horizon in rows_of.values() for rows in by_horizon.values())
    query_parts: list[QueryPart] = []
    first = 0
    for chain, by_horizon in rows_of.items():
        for horizon, rows in by_horizon.items():
            for part in torch.split(rows, WINDOWS_AT_ONCE) if len(rows) else ():
                query_parts.append(QueryPart(split, len(query_parts), chain, horizon, part, first, total))
                first += len(part)
    return query_parts


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
    sampled: dict[str, dict[int, Tensor]] = {chain.name: {} for chain in chains}
    parts = torch.split(kept.to(device), [len(rows) for _, _, rows in places])
    for (name, horizon, rows), keep in zip(places, parts, strict=True):
        sampled[name][horizon] = rows[keep]
    return sampled


def dev_rows(data: PlanningData, limit: int) -> dict[int, Tensor]:
    """Return, per horizon, the rows of at most `limit` dev windows in all, thinned evenly; long of shape (n,)."""
    every = split_rows(data, "dev")
    step = -(-sum(len(rows) for rows in every.values()) // limit) or 1
    return {horizon: rows[::step] for horizon, rows in every.items()}


def split_rows(data: PlanningData, split: str) -> dict[int, Tensor]:
    """Return, per horizon, the rows of the windows of a split, long of shape (n,)."""
    code = SPLITS.index(split)
    return {horizon: (windows.split == code).nonzero()[:, 0] for horizon, windows in data.windows.items()}


def query_bytes(shape: ScorerShape, candidates: int) -> int:
    """Return the bytes on disk of one query of the paper's scorer: its K plans of M x P in float16 are nearly all."""
    steps = shape.max_mids
    of_candidate = 2 * steps * shape.plan + 2 * 8 * steps + 1 + 2 * 4  # plan, latent and label rows, valid, two scores
    return candidates * of_candidate + 4 * shape.query + 2 * steps * shape.plan + 2 * 8 + 2 * 4


def disk_need(parts: Iterable[QueryPart], shape: ScorerShape, config: ScorerConfig) -> int:
    """Return the most bytes on disk that the queries of all parts need."""
    each, of_dev = query_bytes(shape, config.candidates), 2 * 4 * len(config.temperatures)
    return sum(len(part.rows) * (each + (of_dev if part.split == "dev" else 0)) for part in parts)


def require_room(folder: Path, need: int, parts: Iterable[QueryPart], config: ScorerConfig, seed: int) -> None:
    """Log what the queries need and check that the disk has it, less what they have there already.

    Raises StoreError: too little is free.
    """
    count: dict[str, int] = {}
    for part in parts:
        count[part.split] = count.get(part.split, 0) + len(part.rows)
    counted = " and ".join(f"{n:,} {split}" for split, n in sorted(count.items(), reverse=True)) or "no"
    what = f"keeping {counted} queries of {config.candidates} candidates each"
    level = logging.INFO if need >= WORTH_SAYING else logging.DEBUG
    log.log(level, "%-13s seed %d: %s needs %.2f GB under %s", "scorer", seed, what, need / 1e9, folder)
    remedy = "free some space, choose another --root, or lower scorer.max_queries or scorer.candidates"
    allocated = sum(allocated_bytes(folder / split) for split in count)
    require_free_space(folder, max(0, need - allocated), what, remedy)


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
