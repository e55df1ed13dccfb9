"""Comparison of two runs: their settings and metrics, paired on the takes that both scored.

Shapes: T takes, H horizons, M metrics. Intervals are over takes: docs/decisions/metrics.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.artifacts import Manifest
from schemas.config import EvaluationConfig
from trajpilot_core.arrays import Array
from trajpilot_core.engine.planning.staleness import changed_settings
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation import bootstrap
from trajpilot_core.metrics import with_ceiling
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.locations import resolved
from trajpilot_core.store.manifest import current_manifest, read_manifest
from trajpilot_core.store.reading import keys_of, made_from, read_entry_table

EVALUATION, INGEST = "evaluation", "ingest"
SCORES = "take_scores"
OF_RUN = ("report: config_digest", "report: corpus", "report: is_closed", "report: heads")
"""Prefixes of settings of the report that repeat others."""


@dataclass(frozen=True)
class Side:
    """One of two runs: an evaluation and everything that it was made from."""

    name: str
    folder: Folder
    outputs: Mapping[str, Manifest]
    """Stage -> output; stages whose output is gone are absent."""

    def table(self, stage: str, entry: str, columns: tuple[str, ...] | None = None) -> pa.Table | None:
        """Read a table, None where it is gone."""
        manifest = self.outputs.get(stage)
        if manifest is None or entry not in manifest.entries:
            return None
        return read_entry_table(self.folder, manifest, entry, columns)


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
    of_one: tuple[str, ...]
    """Rows and horizons that only one of them has."""


def pair(first: pa.Table, second: pa.Table, cfg: EvaluationConfig, apart: Collection[str] = ()) -> Pairing:
    """Compare two tables of `TakeScore` row by row; `apart`: takes whose windows differ, even if they are as many."""
    tables = [first, second]
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
            n_takes = int((counts > 0).sum(axis=0).min())
            low, high = bootstrap.ends_of(draws, n_takes, cfg.confidence)
            points = [bootstrap.pooled(values.sum(axis=0), counts.sum(axis=0))[-2] for values in sums]
            for m, metric in enumerate(with_ceiling()):
                before, after = float(points[0][m]), float(points[1][m])
                gain, ends = float(points[1][m] - points[0][m]), (float(low[m]), float(high[m]))
                row = PairedMetric(name, metric, before, after, gain, *ends, n_takes, int(counts.sum()))
                metrics.append(row)
    others = tuple(take for take, is_common in zip(takes, common.tolist(), strict=True) if not (is_common and scored))
    of_one = (*sorted(rows[0] ^ rows[1]), *(f"H={horizon}" for horizon in sorted(ranges[0] ^ ranges[1])))
    return Pairing(tuple(metrics), len(takes) - len(others), others, of_one)


def scores_of(table: pa.Table, variant: str, takes: Sequence[str], horizons: Sequence[int]) -> tuple[Array, Array]:
    """Return (T, H, M) sums over windows and (T, H) windows of one row, averaged over seeds; zero where it has none.

    `table` has the columns of `TakeScore`; `takes` (T) and `horizons` (H) are sorted.
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


def open_side(name: str) -> Side:
    """Open a run: a root (its current evaluation), or `ROOT@KEY` (an earlier one, by the beginning of its key).

    Raises:
        InputError: there is no evaluation, or the key matches none or several.
        StoreError: the store is damaged.
    """
    root, key = name, ""
    if "://" not in name and not Path(name).is_dir():
        root, at, key = name.rpartition("@")
        if not at or not key or not Path(root).is_dir():
            raise InputError(f"{name} is not a folder; give the root of a run, or ROOT@KEY")
    folder = open_folder(root if "://" in root else str(resolved(root)))
    if key:
        known = keys_of(folder, EVALUATION)
        keys = [candidate for candidate in known if candidate.startswith(key)]
        if len(keys) != 1:
            raise InputError(
                f"{name}: {len(keys)} evaluations below {root} match {key!r}, exactly one must; known evaluations: "
                f"{', '.join(key[:8] for key in known) or 'none'} (`gc` removes outdated ones)"
            )
        evaluation = read_manifest(folder, EVALUATION, keys[0])
    else:
        evaluation = current_manifest(folder, EVALUATION)
    if evaluation is None:
        raise InputError(f"{name} has no evaluation; give the --root of a run that has evaluated its models")
    outputs = made_from(folder, [evaluation])
    return Side(name, folder, {output.stage: output for output in reversed(outputs)})


