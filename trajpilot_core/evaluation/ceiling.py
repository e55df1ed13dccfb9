"""Exact ceilings: the best possible score for a superset of what a row of the tables sees.

Exact inference on the simulated world's own generative model; a recorded corpus has none, nor has a layout that does
not show the steps of its world. Shapes: T takes, H horizons, N windows, M metrics in the order of
`bounded_metrics`: a row that is given no goal is also bounded after Start.
Source: docs/decisions/ceiling.md, docs/decisions/classes.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.arrow import arrow_schema, table_of
from schemas.results import Ceiling, TakeScore
from schemas.world import WorldConfig
from trajpilot_core.arrays import Array
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.bootstrap import MIN_CLUSTERS, cluster_sums
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
CEILING_SEED = -1
"""Seed of the ceilings' take scores: nothing is random."""
DIGITS = 9
SCORES = arrow_schema(TakeScore)


@dataclass(frozen=True)
class ExactCeilings:
    """Exact decisions for N windows, for every kind of input of rows."""

    window_ids: tuple[str, ...]
    take_ids: tuple[str, ...]
    """(N,) take of every window."""
    horizons: NDArray[np.int64]
    """(N,)."""
    values: Mapping[InputKind, Array]
    """(N, M) percent, M metrics of the kind: scores of the optimal decisions. A sequence that is not proven the best
    counts as right."""
    expected: Mapping[InputKind, Array]
    """(N, M) percent: their expected scores, by their own probabilities."""
    n_unproven: int
    """Number of sequences that are not proven the best."""
    truth: tuple[tuple[str, ...], ...]
    """(N,) true answers of every window, label ids or class ids; predictions of others are not comparable."""


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
    """Compute the exact decisions for windows of any split.

    Args:
        classes: label id -> class id, where answers are classes.

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
    truth = true_answers(segments, windows, classes or {})
    return ExactCeilings(ids, takes, horizons, values, expected, n_unproven, truth)


def true_answers(segments: pa.Table, windows: pa.Table, classes: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return for every window the label ids of its segments, or their classes, where `classes` names them."""
    labels = zip(segments["segment_id"].to_pylist(), segments["label_id"].to_pylist(), strict=True)
    answer = {segment: classes.get(label, label) for segment, label in labels}
    return tuple(tuple(answer[segment] for segment in row) for row in windows["segment_ids"].to_pylist())


def known_of_predictions(
    world: World,
    predictions: Predictions,
    segments: pa.Table,
    windows: pa.Table,
    classes: Mapping[str, str] | None = None,
) -> ExactCeilings:
    """Compute the exact decisions for the windows that were predicted.

    Args:
        windows: the windows table; windows that were not predicted are ignored.
        classes: label id -> class id, where answers are classes.
    """
    scored = sorted({index for block in predictions.blocks for index in block.windows.tolist()})
    ids = pa.array([predictions.window_ids[index] for index in scored], pa.string())
    bounds = {method(variant).ceiling for variant in predictions.variants()}
    kinds = (*KINDS, *(kind for kind in KINDS_WITHOUT_GOAL if kind in bounds))
    return known_values(world, segments, windows.filter(pc.is_in(windows["window_id"], value_set=ids)), classes, kinds)


def ceiling_scores(known: ExactCeilings) -> pa.Table:
    """Return the take scores of the ceilings: rows `ceiling/no_traj`, `ceiling/endpoint_traj`, `ceiling/oracle`, ..."""
    names, take = np.unique(np.array(known.take_ids, dtype=str), return_inverse=True)
    parts = []
    for kind in known.values:
        for horizon in sorted(set(known.horizons.tolist())):
            here = known.horizons == horizon
            sums, counts = cluster_sums(known.values[kind][here], take[here], len(names))
            row, metrics = f"ceiling/{kind}", bounded_metrics(kind)
            parts.append(take_scores(row, CEILING_SEED, horizon, names.tolist(), sums, counts, metrics))
    return pa.concat_tables([SCORES.empty_table(), *parts])


def row_scores(predictions: Predictions) -> pa.Table:
    """Return the take scores (columns of `TakeScore`) of every row and seed of the predictions."""
    parts = []
    for block in predictions.blocks:
        metrics = bounded_metrics(method(block.variant).ceiling)
        values = window_values(block.labels, block.decoded, block.rankings, metrics)
        sums, counts = cluster_sums(values, block.takes, len(predictions.take_ids))
        takes = predictions.take_ids
        parts.append(take_scores(block.variant, block.seed, block.horizon, takes, sums, counts, metrics))
    return pa.concat_tables([SCORES.empty_table(), *parts])


def take_scores(
    variant: str, seed: int, horizon: int, takes: Sequence[str], sums: Array, counts: Array, metrics: Sequence[str]
) -> pa.Table:
    """Return one row per take with windows and per metric, from (T, M) sums and (T,) counts."""
    scored = np.flatnonzero(counts)
    n = len(scored) * len(metrics)
    columns = {
        "variant": pa.array([variant] * n, pa.string()),
        "seed": np.full(n, seed),
        "take_id": pa.array(list(takes), pa.string()).take(pa.array(np.repeat(scored, len(metrics)))),
        "horizon": np.full(n, horizon),
        "metric": pa.array(list(metrics) * len(scored), pa.string()),
        "n_windows": np.repeat(counts[scored].astype(np.int64), len(metrics)),
        "total": np.round(sums[scored], DIGITS).ravel(),
    }
    return pa.table({name: columns[name] for name in SCORES.names}, schema=SCORES)


