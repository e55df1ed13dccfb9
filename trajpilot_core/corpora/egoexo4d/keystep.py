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
from trajpilot_core.corpora.formats.strict import as_bool, as_id, as_list, as_object, as_span, as_text, n_items, shown
from trajpilot_core.corpora.records.candidates import drop_rare, overlap_fault
from trajpilot_core.corpora.records.tables import LABELS, SCENARIOS, TEST_SEGMENTS, TRAIN_SEGMENTS
from trajpilot_core.corpora.released import OMNIVORE_VIDEO
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.store.corpus_files import Corpus

KEYSTEP_FILE = "annotations/keystep_{}.json"
FILTERS = "ingest.keystep: leaves_only, essential_only, skip_scenarios, min_label_train"
MALFORMED = RejectCode.RECORD_MALFORMED


def _read(annotated: Annotated, config: IngestConfig, scenarios: set[str]) -> tuple[Candidate | None, list[Reject]]:
    """Return the take with its segments and the scenario that the keysteps name, which is added to `scenarios`."""
    take, path, fields = annotated.take, annotated.path, as_object(annotated.value)
    uid, scenario = fields.get("take_uid", take.uid), as_text(fields.get("scenario")) or take.scenario
    fault = None
    if not isinstance(annotated.value, dict):
        fault = Fault(MALFORMED, f"expected an object with segments, found {shown(annotated.value)}")
    elif not isinstance(fields.get("segments"), list):
        fault = Fault(MALFORMED, f"`segments` is {shown(fields.get('segments'))}, expected a list")
    elif uid != take.uid:
        fault = Fault(MALFORMED, f"its record has the take_uid {shown(uid)}")
    elif scenario in config.keystep.skip_scenarios:
        fault = Fault(RejectCode.FILTERED, f"scenario {shown(scenario)} is in ingest.keystep.skip_scenarios")
    if fault is not None:
        return None, [fault.reject(take.take_id, n_items(fields, "segments"), path)]
    scenarios.add(scenario)
    points, rejects = _points(annotated, scenario, config)
    if not points:
        none = Fault(RejectCode.UNLABELLED, "no segment can be used")
        return None, [*rejects, none.reject(take.take_id, 0, path)]
    return Candidate(replace(take, scenario=scenario), annotated.released, points, path), rejects


def _points(
    annotated: Annotated, scenario: str, config: IngestConfig
) -> tuple[tuple[AnnotatedPoint, ...], list[Reject]]:
    """Return the segments in order of start, and the rejects of the others."""
    fields, names = as_object(annotated.value), as_object(annotated.document.get("vocabulary"))
    leaf_of: dict[str, bool] = {}
    for node in map(as_object, as_object(as_object(annotated.document.get("taxonomy")).get(scenario)).values()):
        uid, is_leaf = as_id(node.get("unique_id")), as_bool(node.get("is_leafnode"))
        if uid is not None and is_leaf is not None:
            leaf_of[uid] = leaf_of.get(uid, False) or is_leaf
    meta = as_object(fields.get("annotation_meta", fields.get("annotation_metadata")))
    annotation_uid, annotator = as_id(meta.get("annotation_uid")) or "", as_id(meta.get("annotator_id")) or ""
    take, path = annotated.take.take_id, annotated.path
    points: list[AnnotatedPoint] = []
    rejects: list[Reject] = []
    seen: set[tuple[object, ...]] = set()
    for index, segment in enumerate(as_list(fields.get("segments"))):
        read = _segment(segment, index, names, leaf_of, config)
        if isinstance(read, AnnotatedPoint) and (read.span_s, read.label_id) in seen:
            read = Fault(RejectCode.DUPLICATE, f"label {read.label_id} at {read.span_s} s occurs before")
        if isinstance(read, Fault):
            rejects.append(read.reject(take, 1, path, index))
        else:
            seen.add((read.span_s, read.label_id))
            points.append(read._replace(annotation_uid=annotation_uid, annotator=annotator))
    ordered = by_start(points)
    if any(a.span_s and b.span_s and a.span_s > b.span_s for a, b in pairwise(points)):
        moved = Fault(RejectCode.TS_REORDERED, f"{len(points)} segments were sorted by start")
        rejects.append(moved.reject(take, 0, path))
    overlap = overlap_fault(ordered)
    if overlap is not None:
        rejects.append(overlap.reject(take, 0, path))
    return ordered, rejects


def _segment(
    value: object, index: int, names: Mapping[str, object], leaf_of: Mapping[str, bool], config: IngestConfig
) -> AnnotatedPoint | Fault:
    """Return a segment, or why it cannot be used; unknown flags exclude nothing."""
    fields = as_object(value)
    if "start_time" not in fields or "end_time" not in fields:
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


def read_keystep(corpus: Corpus, config: IngestConfig) -> CorpusReading:
    """Read the keysteps of the splits that are used.

    Raises InputError: takes.json, splits.json or an annotation file cannot be used.
    """
    scenarios: set[str] = set()
    n_segments = partial(n_items, name="segments")
    kind = AnnotationKind(KEYSTEP_FILE, "keysteps", n_segments, partial(_read, scenarios=scenarios))
    reading = replace(read_release(corpus, config, kind), scenarios=frozenset(scenarios))
    return drop_rare(reading, config.keystep.min_label_train)


EGOEXO4D_KEYSTEP = CorpusSpec(
    name="egoexo4d_keystep",
    title="Ego-Exo4D, keysteps",
    ids=CORPUS,
    read=read_keystep,
    listing=partial(list_release, file=KEYSTEP_FILE),
    published={  # paper, appendix on data sets
        TRAIN_SEGMENTS: Published(13819, FILTERS),
        TEST_SEGMENTS: Published(4272, FILTERS),
        LABELS: Published(375, FILTERS),
        SCENARIOS: Published(16, "ingest.keystep.skip_scenarios"),
    },
    unit="keysteps",
    download=DOWNLOAD,
    layout="keystep",
    released=(OMNIVORE_VIDEO,),
)
