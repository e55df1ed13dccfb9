"""Ego-Exo4D keysteps -> candidate takes with annotated segments of a closed vocabulary.

Source: docs.ego-exo4d-data.org, page Keysteps; decisions: docs/decisions/corpora.md. The counted unit is the
segment. A label is its `step_unique_id`: `step_id` is unique within one scenario only.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import AnnotatedPoint, Candidate, CorpusReading, Fault, Published, by_start, span_point
from trajpilot_core.corpora.egoexo4d.release import DOWNLOAD, Annotated, AnnotationKind, list_release, read_release
from trajpilot_core.corpora.egoexo4d.takes import CORPUS
from trajpilot_core.corpora.formats.strict import as_bool, as_id, as_object, as_span, as_text, shown
from trajpilot_core.corpora.records.candidates import drop_rare, overlap_fault, overlaps
from trajpilot_core.corpora.records.tables import LABELS, SCENARIOS, TEST_SEGMENTS, TRAIN_SEGMENTS
from trajpilot_core.corpora.released import OMNIVORE_VIDEO
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.store.corpus_files import Corpus

KEYSTEP_FILE = "annotations/keystep_{}.json"
FILTERS = "ingest.keystep: leaves_only, essential_only, skip_scenarios, min_label_train"
PUBLISHED = {
    TRAIN_SEGMENTS: Published(13819, FILTERS),
    TEST_SEGMENTS: Published(4272, FILTERS),
    LABELS: Published(375, FILTERS),
    SCENARIOS: Published(16, "ingest.keystep.skip_scenarios"),
}
"""Source: paper, appendix on data sets."""
MALFORMED = RejectCode.RECORD_MALFORMED


def count_segments(value: object) -> int:
    """Return how many segments a take's value contains, even if the rest of it is unusable."""
    segments = value.get("segments") if isinstance(value, dict) else None
    return len(segments) if isinstance(segments, list) else 0


class _Files:
    """Reads takes, and collects their scenarios."""

    def __init__(self) -> None:
        self.scenarios: set[str] = set()

    def read(self, annotated: Annotated, config: IngestConfig) -> tuple[Candidate | None, list[Reject]]:
        """Return the take with its segments and the scenario that the keysteps name."""
        take, path = annotated.take.take_id, annotated.path
        fields = as_object(annotated.value)
        segments = fields.get("segments") if fields is not None else None
        fault = _take_fault(annotated, fields, segments)
        if fault is not None or fields is None or not isinstance(segments, list):
            return None, [fault.reject(take, count_segments(annotated.value), path)] if fault else []
        scenario = as_text(fields.get("scenario")) or annotated.take.scenario
        leaf_of: dict[str, bool] = {}
        nodes = as_object((as_object(annotated.document.get("taxonomy")) or {}).get(scenario)) or {}
        for node in map(as_object, nodes.values()):
            uid, is_leaf = as_id((node or {}).get("unique_id")), as_bool((node or {}).get("is_leafnode"))
            if uid is not None and is_leaf is not None:
                leaf_of[uid] = leaf_of.get(uid, False) or is_leaf
        if scenario in config.keystep.skip_scenarios:
            fault = Fault(RejectCode.FILTERED, f"scenario {shown(scenario)} is in ingest.keystep.skip_scenarios")
            return None, [fault.reject(take, len(segments), path)]
        self.scenarios.add(scenario)
        points, rejects = _points(annotated, fields, segments, leaf_of, config)
        if not points:
            none = Fault(RejectCode.UNLABELLED, "no segment can be used")
            return None, [*rejects, none.reject(take, 0, path)]
        return Candidate(replace(annotated.take, scenario=scenario), annotated.released, points, path), rejects


def _take_fault(annotated: Annotated, fields: Mapping[str, object] | None, segments: object) -> Fault | None:
    if fields is None:
        return Fault(MALFORMED, f"expected an object with segments, found {shown(annotated.value)}")
    if not isinstance(segments, list):
        return Fault(MALFORMED, f"`segments` is {shown(segments)}, expected a list")
    uid = fields.get("take_uid", annotated.take.uid)
    return None if uid == annotated.take.uid else Fault(MALFORMED, f"its record has the take_uid {shown(uid)}")


