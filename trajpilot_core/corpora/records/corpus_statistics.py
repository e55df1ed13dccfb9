"""Further tables of ingest: details of segments, labels by scenario, and counts next to those of the paper."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.annotation import SIMULATED, CorpusCount, Details, ScenarioLabel, SegmentDetails
from schemas.arrow import arrow_schema, table_of
from trajpilot_core.corpora.base import CorpusReading, Published, count
from trajpilot_core.corpora.records.tables import CutTake, Tables

TRAIN_TAKES, TEST_TAKES = "takes, train", "takes, test"
TRAIN_SEGMENTS, TEST_SEGMENTS = "segments, train", "segments, test"
LABELS, SCENARIOS = "labels", "scenarios"
"""`CorpusCount.what` of the counts that every corpus has; train includes dev, which the paper does not separate."""


def details_of(cut: Sequence[CutTake], segments: pa.Table) -> pa.Table:
    """Return the details of every segment, in the order of `segments`.

    Args:
        cut: the takes that `segments` was built from, in its order.
    """
    empty = Details()
    rows = [point.details or empty for take in cut for point in take.points]
    ids = [segments.column(name).combine_chunks() for name in ("segment_id", "take_id")]
    known = {name: [getattr(row, name) for row in rows] for name in Details.model_fields}
    columns = dict(zip(("segment_id", "take_id"), ids, strict=True)) | known
    schema = arrow_schema(SegmentDetails)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def scenario_labels_of(tables: Tables, allowed: Mapping[str, frozenset[str]] | None) -> pa.Table:
    """Return one row per scenario and label that occurs or is allowed in it, in order.

    Args:
        allowed: scenario -> label ids that its mask allows; None: those seen there in training. A label without
            segments is left out, because it has no row in `labels`.
    """
    counts = _scenario_counts(tables)
    known = set(tables.labels.column("label_id").to_pylist())
    for scenario in set(tables.takes.column("scenario").to_pylist()) if allowed is not None else ():
        for label_id in (allowed or {}).get(scenario, frozenset()) & known:
            counts.setdefault((scenario, label_id), {})
    rows = []
    for (scenario, label_id), n in sorted(counts.items()):
        is_allowed = n.get("train", 0) > 0 if allowed is None else label_id in allowed.get(scenario, frozenset())
        n_of = {f"n_{split}": n.get(split, 0) for split in ("train", "dev", "test")}
        rows.append(ScenarioLabel(scenario=scenario, label_id=label_id, is_allowed=is_allowed, **n_of))
    return table_of(ScenarioLabel, rows)


def _scenario_counts(tables: Tables) -> dict[tuple[str, str], dict[str, int]]:
    takes, segments = tables.takes, tables.segments
    row_of_take = pc.index_in(segments.column("take_id"), value_set=takes.column("take_id").combine_chunks())
    columns = {name: segments.column(name) for name in ("label_id", "split")}
    grouped = (
        pa.table({"scenario": takes.column("scenario").take(row_of_take), **columns})
        .group_by(["scenario", "label_id", "split"])
        .aggregate([([], "count_all")])
    )
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in grouped.to_pylist():
        counts.setdefault((row["scenario"], row["label_id"]), {})[row["split"]] = row["count_all"]
    return counts


def counts_of(tables: Tables, reading: CorpusReading, published: Mapping[str, Published]) -> list[CorpusCount]:
    """Return the counts in a fixed order: those that every corpus has, then those of the reader.

    The paper counts real recordings, so counts of simulated takes have no paper value.
    """
    is_real = SIMULATED not in tables.takes.column("corpus").to_pylist()
    stated = {what: (known.count, known.setting) for what, known in published.items()}
    takes, segments = (table.column("split").to_pylist() for table in (tables.takes, tables.segments))
    common = {
        TRAIN_TAKES: len(takes) - takes.count("test"),
        TEST_TAKES: takes.count("test"),
        TRAIN_SEGMENTS: len(segments) - segments.count("test"),
        TEST_SEGMENTS: segments.count("test"),
        LABELS: tables.labels.num_rows,
        SCENARIOS: len(set(tables.takes.column("scenario").to_pylist())),
    }
    rows = [count(what, ours, *stated.get(what, (None, ""))) for what, ours in common.items()]
    return [row if is_real else row.replace(paper=None) for row in (*rows, *reading.counts)]
