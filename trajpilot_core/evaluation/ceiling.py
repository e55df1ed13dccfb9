"""Exact ceilings: the best possible score for a superset of what a row of the tables sees; and the checks on them.

Exact inference on the simulated world's own generative model; a recorded corpus has none, nor has a layout that does
not show the steps of its world. Names of checks begin with `ceiling`; a failed one proves a leak, or a fault in the
inference. Shapes: T takes, H horizons, N windows, M metrics in the order of
`bounded_metrics`: a row that is given no goal is also bounded after Start.
Source: docs/decisions/ceiling.md, docs/decisions/classes.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrow import arrow_schema
from schemas.results import Ceiling, Judgement, TakeScore
from schemas.world import WorldConfig
from trajpilot_core.arrays import Array, Codes
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.bootstrap import DIGITS, MIN_CLUSTERS, cluster_sums, rounded
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.incoming import parse_json
from trajpilot_core.methods import method
from trajpilot_core.metrics import METRICS, window_values, with_ceiling
from trajpilot_core.simworld.inference.bayes_optimal import answers
from trajpilot_core.simworld.inference.visible import KINDS, KINDS_WITHOUT_GOAL, InputKind
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.store.corpus_files import open_corpus, read_whole

WORLD_FILE = "world.json"
"""Description of a simulated corpus, relative to the data root."""
BINDING = ("M@1", "MSeq")
"""Metrics that fail an evaluation over all horizons; others warn."""
BINDING_AFTER_START = ("A@1", "ASeq")
"""The same for rows without a goal: the others do not read the place of the Goal."""
ERRORS = 3.0
"""Standard errors of the paired difference from which on a row is above its ceiling."""
SCORES = arrow_schema(TakeScore)
CALIBRATED = 4.0
"""Standard errors by which the ceilings may miss their own probabilities: there are two to four figures per kind."""
NO_CEILING = "ceiling: no exact ceiling for this layout"
"""The only check where a simulated world has no ceiling; the detail is the reason."""
ROUNDING = 1e-6
"""Rounding error of a sum, points."""


@dataclass(frozen=True)
class ExactCeilings:
    """Exact decisions for N windows, for every kind of input of rows."""

    window_ids: tuple[str, ...]
    take_ids: tuple[str, ...]
    """(N,) take of every window."""
    horizons: Codes
    """(N,)."""
    values: Mapping[InputKind, Array]
    """(N, M) percent, M metrics of the kind: scores of the optimal decisions. A sequence that is not proven the best
    counts as right."""
    expected: Mapping[InputKind, Array]
    """(N, M) percent: their expected scores, by their own probabilities."""
    n_unproven: int
    """Number of sequences that are not proven the best."""


def read_world(data_root: str) -> World | None:
    """Return the simulated world at the data root, in any layout; None where the corpus is recorded or absent.

    Raises:
        InputError: there is a world.json that does not describe a world.
    """
    if not data_root:
        return None
    try:
        content = read_whole(open_corpus(data_root), WORLD_FILE)
    except (FileNotFoundError, InputError):
        return None
    try:
        return sample_world(WorldConfig.model_validate(parse_json(content, WORLD_FILE)["config"]))
    except (InputError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{data_root}/{WORLD_FILE} describes no world: {error}; write the world again") from error


def bounded_metrics(kind: InputKind | None) -> tuple[str, ...]:
    """Return the ids of the M metrics that are bounded for inputs of `kind`; None, a row given the truth, has all."""
    return with_ceiling(has_goal=kind not in KINDS_WITHOUT_GOAL)


def known_values(
    world: World,
    segments: pa.Table,
    windows: pa.Table,
    classes: Mapping[str, str] | None = None,
    kinds: Sequence[InputKind] = KINDS,
) -> ExactCeilings:
    """Compute the exact decisions for windows of any split; `classes`: label id -> class id, where answers are classes.

    Raises:
        InputError: the tables are not of this world.
    """
    n = windows.num_rows
    values = {kind: np.zeros((n, len(bounded_metrics(kind)))) for kind in kinds}
    expected = {kind: np.zeros((n, len(bounded_metrics(kind)))) for kind in kinds}
    n_unproven = 0
    for answer in answers(world, segments, windows, kinds, classes):
        for m, spec in enumerate(METRICS[id_] for id_ in bounded_metrics(answer.kind)):
            assert spec.reached is not None
            assert spec.expected is not None
            values[answer.kind][answer.rows, m] = spec.reached(answer.truth, answer.decisions)
            expected[answer.kind][answer.rows, m] = spec.expected(answer.decisions)
        n_unproven += int((~answer.decisions.is_proven).sum())
    horizons = windows["horizon"].to_numpy().astype(np.int64)
    ids, takes = (tuple(windows[name].to_pylist()) for name in ("window_id", "take_id"))
    return ExactCeilings(ids, takes, horizons, values, expected, n_unproven)


def known_of_predictions(
    world: World,
    predictions: Predictions,
    segments: pa.Table,
    windows: pa.Table,
    classes: Mapping[str, str] | None = None,
) -> ExactCeilings:
    """Compute the exact decisions for the windows of the table that were predicted; `classes` as in `known_values`."""
    scored = sorted({index for block in predictions.blocks for index in block.windows.tolist()})
    ids = pa.array([predictions.window_ids[index] for index in scored], pa.string())
    bounds = {method(variant).ceiling for variant in predictions.variants()}
    kinds = (*KINDS, *(kind for kind in KINDS_WITHOUT_GOAL if kind in bounds))
    return known_values(world, segments, windows.filter(pc.is_in(windows["window_id"], value_set=ids)), classes, kinds)


def row_scores(predictions: Predictions) -> pa.Table:
    """Return the take scores (columns of `TakeScore`) of every row and seed, one per take and metric."""
    takes, parts = pa.array(predictions.take_ids, pa.string()), [SCORES.empty_table()]
    for block in predictions.blocks:
        metrics = bounded_metrics(method(block.variant).ceiling)
        values = window_values(block.labels, block.decoded, block.rankings, metrics)
        sums, counts = cluster_sums(values, block.takes, len(takes))
        scored = np.flatnonzero(counts)
        n = len(scored) * len(metrics)
        columns = {
            "variant": pa.array([block.variant] * n, pa.string()),
            "seed": np.full(n, block.seed),
            "take_id": takes.take(pa.array(np.repeat(scored, len(metrics)))),
            "horizon": np.full(n, block.horizon),
            "metric": pa.array(list(metrics) * len(scored), pa.string()),
            "n_windows": np.repeat(counts[scored].astype(np.int64), len(metrics)),
            "total": np.round(sums[scored], DIGITS).ravel(),
        }
        parts.append(pa.table({name: columns[name] for name in SCORES.names}, schema=SCORES))
    return pa.concat_tables(parts)


def compare(predictions: Predictions, known: ExactCeilings) -> list[Ceiling]:
    """Compare every row, averaged over its seeds, with its ceiling on the same windows: by variant, horizon, metric.

    The plain mean over the horizons follows them. Raises MethodError for a row that is not declared: no bound is known.
    """
    place = {window: i for i, window in enumerate(known.window_ids)}
    # windows that served as candidates only have no ceiling: their place is out of range
    row_of = np.array([place.get(window, len(place)) for window in predictions.window_ids])
    rows: list[Ceiling] = []
    for variant in predictions.variants():
        kind = method(variant).ceiling
        if kind is not None:
            rows += _compare_row(predictions, variant, known.values[kind], row_of, bounded_metrics(kind))
    return rows


def _compare_row(
    predictions: Predictions, variant: str, ceilings: Array, row_of: Codes, metrics: tuple[str, ...]
) -> list[Ceiling]:
    """Compare one row; `row_of` maps windows of the predictions to rows of the (N, M) ceilings."""
    shape = (2, len(predictions.take_ids), len(predictions.horizons()), len(metrics))
    sums, counts = np.zeros(shape), np.zeros(shape[1:3])
    for block in predictions.of(variant):
        at = predictions.horizons().index(block.horizon)
        own = window_values(block.labels, block.decoded, block.rankings, metrics)
        summed, counted = both_sums(own, ceilings[row_of[block.windows]], block.takes, shape[1])
        sums[:, :, at] += summed
        counts[:, at] += counted
    scored = counts.sum(axis=0) > 0
    horizons = [horizon for horizon, is_scored in zip(predictions.horizons(), scored, strict=True) if is_scored]
    n_seeds = max(1, len(predictions.seeds(variant)))
    sums, counts, rows = sums[:, :, scored], counts[:, scored], []
    parts = [([i], horizon) for i, horizon in enumerate(horizons)] + [(list(range(len(horizons))), None)]
    for columns, horizon in parts:
        value, ceiling, error = paired(sums[:, :, columns], counts[:, columns])
        n_takes, n_windows = int((counts[:, columns].sum(axis=1) > 0).sum()), float(counts[:, columns].sum()) / n_seeds
        sizes = {"n_takes": n_takes, "n_windows": round(n_windows)}
        for m, metric in enumerate(metrics):
            figures = rounded(value=value[m], ceiling=ceiling[m], difference=value[m] - ceiling[m])
            difference = figures["difference"]
            judged = {
                "binding": horizon is None and metric in (*BINDING, *BINDING_AFTER_START),
                "above": bool(difference > 0 and difference > ERRORS * error[m]),
            }
            figures |= {**rounded(standard_error=error[m]), **sizes, **judged}
            rows.append(Ceiling(variant=variant, horizon=horizon, metric=metric, **figures))
    return rows


def both_sums(one_NM: Array, other_NM: Array, takes_N: Codes, n_takes: int) -> tuple[Array, Array]:
    """Return (2, T, M) sums of two rows of values per take, and (T,) windows."""
    summed, counted = cluster_sums(np.concatenate([one_NM, other_NM], axis=1), takes_N, n_takes)
    return np.moveaxis(summed.reshape(n_takes, 2, -1), 1, 0), counted


def paired(sums: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Average over windows, then plainly over horizons, with the standard error of the difference over takes.

    The error is that of a mean of ratios, linearised (every take's influence on the mean), with n / (n - 1) for n
    takes; infinite below `bootstrap.MIN_CLUSTERS` takes.

    Args:
        sums: (2, T, H, M) sums over windows of one row and of another.
        counts: (T, H) windows.

    Returns:
        (M,) averages of either, and (M,) standard errors.
    """
    n = counts.sum(axis=0)
    ratios = sums.sum(axis=1) / n[:, None]
    difference = ratios[0] - ratios[1]
    influence = ((sums[0] - sums[1] - counts[..., None] * difference) / n[:, None]).mean(axis=1)
    n_takes = int((counts.sum(axis=1) > 0).sum())
    averages = ratios.mean(axis=1)
    if n_takes < MIN_CLUSTERS:
        return averages[0], averages[1], np.full(sums.shape[3], np.inf)
    error = np.sqrt((influence**2).sum(axis=0) * n_takes / (n_takes - 1))
    return averages[0], averages[1], error