def _points(
    annotated: Annotated,
    fields: Mapping[str, object],
    segments: list[object],
    leaf_of: Mapping[str, bool],
    config: IngestConfig,
) -> tuple[tuple[AnnotatedPoint, ...], list[Reject]]:
    """Return the segments in order of start, and the rejects of the others."""
    meta = as_object(fields.get("annotation_meta", fields.get("annotation_metadata"))) or {}
    uid, annotator = as_id(meta.get("annotation_uid")) or "", as_id(meta.get("annotator_id")) or ""
    names = as_object(annotated.document.get("vocabulary")) or {}
    take, path = annotated.take.take_id, annotated.path
    points: list[AnnotatedPoint] = []
    rejects: list[Reject] = []
    seen: set[tuple[object, ...]] = set()
    for index, segment in enumerate(segments):
        read = _segment(segment, index, names, leaf_of, config)
        if isinstance(read, AnnotatedPoint) and (read.span_s, read.label_id) in seen:
            read = Fault(RejectCode.DUPLICATE, f"label {read.label_id} at {read.span_s} s occurs before")
        if isinstance(read, Fault):
            rejects.append(read.reject(take, 1, path, index))
        else:
            seen.add((read.span_s, read.label_id))
            points.append(read._replace(annotation_uid=uid, annotator=annotator))
    ordered = by_start(points)
    if any(a.span_s and b.span_s and a.span_s > b.span_s for a, b in pairwise(points)):
        moved = Fault(RejectCode.TS_REORDERED, f"{len(points)} segments were sorted by start")
        rejects.append(moved.reject(take, 0, path))
    if overlaps(ordered):
        rejects.append(overlap_fault(overlaps(ordered)).reject(take, 0, path))
    return ordered, rejects


def _segment(
    value: object, index: int, names: Mapping[str, object], leaf_of: Mapping[str, bool], config: IngestConfig
) -> AnnotatedPoint | Fault:
    """Return a segment, or why it cannot be used; unknown flags exclude nothing."""
    fields = as_object(value)
    if fields is None or "start_time" not in fields or "end_time" not in fields:
        return Fault(MALFORMED, f"a segment lacks start_time or end_time: {shown(value)}")
    uid = as_id(fields.get("step_unique_id"))
    if uid is None:
        return Fault(MALFORMED, f"step_unique_id is {shown(fields.get('step_unique_id'))}")
    span_s = as_span(fields["start_time"], fields["end_time"])
    if span_s is None:
        return Fault(RejectCode.TS_INVALID, f"times are {shown(fields['start_time'])} and {shown(fields['end_time'])}")
    step_name = as_text(fields.get("step_name")) or ""
    name = as_text(names.get(uid)) or step_name
    if config.keystep.leaves_only and leaf_of.get(uid) is False:
        return Fault(RejectCode.FILTERED, f"label {uid} is no leaf (ingest.keystep.leaves_only)")
    if config.keystep.essential_only and as_bool(fields.get("is_essential")) is False:
        return Fault(RejectCode.FILTERED, "it is not essential (ingest.keystep.essential_only)")
    return span_point(span_s, step_name or name, index, label=name.strip(), label_id=uid)


def _kind(files: _Files) -> AnnotationKind:
    return AnnotationKind(KEYSTEP_FILE, "keysteps", count_segments, files.read)


def read_keystep(corpus: Corpus, config: IngestConfig) -> CorpusReading:
    """Read the keysteps of the splits that are used.

    Raises InputError: takes.json, splits.json or an annotation file cannot be used.
    """
    files = _Files()
    release = read_release(corpus, config, _kind(files))
    reading = replace(release, scenarios=frozenset(files.scenarios))
    return drop_rare(reading, config.keystep.min_label_train)


EGOEXO4D_KEYSTEP = CorpusSpec(
    name="egoexo4d_keystep",
    title="Ego-Exo4D, keysteps",
    ids=CORPUS,
    read=read_keystep,
    listing=partial(list_release, kind=_kind(_Files())),
    published=PUBLISHED,
    unit="keysteps",
    download=DOWNLOAD,
    layout="keystep",
    released=(OMNIVORE_VIDEO,),
)
