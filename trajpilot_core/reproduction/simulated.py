"""Our runs on the simulated world where they speak to a contradiction; never in one table with published figures.

Read from the folder of the claims' tables (Parquet): `scores` (TakeScore), `gate` (GateRow) and `headroom` (Headroom),
each with the column `world`. Shapes: S seeds, T takes of a seed, H horizons, B draws.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from schemas.config import EvaluationConfig
from schemas.results import GateRow, GoalProgress, Headroom, TakeScore
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.bootstrap import Array, draw_weights, interval
from trajpilot_core.reproduction.finding import (
    Grid,
    by_horizon,
    differences,
    falls,
    fixed,
    name_horizons,
    printed,
)

WORLD = "base"
"""The rendered world, all seeds: the main one."""
COLUMNS = {
    "scores": ("world", *TakeScore.model_fields),
    "gate": ("world", *GateRow.model_fields),
    "headroom": ("world", *Headroom.model_fields),
    "goal_progress": ("world", "world_seed", *GoalProgress.model_fields),
}
ROWS = {"no_traj": "No-Traj", "scorer": "Scorer", "oracle": "Oracle"}
NOT_RUN = {
    9: "Oracle's predictor with a zero trajectory is no row of ours; No-Traj is always a checkpoint of its own.",
}
"""Contradictions that a run of ours could speak to and none does."""


@dataclass(frozen=True)
class ClaimsData:
    """The claims' tables, each None where its file is absent."""

    scores: pl.DataFrame | None
    gate: pl.DataFrame | None
    headroom: pl.DataFrame | None
    goal_progress: pl.DataFrame | None


@dataclass(frozen=True)
class Ours:
    """What our runs give for one contradiction."""

    figures: tuple[Grid, ...]
    says: str


@dataclass(frozen=True)
class Board:
    """Sums over windows of one metric, per seed: variant -> (T, H), with the (T, H) window counts and the takes."""

    horizons: tuple[int, ...]
    takes: tuple[tuple[str, ...], ...]
    sums: tuple[Mapping[str, Array], ...]
    counts: tuple[Array, ...]