def ceiling_checks(rows: Sequence[Ceiling], known: ExactCeilings | str | None) -> list[Judgement]:
    """Judge every row by its binding figures, and check the ceilings themselves.

    `known` is the reason where a simulated world has none, and None where nothing is simulated: nothing is judged.
    """
    if known is None:
        return []
    if isinstance(known, str):
        return [Judgement(check=NO_CEILING, verdict="not run", detail=known)]
    variants = list(dict.fromkeys(row.variant for row in rows))
    return [
        *(row_check(variant, [r for r in rows if r.variant == variant and r.binding]) for variant in variants),
        calibration_check(known),
    ]


def row_check(variant: str, rows: Sequence[Ceiling]) -> Judgement:
    """Judge one row by its binding figures, plain means over horizons: 3 standard errors above prove a leak."""
    check = f"ceiling: {variant} is below what can be known"
    detail = "; ".join(_figure(row) for row in rows)
    if any(row.above for row in rows):
        return Judgement(check=check, verdict="fails", detail=f"{detail}: it received inputs that it must not see")
    if not all(math.isfinite(row.standard_error) for row in rows):
        return Judgement(check=check, verdict="not run", detail=f"too few takes; {detail}")
    return Judgement(check=check, verdict="holds", detail=detail)


def _figure(row: Ceiling) -> str:
    error = f"standard error {row.standard_error:.2f}" if math.isfinite(row.standard_error) else "no standard error"
    return f"{row.metric} {row.value:.1f}, ceiling {row.ceiling:.1f} ({row.difference:+.1f}, {error})"


