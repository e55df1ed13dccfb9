"""Candidates with probed videos -> the tables of ingest, built as columns: there are millions of windows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.annotation import (
    SIMULATED,
    CorpusCount,
    Details,
    Label,
    ScenarioLabel,
    Segment,
    SegmentDetails,
    Split,
    Take,
    Window,
)
from schemas.arrow import arrow_schema, table_of
from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import AnnotatedPoint, Candidate, CorpusReading, Fault, Published, count
from trajpilot_core.corpora.records.annotations import (
    SUBJECT_PHRASES,
    fit_to_video,
    label_rows,
    midpoint_intervals,
    normalise,
    run_numbers,
    span_intervals,
)

if TYPE_CHECKING:
    from trajpilot_core.video.probe import VideoProbe

TRAIN_TAKES, TEST_TAKES = "takes, train", "takes, test"
TRAIN_SEGMENTS, TEST_SEGMENTS = "segments, train", "segments, test"
LABELS, SCENARIOS = "labels", "scenarios"
"""`CorpusCount.what` of the counts that every corpus has; train includes dev, which the paper does not separate."""


@dataclass(frozen=True)
class CutTake:
    """A take and the K segments that are kept of it, in order of time."""

    candidate: Candidate
    probe: "VideoProbe"
    points: tuple[AnnotatedPoint, ...]
    labels: tuple[str, ...]
    label_ids: tuple[str, ...]
    start_s: NDArray[np.float64]
    """(K,) seconds."""
    end_s: NDArray[np.float64]
    """(K,) seconds."""
    run: NDArray[np.int64]
    """(K,) run of each segment, from 0."""


class Tables(NamedTuple):
    """What ingest writes."""

    takes: pa.Table
    segments: pa.Table
    labels: pa.Table
    windows: pa.Table


class Labelling:
    """Raw text -> (label, label id), each text normalised once."""

    def __init__(self, groups: dict[str, str], config: IngestConfig) -> None:
        self._groups = groups
        self._subjects = subject_phrases(config)
        self._known: dict[str, tuple[str, str]] = {}

    def of(self, point: AnnotatedPoint) -> tuple[str, str]:
        """Return label and label id of a point: those that the reader set, else of its text (empty: none is left)."""
        if point.label is not None and point.label_id is not None:
            return point.label, point.label_id
        if point.text not in self._known:
            label = normalise(point.text, self._subjects)
            self._known[point.text] = label, self._groups.get(label, label)
        return self._known[point.text]


def cut_take(
    candidate: Candidate, probe: "VideoProbe", label_of: Labelling, config: IngestConfig
) -> tuple[CutTake, list[Reject]]:
    """Cut a take's points into segments; a point that is lost after the filters ends its run.

    Each segment that is lost or was cut at the video's end is a reject, with the first reason that applies.
    """
    points = candidate.points
    anchor_s = np.array([point.time_s for point in points], np.float64)
    spans = [point.span_s for point in points if point.span_s is not None]
    assert len(spans) in (0, len(points)), "a candidate's points are all moments or all spans"
    if spans:
        interval_s = span_intervals(np.array(spans, np.float64), config.interval_cap_s)
    else:
        interval_s = midpoint_intervals(anchor_s, probe.duration_s, config.interval_cap_s)
    intervals = fit_to_video(anchor_s, *interval_s, probe.duration_s, config)
    named = [label_of.of(point) for point in points]
    is_unnamed = np.array([label == "" for label, _ in named], bool)
    is_kept = ~(is_unnamed | intervals.is_outside | intervals.is_empty)
    begins_group = [i > 0 and point.group != points[i - 1].group for i, point in enumerate(points)]
    kept, run = [int(i) for i in np.flatnonzero(is_kept)], run_numbers(is_kept, np.array(begins_group, bool))
    cut = CutTake(
        candidate,
        probe,
        tuple(points[i] for i in kept),
        tuple(named[i][0] for i in kept),
        tuple(named[i][1] for i in kept),
        intervals.start_s[kept],
        intervals.end_s[kept],
        run,
    )
    rejects = []
    for i in np.flatnonzero(is_unnamed | intervals.is_outside | intervals.is_empty | intervals.is_clipped):
        point = candidate.points[i]
        start_s, end_s = intervals.start_s[i], intervals.end_s[i]
        span = f"[{start_s:.3f}, {end_s:.3f}) s at {point.time_s:.3f} s, video of {probe.duration_s:.3f} s"
        if is_unnamed[i]:
            fault = Fault(RejectCode.LABEL_EMPTY, f"text is {point.text[:120]!r}")
        elif intervals.is_outside[i]:
            fault = Fault(RejectCode.SEGMENT_OUTSIDE, span)
        else:
            fault = Fault(RejectCode.SEGMENT_EMPTY if intervals.is_empty[i] else RejectCode.SEGMENT_CLIPPED, span)
        rejects.append(fault.reject(candidate.take.take_id, 1, candidate.source_file, point.offset))
    return cut, rejects


def subject_phrases(config: IngestConfig) -> tuple[str, ...]:
    """Return the phrases that are dropped from the front of a description: names of the wearer, configured subjects."""
    phrases = {normalise(subject, ()) for subject in config.subjects} - {""}
    return (*SUBJECT_PHRASES, *sorted(phrases - set(SUBJECT_PHRASES)))


def tables_of(
    cut: Sequence[CutTake], dev: Collection[str], config: IngestConfig, horizons: tuple[int, int] | None = None
) -> Tables:
    """Build the four tables from takes with at least one segment each, in order of take id.

    Args:
        dev: captures whose training takes are held out.
        horizons: shortest and longest window of this corpus; None: those of the settings.
    """
    splits: list[Split] = [
        "test" if c.candidate.released == "test" else "dev" if c.candidate.take.capture in dev else "train" for c in cut
    ]
    records = [
        {**vars(c.candidate.take), **vars(c.probe), "split": split} for c, split in zip(cut, splits, strict=True)
    ]
    segments = _segments(cut, splits)
    texts = [segments.column(name).to_pylist() for name in ("label_id", "label", "split")]
    take = np.repeat(np.arange(len(cut)), [len(t.points) for t in cut])
    return Tables(
        takes=table_of(Take, [Take.model_validate({n: r[n] for n in Take.model_fields}) for r in records]),
        segments=segments,
        labels=table_of(Label, label_rows(zip(*texts, strict=True))),
        windows=_windows(segments, take, horizons or (config.min_horizon, config.max_horizon)),
    )


def _segments(cut: Sequence[CutTake], splits: Sequence[Split]) -> pa.Table:
    ids = [c.candidate.take.take_id for c in cut]
    points = [point for c in cut for point in c.points]
    positions = [position for c in cut for position in range(len(c.points))]
    takes = [take for take, c in zip(ids, cut, strict=True) for _ in c.points]
    columns = {
        "segment_id": [f"{take}:{position:04d}" for take, position in zip(takes, positions, strict=True)],
        "take_id": takes,
        "split": [split for split, c in zip(splits, cut, strict=True) for _ in c.points],
        "position": positions,
        "run": np.concatenate([np.zeros(0, np.int64), *(c.run for c in cut)]),
        "start_s": np.concatenate([np.zeros(0), *(c.start_s for c in cut)]),
        "end_s": np.concatenate([np.zeros(0), *(c.end_s for c in cut)]),
        "anchor_s": [point.time_s for point in points],
        "raw_text": [point.text for point in points],
        "label": [label for c in cut for label in c.labels],
        "label_id": [label_id for c in cut for label_id in c.label_ids],
        "annotation_uid": [point.annotation_uid for point in points],
        "annotator": [point.annotator for point in points],
    }
    return pa.table(columns, schema=arrow_schema(Segment))


def _windows(segments: pa.Table, take: NDArray[np.int64], horizons: tuple[int, int]) -> pa.Table:
    """Build the windows of all horizons, in order of horizon, then take and first position."""
    run = segments.column("run").to_numpy()
    columns = {name: segments.column(name).combine_chunks() for name in ("segment_id", "take_id", "split", "position")}
    parts = [arrow_schema(Window).empty_table()]
    for horizon in range(horizons[0], horizons[1] + 1):
        rows = window_rows(take, run, horizon)
        first = pa.array(rows[:, 0])
        takes = columns["take_id"].take(first)
        position = pc.utf8_lpad(columns["position"].take(first).cast(pa.string()), width=4, padding="0")
        offsets = pa.array(np.arange(0, rows.size + 1, horizon, dtype=np.int32))
        of_horizon = [
            pc.binary_join_element_wise(takes, f"h{horizon}", position, ":"),
            takes,
            columns["split"].take(first),
            pa.array(np.full(len(rows), horizon, np.int64)),
            pa.ListArray.from_arrays(offsets, columns["segment_id"].take(pa.array(rows.reshape(-1)))),
        ]
        parts.append(pa.table(of_horizon, schema=arrow_schema(Window)))
    return pa.concat_tables(parts).combine_chunks()


def window_rows(take: NDArray[np.int64], run: NDArray[np.int64], horizon: int) -> NDArray[np.int64]:
    """Return (W, H) rows of the segments of all windows: consecutive, of one run of one take, with stride 1.

    Source: paper, 3.1.

    Args:
        take: (N,) number of the take of each segment; the rows of a take are adjacent, in order of position.
        run: (N,) run of each segment within its take.
    """
    first, last = slice(None, max(0, len(take) - horizon + 1)), slice(horizon - 1, None)
    starts = np.flatnonzero((take[first] == take[last]) & (run[first] == run[last]))
    return starts[:, None].astype(np.int64) + np.arange(horizon)


def details_of(cut: Sequence[CutTake], segments: pa.Table) -> pa.Table:
    """Return the details of every segment, in the order of `segments`, which was built from the takes in `cut`."""
    empty, schema = Details(), arrow_schema(SegmentDetails)
    rows = [point.details or empty for take in cut for point in take.points]
    columns = {name: segments.column(name).combine_chunks() for name in ("segment_id", "take_id")}
    columns |= {name: [getattr(row, name) for row in rows] for name in Details.model_fields}
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def scenario_labels_of(tables: Tables) -> pa.Table:
    """Return one row per scenario and label that occurs in it, in order; its mask allows those seen in training."""
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
    rows = []
    for (scenario, label_id), n in sorted(counts.items()):
        n_of = {f"n_{split}": n.get(split, 0) for split in ("train", "dev", "test")}
        rows.append(ScenarioLabel(scenario=scenario, label_id=label_id, is_allowed=n_of["n_train"] > 0, **n_of))
    return table_of(ScenarioLabel, rows)


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
