"""Ego-Exo4D atomic descriptions -> candidate takes with time points; what cannot be used becomes rejects.

Source: docs.ego-exo4d-data.org, page Atomic Action Descriptions; filters, duplicates and the choice of one annotator:
docs/decisions/ingest.md. The counted unit is the description: each ends as a point of a candidate or in one reject.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import AnnotatedPoint, Candidate, Fault, Published, parted
from trajpilot_core.corpora.egoexo4d.release import DOWNLOAD, Annotated, AnnotationKind, list_release, read_release
from trajpilot_core.corpora.egoexo4d.takes import CORPUS
from trajpilot_core.corpora.formats.strict import (
    as_bool,
    as_id,
    as_list,
    as_object,
    as_seconds,
    as_text,
    n_items,
    shown,
)
from trajpilot_core.corpora.records.annotations import is_tagged_unsure
from trajpilot_core.corpora.records.tables import (
    LABELS,
    SCENARIOS,
    TEST_SEGMENTS,
    TEST_TAKES,
    TRAIN_SEGMENTS,
    TRAIN_TAKES,
)
from trajpilot_core.corpora.released import OMNIVORE_VIDEO
from trajpilot_core.corpora.spec import CorpusSpec

ATOMIC_FILE = "annotations/atomic_descriptions_{}.json"
FILTERS = "ingest.subjects, drop_unsure, require_ego_visible, require_trajectory, keep_unvalidated"
MALFORMED = RejectCode.RECORD_MALFORMED


class Annotation(NamedTuple):
    """One annotator's pass over a take, filtered."""

    uid: str
    points: list[AnnotatedPoint]
    faults: list[tuple[int, Fault]]
    """(Index of the description, why it is lost)."""
    n_units: int
    is_reordered: bool


def count_descriptions(entries: object) -> int:
    """Return how many descriptions a take's value contains, even if the rest of it is unusable."""
    return sum(n_items(entry, "descriptions") for entry in as_list(entries))


def read_annotation(entry: object, config: IngestConfig) -> Annotation | Fault:
    """Filter one annotation; a Fault means that none of its descriptions can be used."""
    if not isinstance(entry, dict):
        return Fault(MALFORMED, f"an annotation is not an object: {shown(entry)}")
    descriptions, uid = entry.get("descriptions"), as_id(entry.get("annotation_uid"))
    if not isinstance(descriptions, list) or uid is None:
        return Fault(MALFORMED, "an annotation lacks annotation_uid or its list of descriptions")
    rejected = as_bool(entry.get("rejected"))
    if rejected is None and entry.get("rejected") is not None:
        return Fault(MALFORMED, f"`rejected` is {shown(entry['rejected'])}")
    if rejected:
        return Fault(RejectCode.ANNOTATION_REJECTED, f"annotation {uid}: {shown(entry.get('reject_reason'))}")
    annotator = as_id(entry.get("annotator_id")) or ""
    results = ((index, _description(value, config)) for index, value in enumerate(descriptions))
    accepted, faults = parted(
        (index, result if isinstance(result, Fault) else AnnotatedPoint(*result, uid, annotator, index))
        for index, result in results
    )
    ordered = sorted(accepted)
    repeated = [b for a, b in pairwise(ordered) if a[:2] == b[:2]]
    points = ordered[:1] + [b for a, b in pairwise(ordered) if a[:2] != b[:2]]
    repeats = [(p.offset, Fault(RejectCode.DUPLICATE, f"{shown(p.text)!r} at {p.time_s} s")) for p in repeated]
    is_reordered = any(a.time_s > b.time_s for a, b in pairwise(accepted))
    return Annotation(uid, points, sorted([*faults, *repeats]), len(descriptions), is_reordered)