def calibration_check(known: ExactCeilings) -> Judgement:
    """Check that the exact decisions are right as often as their probabilities predict, so the inference is correct."""
    check = "ceiling: what can be known is right as often as predicted"
    measured = [line for kind in known.values for line in _calibration(known, kind)]
    faults = [text for text, gap, error in measured if abs(gap) > CALIBRATED * error + ROUNDING]
    unproven = f"; {known.n_unproven} best sequences are not proven and count as right" if known.n_unproven else ""
    if not all(math.isfinite(error) for _, _, error in measured):
        return Judgement(check=check, verdict="not run", detail=f"too few takes{unproven}")
    texts = faults or [text for text, _, _ in measured]
    return Judgement(check=check, verdict="fails" if faults else "holds", detail="; ".join(texts) + unproven)


def _calibration(known: ExactCeilings, kind: InputKind) -> list[tuple[str, float, float]]:
    """Return per binding metric a text, reached - expected in points, and its standard error, over all horizons."""
    takes, take = np.unique(np.array(known.take_ids, dtype=str), return_inverse=True)
    sums, counts = [], []
    for horizon in sorted(set(known.horizons.tolist())):
        here = known.horizons == horizon
        summed, counted = both_sums(known.values[kind][here], known.expected[kind][here], take[here], len(takes))
        sums.append(summed)
        counts.append(counted)
    reached, expected, error = paired(np.stack(sums, axis=2), np.stack(counts, axis=1))
    figures = []
    metrics = bounded_metrics(kind)
    for m in (metrics.index(metric) for metric in (*BINDING, *BINDING_AFTER_START) if metric in metrics):
        gap = float(reached[m] - expected[m])
        text = f"{kind}, {metrics[m]}: {reached[m]:.1f}, expected {expected[m]:.1f} ({gap:+.1f})"
        figures.append((text, gap, float(error[m])))
    return figures