def compare(predictions: Predictions, known: ExactCeilings) -> list[Ceiling]:
    """Compare every row, averaged over its seeds, with its ceiling on the same windows.

    Returns:
        Rows per variant, then horizon (ascending, the plain mean over horizons last), then metric.

    Raises:
        InputError: a predicted window has no ceiling, or its true answers differ: labels on one side and classes on the
            other.
        MethodError: a predicted row is not declared, so its bound is unknown.
    """
    place = {window: i for i, window in enumerate(known.window_ids)}
    row_of = np.array([place.get(window, -1) for window in predictions.window_ids])
    scored = np.unique(np.concatenate([block.windows for block in predictions.blocks]))
    if (row_of[scored] < 0).any():
        window = predictions.window_ids[scored[row_of[scored] < 0][0]]
        raise InputError(f"window {window} was predicted, but is not in the windows table; run the pipeline again")
    code = {name: i for i, name in enumerate(predictions.label_ids)}
    truth = np.full((len(known.truth), max(map(len, known.truth), default=0)), -1)
    for i, labels in enumerate(known.truth):
        truth[i, : len(labels)] = [code.get(label, -1) for label in labels]
    for block in predictions.blocks:  # a ceiling over labels is none over classes, which are right more often
        wrong = np.argwhere(truth[row_of[block.windows], : block.horizon] != block.labels)
        if len(wrong):
            at, position = wrong[0].tolist()
            there = known.truth[row_of[block.windows[at]]][position]
            raise InputError(
                f"window {predictions.window_ids[block.windows[at]]}, position {position}: {block.variant} was "
                f"scored against {predictions.label_ids[block.labels[at, position]]!r}, its ceiling against "
                f"{there!r}: one is over labels and the other over classes; run evaluation again"
            )
    rows: list[Ceiling] = []
    for variant in predictions.variants():
        kind = method(variant).ceiling
        if kind is not None:
            rows += _compare_row(predictions, variant, known.values[kind], row_of, bounded_metrics(kind))
    return rows


def _compare_row(
    predictions: Predictions, variant: str, ceilings: Array, row_of: NDArray[np.int64], metrics: tuple[str, ...]
) -> list[Ceiling]:
    """Compare one row; `row_of` maps windows of the predictions to rows of the (N, M) ceilings."""
    shape = (2, len(predictions.take_ids), len(predictions.horizons()), len(metrics))
    sums, counts = np.zeros(shape), np.zeros(shape[1:3])
    for block in predictions.of(variant):
        at = predictions.horizons().index(block.horizon)
        own = window_values(block.labels, block.decoded, block.rankings, metrics)
        values = np.concatenate([own, ceilings[row_of[block.windows]]], axis=1)
        summed, counted = cluster_sums(values, block.takes, shape[1])
        sums[:, :, at] += np.moveaxis(summed.reshape(shape[1], 2, -1), 1, 0)
        counts[:, at] += counted
    scored = counts.sum(axis=0) > 0
    horizons = [horizon for horizon, is_scored in zip(predictions.horizons(), scored, strict=True) if is_scored]
    n_seeds = max(1, len(predictions.seeds(variant)))
    sums, counts, rows = sums[:, :, scored], counts[:, scored], []
    parts = [([i], horizon) for i, horizon in enumerate(horizons)] + [(list(range(len(horizons))), None)]
    for columns, horizon in parts:
        value, ceiling, error = paired(sums[:, :, columns], counts[:, columns])
        for m, metric in enumerate(metrics):
            difference = round(float(value[m] - ceiling[m]), DIGITS)
            rows.append(
                Ceiling(
                    variant=variant,
                    horizon=horizon,
                    metric=metric,
                    value=round(float(value[m]), DIGITS),
                    ceiling=round(float(ceiling[m]), DIGITS),
                    difference=difference,
                    standard_error=round(float(error[m]), DIGITS) if math.isfinite(error[m]) else math.inf,
                    n_takes=int((counts[:, columns].sum(axis=1) > 0).sum()),
                    n_windows=round(float(counts[:, columns].sum()) / n_seeds),
                    binding=horizon is None and metric in (*BINDING, *BINDING_AFTER_START),
                    above=bool(difference > 0 and difference > ERRORS * error[m]),
                )
            )
    return rows


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


def score_tables(
    scores: pa.Table, known: ExactCeilings | str | None, ceilings: Sequence[Ceiling]
) -> dict[str, pa.Table]:
    """Return the tables `take_scores` (rows, then ceilings, if there are any) and `ceilings`."""
    whole = pa.concat_tables([scores, ceiling_scores(known)]) if isinstance(known, ExactCeilings) else scores
    return {"take_scores": whole, "ceilings": table_of(Ceiling, ceilings)}
