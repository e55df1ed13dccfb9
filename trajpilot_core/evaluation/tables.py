"""Rows of the metrics, gate and outcomes tables, made from predictions.

Shapes: T takes, N windows, H horizons, M metrics.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.arrow import arrow_schema
from schemas.config import EvaluationConfig
from schemas.results import GateRow, Metric, Outcome
from trajpilot_core.arrays import Codes
from trajpilot_core.evaluation import bootstrap
from trajpilot_core.evaluation.prediction_arrays import PredictionBlock, Predictions
from trajpilot_core.methods import METHODS, examined, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.metrics import METRICS, window_values
from trajpilot_core.metrics.windows import mid_recall

DIGITS = 9
"""Decimal places of numbers, so that equal inputs give equal bytes for any order of a sum."""


@dataclass(frozen=True)
class TakeSums:
    """Sums of one variant and seed per take, and their windows."""

    values: NDArray[np.float64]
    """(T, H, M) sums over windows."""
    counts: NDArray[np.float64]
    """(T, H) windows."""
    windows: tuple[Codes, ...]
    """Per horizon, sorted."""


def sums_of(predictions: Predictions, variant: str, seed: int) -> TakeSums:
    """Sum the metrics of one variant and seed per take and horizon; a horizon without windows has zeros."""
    blocks = {block.horizon: block for block in predictions.of(variant) if block.seed == seed}
    n = len(predictions.take_ids)
    values = np.zeros((n, len(predictions.horizons()), len(METRICS)))
    counts, windows = np.zeros(values.shape[:2]), [np.zeros(0, dtype=np.int64)] * len(predictions.horizons())
    for at, horizon in enumerate(predictions.horizons()):
        if block := blocks.get(horizon):
            scores = window_values(block.labels, block.decoded, block.rankings)
            values[:, at], counts[:, at] = bootstrap.cluster_sums(scores, block.takes, n)
            windows[at] = block.windows
    return TakeSums(values, counts, tuple(windows))


def same_windows(one: TakeSums, other: TakeSums) -> bool:
    """Return whether two rows were scored on the identical windows."""
    return all(np.array_equal(a, b) for a, b in zip(one.windows, other.windows, strict=True))


def _contrasts(predictions: Predictions) -> Iterator[tuple[str, str | None, tuple[int | None, ...], TakeSums]]:
    """Yield (variant, reference, seeds, sums): every seed, the average over seeds (None), and the paired differences.

    A single seed is its own average. A difference between rows with different windows is omitted; the check `same
    windows` then fails.
    """
    means: dict[str, TakeSums] = {}
    for variant in predictions.variants():
        per_seed = [sums_of(predictions, variant, seed) for seed in predictions.seeds(variant)]
        has_mean = all(same_windows(per_seed[0], other) for other in per_seed)
        is_mean = has_mean and len(per_seed) == 1
        for seed, sums in zip(predictions.seeds(variant), per_seed, strict=True):
            yield variant, None, (seed, None) if is_mean else (seed,), sums
        if has_mean:
            means[variant] = replace(per_seed[0], values=np.mean([sums.values for sums in per_seed], axis=0))
            if not is_mean:
                yield variant, None, (None,), means[variant]
    pairs = [(variant, REFERENCE) for variant in means if variant != REFERENCE]
    against = [(method.id, other) for method in METHODS for other in method.against if other != REFERENCE]
    for variant, reference in [*pairs, *against]:
        if variant in means and reference in means and same_windows(means[variant], means[reference]):
            values = means[variant].values - means[reference].values
            yield variant, reference, (None,), replace(means[variant], values=values)


def metric_rows(predictions: Predictions, corpus: str, cfg: EvaluationConfig) -> list[Metric]:
    """Score every row: per horizon, and over the horizons plainly and weighted by windows, each with its interval.

    Args:
        cfg: draws, level and seed; one set of draws serves all rows, so differences are paired.
    """
    weights = bootstrap.draw_weights(len(predictions.take_ids), cfg.bootstrap, cfg.seed)
    rows: list[Metric] = []
    for variant, reference, seeds, sums in _contrasts(predictions):
        kept = scored_on(variant) & scored_on(reference or variant)
        head = {"corpus": corpus, "variant": variant, "reference": reference}
        scored = _rows({**head, "seed": seeds[0]}, sums, weights, predictions.horizons(), cfg, kept)
        rows += [row.model_copy(update={"seed": seed}) for seed in seeds for row in scored]
    return rows


def scored_on(variant: str) -> set[str]:
    """Return the metrics that a row can be scored on; those of anticipation are for rows without a goal."""
    row = method(variant)
    known = METRICS if row.anticipates else (id_ for id_, spec in METRICS.items() if spec.table != "anticipation")
    return set(known if row.metrics is None else row.metrics)


def _rows(
    head: Mapping[str, str | int | None],
    sums: TakeSums,
    weights: NDArray[np.float64],
    horizons: tuple[int, ...],
    cfg: EvaluationConfig,
    wanted: set[str],
) -> list[Metric]:
    """Build the rows of one contrast: H + 2 numbers for each metric in `wanted`.

    Horizons without windows are omitted, and then the means over the horizons too: their windows would differ from
    those of the other rows.
    """
    scored, metrics = sums.counts.sum(axis=0) > 0, [metric for metric in METRICS if metric in wanted]
    columns = [column for column, metric in enumerate(METRICS) if metric in wanted]
    values, counts = sums.values[:, scored][:, :, columns], sums.counts[:, scored]
    value = bootstrap.pooled(values.sum(axis=0), counts.sum(axis=0))
    takes = (counts > 0).sum(axis=0)
    n_takes = np.array([*takes, takes.min(), (counts.sum(axis=1) > 0).sum()])
    low, high = bootstrap.interval(bootstrap.resampled(weights, values, counts), n_takes, cfg.confidence)
    per_horizon = counts.sum(axis=0)
    n_windows = [*per_horizon, per_horizon.sum(), per_horizon.sum()]
    kept = [horizon for horizon, is_scored in zip(horizons, scored, strict=True) if is_scored]
    places = [*((horizon, "none") for horizon in kept), *([(None, "plain"), (None, "sample")] if scored.all() else [])]
    return [
        Metric.model_validate(
            {
                **head,
                "horizon": horizon,
                "pooling": pooling,
                "metric": metric,
                "value": round(float(value[r, m]), DIGITS),
                "low": round(float(low[r, m]), DIGITS),
                "high": round(float(high[r, m]), DIGITS),
                "n_takes": int(n_takes[r]),
                "n_windows": int(n_windows[r]),
            }
        )
        for r, (horizon, pooling) in enumerate(places)
        for m, metric in enumerate(metrics)
    ]


def gate_rows(predictions: Predictions) -> list[GateRow]:
    """Return per seed and horizon, and over all windows, how often the gate of `examined` opened and the gain.

    Blocks without `REFERENCE` on the identical windows are omitted.
    """
    gated = examined().id
    fallback = {(block.seed, block.horizon): block for block in predictions.of(REFERENCE)}
    rows: list[GateRow] = []
    for seed in predictions.seeds(gated):
        parts = []
        for block in predictions.of(gated):
            other = fallback.get((block.seed, block.horizon))
            if block.seed == seed and other is not None and np.array_equal(other.windows, block.windows):
                parts.append((block.horizon, gate_gains(block, other)))
        rows += [_gate_row(horizon, seed, *part) for horizon, part in parts]
        if parts:
            opened, gain = (np.concatenate([part[i] for _, part in parts]) for i in (0, 1))
            rows.append(_gate_row(None, seed, opened.astype(bool), gain))
    return rows


def gate_gains(scorer: PredictionBlock, fallback: PredictionBlock) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return whether the gate opened and the points of M@1 gained over the fallback on the same windows, shape (N,)."""
    gain = mid_recall(scorer.labels, scorer.rankings, 1) - mid_recall(fallback.labels, fallback.rankings, 1)
    return scorer.opened == 1, gain