def _description(value: object, config: IngestConfig) -> tuple[float, str] | Fault:
    """Return (time in seconds, text) of a description that passes the filters, or why it does not."""
    fields = as_object(value)
    text = as_text(fields.get("text"))
    if text is None or "timestamp" not in fields:
        return Fault(MALFORMED, f"a description lacks text or timestamp: {shown(value)}")
    time_s = as_seconds(fields["timestamp"])
    if time_s is None:
        return Fault(RejectCode.TS_INVALID, f"timestamp is {shown(fields['timestamp'])}")
    if "subject" not in fields and "narration_subject" not in fields:
        return Fault(MALFORMED, "a description lacks subject and narration_subject")
    flags = {name: as_bool(fields.get(name)) for name in ("unsure", "ego_visible")}
    for name, flag in flags.items():
        if flag is None and fields.get(name) is not None:
            return Fault(MALFORMED, f"`{name}` is {shown(fields[name])}, expected true, false, 0, 1 or null")
    subject = fields.get("subject", fields.get("narration_subject"))
    if not isinstance(subject, str) or subject.strip() not in config.subjects:
        return Fault(RejectCode.NOT_WEARER, f"subject is {shown(subject)}")
    if config.drop_unsure and flags["unsure"]:  # null counts as sure
        return Fault(RejectCode.UNSURE, "unsure is true")
    if config.drop_unsure and is_tagged_unsure(text):
        return Fault(RejectCode.UNSURE, f"its text has a tag: {shown(text)!r}")
    if config.require_ego_visible and not flags["ego_visible"]:  # null counts as not visible
        return Fault(RejectCode.NOT_EGO_VISIBLE, f"ego_visible is {flags['ego_visible']}")
    return time_s, text


def read_one(annotated: Annotated, config: IngestConfig) -> tuple[Candidate | None, list[Reject]]:
    """Return the take with the points of the annotation that has the most accepted ones (ties: smaller uid).

    They are sorted by time, then text. Points and units of the rejects add up to `count_descriptions`.
    """
    take, path, entries = annotated.take.take_id, annotated.path, annotated.value
    listed = as_list(entries)
    usable, unusable = parted((index, read_annotation(entry, config)) for index, entry in enumerate(listed))
    rejects = [fault.reject(take, n_items(listed[index], "descriptions"), path, index) for index, fault in unusable]
    if not isinstance(entries, list):
        fault = Fault(MALFORMED, f"expected a list of annotations, found {shown(entries)}")
        rejects.append(fault.reject(take, 0, path))
    first = min(usable, key=lambda a: (-len(a.points), a.uid, [point[:2] for point in a.points]), default=None)
    for other in (a for a in usable if a is not first):
        fault = Fault(RejectCode.ANNOTATOR_NOT_CHOSEN, f"annotation {other.uid} has {len(other.points)} descriptions")
        rejects.append(fault.reject(take, other.n_units, path))
    if first is not None:
        rejects += [fault.reject(take, 1, path, index) for index, fault in first.faults]
        if first.is_reordered:
            detail = f"annotation {first.uid}: {len(first.points)} descriptions were sorted by time"
            rejects.append(Fault(RejectCode.TS_REORDERED, detail).reject(take, 0, path))
    if first is not None and first.points:
        return Candidate(annotated.take, annotated.released, tuple(first.points), path), rejects
    fault = Fault(RejectCode.UNLABELLED, "no description passed the filters")
    return None, [*rejects, fault.reject(take, 0, path)]


EGOEXO4D_ATOMIC = CorpusSpec(
    name="egoexo4d_atomic",
    title="Ego-Exo4D, atomic descriptions",
    ids=CORPUS,
    read=partial(read_release, kind=AnnotationKind(ATOMIC_FILE, "descriptions", count_descriptions, read_one)),
    listing=partial(list_release, file=ATOMIC_FILE),
    published={  # paper, appendix on data sets
        TRAIN_TAKES: Published(2237, FILTERS),
        TEST_TAKES: Published(312, FILTERS),
        TRAIN_SEGMENTS: Published(140413, FILTERS),
        TEST_SEGMENTS: Published(11425, FILTERS),
        LABELS: Published(8472, "ingest.paraphrase_table, and the filters of segments"),
        SCENARIOS: Published(71, FILTERS),
    },
    n_classes=lambda config: config.atomic.classes,
    download=DOWNLOAD,
    layout="egoexo4d",
    released=(OMNIVORE_VIDEO,),
)