@dataclass(frozen=True)
class Estimate:
    """A figure per horizon with its interval over takes; both (H,)."""

    horizons: tuple[int, ...]
    value: Array
    low: Array
    high: Array

    def by_horizon(self) -> dict[int, float]:
        """Return H -> figure."""
        return dict(zip(self.horizons, self.value.tolist(), strict=True))

    def printed(self, digits: int = 1) -> dict[int, str]:
        """Return H -> figure and interval as printed."""
        rows = zip(self.horizons, self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return {h: f"{fixed(v, digits)} {_bracketed(low, high, digits)}" for h, v, low, high in rows}


def read_claims(folder: Path | None) -> ClaimsData:
    """Read the claims' tables of the main world.

    Raises:
        InputError: a file lacks a column.
    """
    return ClaimsData(*(_read(folder, name) for name in COLUMNS))


def board(scores: pl.DataFrame, metric: str, variants: tuple[str, ...]) -> Board:
    """Arrange one metric of some rows by seed, take and horizon.

    Raises:
        InputError: the rows were not scored on the same windows.
    """
    kept = scores.filter(pl.col("variant").is_in(variants))
    horizons = tuple(sorted(kept["horizon"].unique().to_list()))
    takes, sums, counts = [], [], []
    for seed in sorted(kept["seed"].unique().to_list()):
        parts = {v: _by_take(kept.filter((pl.col("seed") == seed) & (pl.col("variant") == v)), metric, horizons)
                 for v in variants}  # fmt: skip
        first = parts[variants[0]]
        if any(part.takes != first.takes or (part.counts != first.counts).any() for part in parts.values()):
            raise InputError(
                f"claims scores, seed {seed}: the rows {', '.join(variants)} were scored on different windows; "
                "write the table again from one evaluation"
            )
        takes.append(first.takes)
        sums.append({v: part.sums for v, part in parts.items()})
        counts.append(first.counts)
    return Board(horizons, tuple(takes), tuple(sums), tuple(counts))


def estimate(table: Board, statistic: Callable[[Mapping[str, Array]], Array], cfg: EvaluationConfig) -> Estimate:
    """Compute a statistic of the rows' means with its interval: takes are resampled within seeds, seeds averaged.

    Seeds that share their takes share their resamples.

    Args:
        table: the sums.
        statistic: variant -> (..., H) means, to (..., H).
        cfg: settings of the bootstrap.
    """
    draws, point = [], []
    worlds = list(dict.fromkeys(table.takes))
    for takes, sums, counts in zip(table.takes, table.sums, table.counts, strict=True):
        weights = draw_weights(len(takes), cfg.bootstrap, cfg.seed + worlds.index(takes))
        drawn = weights @ counts
        draws.append({v: (weights @ values) / drawn for v, values in sums.items()})
        point.append({v: values.sum(axis=0) / counts.sum(axis=0) for v, values in sums.items()})
    mean = {v: np.mean([part[v] for part in point], axis=0) for v in point[0]}
    means = {v: np.mean([part[v] for part in draws], axis=0) for v in draws[0]}
    n_takes = np.sum([(table.counts[table.takes.index(world)] > 0).sum(axis=0) for world in worlds], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = interval(statistic(means)[..., None], n_takes, cfg.confidence)
        return Estimate(table.horizons, statistic(mean), low[:, 0], high[:, 0])


def recovery(data: ClaimsData) -> Ours | None:
    """No. 2: the recovered share by horizon."""
    if data.scores is None:
        return None
    table, cfg = board(data.scores, "m1", ("no_traj", "scorer", "oracle")), EvaluationConfig()
    gain = estimate(table, lambda m: m["scorer"] - m["no_traj"], cfg)
    gap = estimate(table, lambda m: m["oracle"] - m["no_traj"], cfg)
    share = estimate(table, lambda m: (m["scorer"] - m["no_traj"]) / (m["oracle"] - m["no_traj"]), cfg)
    course = "falls at every step" if falls(share.value.tolist()) else "does not fall throughout"
    return Ours(
        (
            by_horizon(
                {
                    "Scorer − No-Traj, M@1": gain.printed(),
                    "Oracle − No-Traj, M@1": gap.printed(),
                    "recovered share": share.printed(2),
                }
            ),
        ),
        f"The recovered share {course}: {fixed(share.value[0])} at H = {share.horizons[0]}, {fixed(share.value[-1])} "
        f"at H = {share.horizons[-1]}.",
    )


def oracle_as_bound(data: ClaimsData) -> Ours | None:
    """No. 3: the Scorer and the pool's best candidate against Oracle."""
    if data.scores is None:
        return None
    table = board(data.scores, "m1", ("scorer", "oracle"))
    difference = estimate(table, lambda m: m["scorer"] - m["oracle"], EvaluationConfig())
    rows = {"Scorer − Oracle, M@1": difference.printed()}
    if data.headroom is not None:
        oracle = estimate(table, lambda m: m["oracle"], EvaluationConfig()).by_horizon()
        pool, best = _best_of_pool(data.headroom)
        rows[f"best of the pool of {pool} − Oracle, M@1"] = differences(
            {h: value - oracle[h] for h, value in best.items() if h in oracle}, 1
        )
    above = [h for h, low in zip(difference.horizons, difference.low, strict=True) if low > 0]
    return Ours(
        (by_horizon(rows),), f"The Scorer is above Oracle, its interval excluding zero, at {name_horizons(above)}."
    )


def gate_arithmetic(data: ClaimsData) -> Ours | None:
    """No. 4: overall gain = open rate x gain on the opened windows."""
    if data.gate is None:
        return None
    rates = data.gate.filter(pl.col("horizon").is_not_null())
    product = pl.col("open_rate") * pl.col("gain_opened") / 100
    worst = float(rates.select((product - pl.col("gain_overall")).abs().max()).item())
    rows = {
        "opened, % of the windows": printed(_mean_by_horizon(rates, "open_rate"), 1),
        "gain on the opened, M@1": differences(_mean_by_horizon(rates, "gain_opened"), 1),
        "gain over all, M@1": differences(_mean_by_horizon(rates, "gain_overall"), 1),
        "opened windows that the gate harmed, %": printed(_mean_by_horizon(rates, "harmed"), 1),
    }
    seeds = rates["seed"].n_unique()
    return Ours(
        (by_horizon(rows),),
        f"Means of {seeds} seeds. The largest deviation from the identity over seeds and horizons is {fixed(worst, 6)} "
        "points.",
    )


def monotone_by_chance(data: ClaimsData) -> Ours | None:
    """No. 11: the fraction of true plans that approach the goal, against random order."""
    if data.goal_progress is None:
        return None
    counted = data.goal_progress.rename({"monotone": "share", "world_seed": "seed"}).with_columns(
        pl.lit("plans").alias("variant")
    )
    share = estimate(board(counted, "share", ("plans",)), lambda m: 100 * m["plans"], EvaluationConfig())
    chance = np.array([100 / math.factorial(h - 2) for h in share.horizons])
    near = [
        h for h, c, low, high in zip(share.horizons, chance, share.low, share.high, strict=True) if low <= c <= high
    ]
    return Ours(
        (
            by_horizon(
                {
                    "monotone, %": share.printed(),
                    "random order, 100 / (H − 2)!": printed(dict(zip(share.horizons, chance.tolist(), strict=True))),
                }
            ),
        ),
        "All test windows of the simulated worlds. The interval holds the fraction of random order at "
        f"{name_horizons(near)}.",
    )


def cosine_of_pools(data: ClaimsData) -> Ours | None:
    """No. 12: both readings of the cosine by pool size, at H = 5."""
    if data.headroom is None:
        return None
    at = data.headroom.filter(pl.col("horizon") == 5)
    names = {
        "endpoint_cosine": "mean endpoint cosine, retrieved",
        "endpoint_cosine_random": "mean endpoint cosine, random",
        "best_mid_cosine": "best middle cosine, retrieved",
        "best_mid_cosine_random": "best middle cosine, random",
    }
    means = at.group_by("pool").agg(pl.col(*names).mean()).sort("pool")
    values = {column: means[column].to_list() for column in names}
    rows = tuple((name, *(fixed(v, 3) for v in values[column])) for column, name in names.items())
    mean, best = values["endpoint_cosine"], values["best_mid_cosine"]
    return Ours(
        (Grid(("H = 5", *(f"top {p}" for p in means["pool"].to_list())), rows),),
        f"The mean endpoint cosine goes from {fixed(mean[0], 3)} to {fixed(mean[-1], 3)}, the best middle cosine from "
        f"{fixed(best[0], 3)} to {fixed(best[-1], 3)}.",
    )


def endpoints_predicted(data: ClaimsData) -> Ours | None:
    """No. 18: accuracy at Start and Goal that F@1 and M@1 imply."""
    if data.scores is None:
        return None
    cfg, rows = EvaluationConfig(), {}
    full, mid = (board(data.scores, metric, tuple(ROWS)) for metric in ("f1", "m1"))
    for variant, name in ROWS.items():
        f1, m1 = (estimate(table, _only(variant), cfg).by_horizon() for table in (full, mid))
        rows[f"{name}, implied R@1 of Start and Goal"] = printed({h: (h * f1[h] - (h - 2) * m1[h]) / 2 for h in f1}, 1)
    return Ours((by_horizon(rows),), "Start and Goal are predicted here too.")


def unopened_gate(data: ClaimsData) -> Ours | None:
    """No. 22: horizons where the gate never opened."""
    if data.gate is None:
        return None
    rates = data.gate.filter(pl.col("horizon").is_not_null())
    rows = {
        f"seed {seed}, opened, %": {
            int(row["horizon"]): fixed(row["open_rate"], 1) for row in rates.filter(pl.col("seed") == seed).to_dicts()
        }
        for seed in sorted(rates["seed"].unique().to_list())
    }
    shut = rates.filter(pl.col("n_opened") == 0).height
    return Ours((by_horizon(rows),), f"The gate opened for no window in {shut} of {rates.height} cells.")


SPEAKS: dict[int, Callable[[ClaimsData], Ours | None]] = {
    2: recovery,
    3: oracle_as_bound,
    4: gate_arithmetic,
    11: monotone_by_chance,
    12: cosine_of_pools,
    18: endpoints_predicted,
    22: unopened_gate,
}
"""Contradiction -> what our runs say; None where the table is absent."""


def _read(folder: Path | None, name: str) -> pl.DataFrame | None:
    if folder is None or not (folder / f"{name}.parquet").exists():
        return None
    table = pl.read_parquet(folder / f"{name}.parquet")
    lacking = [column for column in COLUMNS[name] if column not in table.columns]
    if lacking:
        raise InputError(f"{folder / name}.parquet lacks {', '.join(lacking)}; write the claims' tables again")
    kept = table.filter(pl.col("world") == WORLD)
    return None if kept.is_empty() else kept


class _Sums(NamedTuple):
    takes: tuple[str, ...]
    sums: Array
    counts: Array


def _by_take(rows: pl.DataFrame, metric: str, horizons: tuple[int, ...]) -> _Sums:
    """Return the (T, H) sums and window counts of one row and seed, takes sorted by id."""
    takes = tuple(sorted(rows["take_id"].unique().to_list()))
    at = {take: index for index, take in enumerate(takes)}
    sums, counts = np.zeros((len(takes), len(horizons))), np.zeros((len(takes), len(horizons)))
    for row in rows.select("take_id", "horizon", "n_windows", metric).iter_rows():
        place = at[row[0]], horizons.index(row[1])
        if counts[place]:
            raise InputError(f"claims scores hold take {row[0]}, H={row[1]} twice for one row; keep one evaluation")
        counts[place], sums[place] = row[2:]
    return _Sums(takes, sums, counts)


def _bracketed(low: float, high: float, digits: int) -> str:
    return f"[{fixed(low, digits)}, {fixed(high, digits)}]" if math.isfinite(high - low) else "(too few takes)"


def _only(variant: str) -> Callable[[Mapping[str, Array]], Array]:
    return lambda means: means[variant]


def _mean_by_horizon(rows: pl.DataFrame, column: str) -> dict[int, float]:
    """Average over seeds."""
    means = rows.group_by("horizon").agg(pl.col(column).mean()).sort("horizon")
    return {int(h): float(v) for h, v in means.iter_rows()}


def _best_of_pool(headroom: pl.DataFrame) -> tuple[int, dict[int, float]]:
    """Return the largest pool and H -> M@1 of its best candidate."""
    pool = max(headroom["pool"].to_list())
    return pool, _mean_by_horizon(headroom.filter(pl.col("pool") == pool), "oracle_m1")