def _gate_row(horizon: int | None, seed: int, opened: NDArray[np.bool_], gain: NDArray[np.float64]) -> GateRow:
    """Summarise (N,) gates and gains."""
    inside = gain[opened]
    return GateRow(
        horizon=horizon,
        seed=seed,
        open_rate=round(100.0 * float(opened.mean()), DIGITS),
        gain_opened=round(float(inside.mean()), DIGITS) if len(inside) else 0.0,
        gain_overall=round(float(gain.mean()), DIGITS),
        harmed=round(100.0 * float((inside < 0).mean()), DIGITS) if len(inside) else 0.0,
        n_opened=int(opened.sum()),
        n_windows=len(gain),
    )


def outcome_table(predictions: Predictions) -> pa.Table:
    """Return one row per window and gallery variant (columns of `schemas.results.Outcome`), first seed only."""
    schema = arrow_schema(Outcome)
    names = pa.array(predictions.label_ids, pa.string())
    parts = [
        _outcomes(block, predictions, names).cast(schema)
        for variant in (method.id for method in METHODS if method.in_gallery)
        for block in predictions.of(variant)
        if block.seed == predictions.seeds(variant)[0]
    ]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _outcomes(block: PredictionBlock, predictions: Predictions, names: pa.Array) -> pa.Table:
    """Return the outcomes of one block."""
    hits = block.rankings == block.labels[..., None]
    ranks = np.where(hits.any(axis=2), hits.argmax(axis=2), hits.shape[2])
    right = (block.labels == block.decoded)[:, 1:-1].sum(axis=1)
    windows, takes = pa.array(predictions.window_ids, pa.string()), pa.array(predictions.take_ids, pa.string())
    n, is_open = len(block.windows), block.opened
    return pa.table(
        {
            "window_id": windows.take(pa.array(block.windows)),
            "take_id": takes.take(pa.array(block.takes)),
            "horizon": pa.array(np.full(n, block.horizon)),
            "variant": pa.array([block.variant] * n, pa.string()),
            "mid_right": pa.array(right),
            "label_ids": _lists(names.take(pa.array(block.labels.ravel())), n),
            "decoded_ids": _lists(names.take(pa.array(block.decoded.ravel())), n),
            "ranks": _lists(pa.array(ranks.ravel()), n),
            "gate": pa.array(block.gate, mask=np.isnan(block.gate)),
            "opened": pa.array(is_open == 1, mask=is_open < 0),
            "candidate": windows.take(pa.array(block.candidates, mask=block.candidates < 0)),
        }
    )


def _lists(values: pa.Array, n: int) -> pa.ListArray:
    """Split (n x H,) values into n lists of H."""
    width = len(values) // n if n else 0
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1) * width, pa.int32()), values)