def settings(first: Side, second: Side, stages: Mapping[str, AnyStage]) -> dict[str, tuple[str, str]]:
    """Return the settings, code versions and libraries that differ between two runs: name -> (first, second)."""
    different: dict[str, tuple[str, str]] = {}
    for stage in stages:
        one, other = first.outputs.get(stage), second.outputs.get(stage)
        if one is None or other is None:
            continue
        changed = changed_settings(one.config, other.config)
        named = {f"{stage}: {name}": pair_ for name, pair_ in changed.items()}
        different |= {name: pair_ for name, pair_ in named.items() if not name.startswith(OF_RUN)}
        if one.version != other.version:
            different[f"{stage}: code version"] = (str(one.version), str(other.version))
        for library in sorted({*one.libraries, *other.libraries}):
            versions = one.libraries.get(library, "-"), other.libraries.get(library, "-")
            if versions[0] != versions[1]:
                different[f"library {library}"] = versions
    return different


def takes_of_rows(first: pa.Table, second: pa.Table) -> set[str]:
    """Return the takes with a row that only one of two tables has; both have the column `take_id`."""
    rows = [{(row["take_id"], repr(row)) for row in table.to_pylist()} for table in (first, second)]
    return {take for take, _ in rows[0] ^ rows[1]}


def metrics(first: Side, second: Side) -> Pairing:
    """Compare the metrics of the two runs on the takes that both scored on the same windows and labels.

    Raises:
        InputError: a run has no scores by take, the corpora differ, or the labels or classes of the answers do.
    """
    corpora = [corpora_of(side) for side in (first, second)]
    if all(corpora) and corpora[0] != corpora[1]:
        names = " and ".join(", ".join(sorted(corpus)) for corpus in corpora)
        raise InputError(f"{first.name} and {second.name} are of different corpora ({names}), so nothing can be paired")
    answers = [answers_of(side) for side in (first, second)]
    if answers[0] != answers[1]:
        spaces = [f"{len(set(of.values())):,} {kind} of {len(of):,} labels" for kind, of in answers]
        raise InputError(
            f"{first.name} answers with {spaces[0]}, {second.name} with {spaces[1]}, and they are not the same: these "
            "are different tasks, so nothing is paired; give both the same annotations, settings of ingest and "
            "evaluation.vocabulary, run both, then compare again"
        )
    tables = [side.table(EVALUATION, SCORES) for side in (first, second)]
    if tables[0] is None or tables[1] is None:
        raise InputError(f"an evaluation has no {SCORES}: it is of an older version; run it again")
    read = [side.table(INGEST, name) for name in ("segments", "windows") for side in (first, second)]
    known = [table for table in read if table is not None]
    apart: set[str] = set()  # takes whose segments, labels or windows differ; unknown where tables are gone
    if len(known) == len(read):
        both = pa.array(set.intersection(*(set(table["horizon"].to_pylist()) for table in known[2:])), pa.int64())
        windows = [table.filter(pc.is_in(table["horizon"], value_set=both)) for table in known[2:]]
        apart = takes_of_rows(*known[:2]) | takes_of_rows(*windows)
    return pair(tables[0], tables[1], EvaluationConfig(), apart)


def answers_of(side: Side) -> tuple[str, dict[str, str]]:
    """Return the kind of the answers of a run, and label id -> its right answer; empty where the tables are gone."""
    kind = str(side.outputs[EVALUATION].config.get("vocabulary", EvaluationConfig().vocabulary))
    mapped = side.table(INGEST, "label_classes", ("label_id", "class_id"))
    if mapped is None:
        return kind, {}
    right = mapped["class_id" if kind == "classes" else "label_id"].to_pylist()
    return kind, dict(zip(mapped["label_id"].to_pylist(), right, strict=True))


def corpora_of(side: Side) -> set[str]:
    """Return the corpora of a run's takes; empty where the takes are gone."""
    table = side.table(INGEST, "takes", ("corpus",))
    return set() if table is None else set(table["corpus"].to_pylist())
