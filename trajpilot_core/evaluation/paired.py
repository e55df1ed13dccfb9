"""Two evaluations against each other: the takes that both scored, paired, with intervals over takes.

Shapes: T takes, H horizons, M metrics. Method: docs/decisions/metrics.md.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import EvaluationConfig
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation import bootstrap
from trajpilot_core.metrics import with_ceiling

CEILING = "ceiling/"


@dataclass(frozen=True)
class PairedMetric:
    """One metric of one row in two evaluations, in percent, averaged over seeds and plainly over horizons."""

    variant: str
    metric: str
    first: float
    second: float
    difference: float
    """second - first."""
    low: float
    """Infinite where too few takes allow no interval."""
    high: float
    n_takes: int
    n_windows: int


@dataclass(frozen=True)
class Pairing:
    """Common takes and horizons of two evaluations, and the metrics on them."""

    metrics: tuple[PairedMetric, ...]
    n_takes: int
    """Number of compared takes: scored by both on the same windows of every common horizon."""
    unpaired: tuple[str, ...]
    """Other takes that at least one of them scored, sorted."""
    horizons_left: tuple[int, ...]
    """Horizons that only one of them has."""
    only_first: tuple[str, ...]
    """Rows that the second lacks."""
    only_second: tuple[str, ...]


def pair(first: pa.Table, second: pa.Table, cfg: EvaluationConfig, apart: Collection[str] = ()) -> Pairing:
    """Compare two tables of take scores row by row.

    Args:
        first: columns of `schemas.results.TakeScore`.
        cfg: draws, level and seed of the bootstrap.
        apart: takes whose windows differ, even if their number is the same.
    """
    tables = [table.filter(pc.invert(pc.starts_with(table["variant"], CEILING))) for table in (first, second)]
    takes = sorted({take for table in tables for take in pc.unique(table["take_id"]).to_pylist()})
    ranges = [set(pc.unique(table["horizon"]).to_pylist()) for table in tables]
    horizons = sorted(ranges[0] & ranges[1])
    tables = [table.filter(pc.is_in(table["horizon"], value_set=pa.array(horizons, pa.int64()))) for table in tables]
    rows = [set(pc.unique(table["variant"]).to_pylist()) for table in tables]
    scored = {name: [scores_of(table, name, takes, horizons) for table in tables] for name in sorted(rows[0] & rows[1])}
    common = np.array([take not in apart for take in takes], dtype=bool)
    for one, other in scored.values():
        common &= (one[1] == other[1]).all(axis=1) & (one[1].sum(axis=1) > 0)
    metrics: list[PairedMetric] = []
    if common.any():
        weights = bootstrap.draw_weights(int(common.sum()), cfg.bootstrap, cfg.seed)
        for name, (one, other) in scored.items():
            counts = one[1][common]
            scored_horizons = counts.sum(axis=0) > 0
            counts = counts[:, scored_horizons]
            sums = [values[common][:, scored_horizons] for values, _ in (one, other)]
            draws = bootstrap.resampled(weights, sums[1] - sums[0], counts)[:, -2]
            low, high, n_takes = bootstrap.ends_of(draws, int((counts > 0).sum(axis=0).min()), cfg.confidence)
            points = [bootstrap.pooled(values.sum(axis=0), counts.sum(axis=0))[-2] for values in sums]
            for m, metric in enumerate(with_ceiling()):
                before, after = float(points[0][m]), float(points[1][m])
                gain, ends = float(points[1][m] - points[0][m]), (float(low[m]), float(high[m]))
                row = PairedMetric(name, metric, before, after, gain, *ends, n_takes, int(counts.sum()))
                metrics.append(row)
    others = tuple(take for take, is_common in zip(takes, common.tolist(), strict=True) if not (is_common and scored))
    return Pairing(
        tuple(metrics),
        len(takes) - len(others),
        others,
        tuple(sorted(ranges[0] ^ ranges[1])),
        tuple(sorted(rows[0] - rows[1])),
        tuple(sorted(rows[1] - rows[0])),
    )


def scores_of(table: pa.Table, variant: str, takes: Sequence[str], horizons: Sequence[int]) -> tuple[Array, Array]:
    """Return (T, H, M) sums over windows and (T, H) windows of one row, averaged over seeds; zero where it has none.

    Args:
        table: columns of `schemas.results.TakeScore`.
        takes: (T) sorted ids.
        horizons: (H) sorted.
    """
    metrics = with_ceiling()
    is_row = pc.and_(pc.equal(table["variant"], variant), pc.is_in(table["metric"], value_set=pa.array(metrics)))
    rows = table.filter(is_row)
    at_take = pc.index_in(rows["take_id"], value_set=pa.array(takes, pa.string())).to_numpy()
    at_horizon = np.searchsorted(np.array(horizons), rows["horizon"].to_numpy())
    n_seeds = max(1, len(pc.unique(rows["seed"])))
    at_metric = pc.index_in(rows["metric"], value_set=pa.array(metrics, pa.string())).to_numpy()
    shape = (len(takes), len(horizons), len(metrics))
    counts, values = np.zeros(shape), np.zeros(shape)
    np.add.at(counts, (at_take, at_horizon, at_metric), rows["n_windows"].to_numpy())
    np.add.at(values, (at_take, at_horizon, at_metric), rows["total"].to_numpy())
    return values / n_seeds, counts[..., 0] / n_seeds
