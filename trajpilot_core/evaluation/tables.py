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
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.methods import METHODS, examined, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.metrics import METRICS, window_values
from trajpilot_core.metrics.windows import mid_recall


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


def _same_windows(one: TakeSums, other: TakeSums) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one.windows, other.windows, strict=True))


def _contrasts(predictions: Predictions) -> Iterator[tuple[str, str | None, tuple[int | None, ...], TakeSums]]:
    """Yield (variant, reference, seeds, sums): every seed, the average over seeds (None), and the paired differences.

    A single seed is its own average. A difference between rows with different windows is omitted; the check `same
    windows` then fails.
    """
    means: dict[str, TakeSums] = {}
    for variant in predictions.variants():
        per_seed = [sums_of(predictions, variant, seed) for seed in predictions.seeds(variant)]
        has_mean = all(_same_windows(per_seed[0], other) for other in per_seed)
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
        if variant in means and reference in means and _same_windows(means[variant], means[reference]):
            values = means[variant].values - means[reference].values
            yield variant, reference, (None,), replace(means[variant], values=values)


def metric_rows(predictions: Predictions, corpus: str, cfg: EvaluationConfig) -> list[Metric]:
    """Score every row: per horizon, and over the horizons plainly and weighted by windows, each with its interval.

    One set of draws serves all rows, so differences are paired.
    """
    weights = bootstrap.draw_weights(len(predictions.take_ids), cfg.bootstrap, cfg.seed)
    rows: list[Metric] = []
    for variant, reference, seeds, sums in _contrasts(predictions):
        wanted = scored_on(variant) & scored_on(reference or variant)
        head = {"corpus": corpus, "variant": variant, "reference": reference, "seed": seeds[0]}
        scored = _rows(head, sums, weights, predictions.horizons(), cfg, wanted)
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
    rows = []
    for r, (horizon, pooling) in enumerate(places):
        place = {**head, "horizon": horizon, "pooling": pooling, "n_takes": int(n_takes[r])}
        for m, metric in enumerate(metrics):
            figures = bootstrap.rounded(value=value[r, m], low=low[r, m], high=high[r, m])
            rows.append(Metric(**place, metric=metric, **figures, n_windows=int(n_windows[r])))
    return rows


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
                reached, without = (mid_recall(row.labels, row.rankings, 1) for row in (block, other))
                parts.append((block.horizon, block.opened == 1, reached - without))
        rows += [_gate_row(seed, *part) for part in parts]
        if parts:
            opened, gain = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
            rows.append(_gate_row(seed, None, opened.astype(bool), gain))
    return rows


def _gate_row(seed: int, horizon: int | None, opened: NDArray[np.bool_], gain: NDArray[np.float64]) -> GateRow:
    """Summarise (N,) gates and points of M@1 gained over the fallback."""
    inside = gain[opened] if opened.any() else np.zeros(1)
    rates = bootstrap.rounded(open_rate=100.0 * float(opened.mean()), harmed=100.0 * float((inside < 0).mean()))
    gains = bootstrap.rounded(gain_opened=inside.mean(), gain_overall=gain.mean())
    return GateRow(horizon=horizon, seed=seed, n_opened=int(opened.sum()), n_windows=len(gain), **rates, **gains)


def outcome_table(predictions: Predictions) -> pa.Table:
    """Return one row per window and gallery variant (columns of `schemas.results.Outcome`), first seed only."""
    schema = arrow_schema(Outcome)
    ids = (predictions.window_ids, predictions.take_ids, predictions.label_ids)
    windows, takes, names = (pa.array(of, pa.string()) for of in ids)
    parts = [schema.empty_table()]
    shown = [row.id for row in METHODS if row.in_gallery]
    for block in (block for variant in shown for block in predictions.of(variant)):
        if block.seed != predictions.seeds(block.variant)[0]:
            continue
        hits, n = block.rankings == block.labels[..., None], len(block.windows)
        ranks = np.where(hits.any(axis=2), hits.argmax(axis=2), hits.shape[2])
        columns = {
            "window_id": windows.take(pa.array(block.windows)),
            "take_id": takes.take(pa.array(block.takes)),
            "horizon": pa.array(np.full(n, block.horizon)),
            "variant": pa.array([block.variant] * n, pa.string()),
            "mid_right": pa.array((block.labels == block.decoded)[:, 1:-1].sum(axis=1)),
            "label_ids": _lists(names.take(pa.array(block.labels.ravel())), n),
            "decoded_ids": _lists(names.take(pa.array(block.decoded.ravel())), n),
            "ranks": _lists(pa.array(ranks.ravel()), n),
            "gate": pa.array(block.gate, mask=np.isnan(block.gate)),
            "opened": pa.array(block.opened == 1, mask=block.opened < 0),
            "candidate": windows.take(pa.array(block.candidates, mask=block.candidates < 0)),
        }
        parts.append(pa.table(columns).cast(schema))
    return pa.concat_tables(parts)


def _lists(values: pa.Array, n: int) -> pa.ListArray:
    """Split (n x H,) values into n lists of H."""
    width = len(values) // n if n else 0
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1) * width, pa.int32()), values)
