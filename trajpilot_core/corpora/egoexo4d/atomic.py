"""Ego-Exo4D atomic descriptions -> candidate takes with time points; what cannot be used becomes rejects.

Source: docs.ego-exo4d-data.org, page Atomic Action Descriptions; decisions: docs/decisions/ingest.md. The unit that is
counted is the description: each one of the files that are read ends as a point of a candidate or in one reject.
"""

from functools import partial

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import Candidate, Fault, Published
from trajpilot_core.corpora.egoexo4d.descriptions import choose_annotation, count_descriptions
from trajpilot_core.corpora.egoexo4d.download import download_of
from trajpilot_core.corpora.egoexo4d.release import Annotated, AnnotationKind, list_release, read_release
from trajpilot_core.corpora.egoexo4d.takes import CORPUS
from trajpilot_core.corpora.records.corpus_statistics import (
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
PUBLISHED = {
    TRAIN_TAKES: Published(2237, FILTERS),
    TEST_TAKES: Published(312, FILTERS),
    TRAIN_SEGMENTS: Published(140413, FILTERS),
    TEST_SEGMENTS: Published(11425, FILTERS),
    LABELS: Published(8472, "ingest.paraphrase_table, and the filters of segments"),
    SCENARIOS: Published(71, FILTERS),
}
"""Source: paper, appendix on data sets."""


def read_one(found: Annotated, config: IngestConfig) -> tuple[Candidate | None, list[Reject]]:
    """Return the take with the points of its chosen annotator."""
    name, path = found.take.take_id, found.path
    points, lost = choose_annotation(found.value, name, path, config)
    if not points:
        return None, [*lost, Fault(RejectCode.UNLABELLED, "no description passed the filters").reject(name, 0, path)]
    return Candidate(found.take, found.released, tuple(points), path), lost


ATOMIC = AnnotationKind(ATOMIC_FILE, "descriptions", count_descriptions, read_one)


EGOEXO4D_ATOMIC = CorpusSpec(
    name="egoexo4d_atomic",
    title="Ego-Exo4D, atomic descriptions",
    ids=CORPUS,
    read=partial(read_release, kind=ATOMIC),
    listing=partial(list_release, kind=ATOMIC),
    published=PUBLISHED,
    n_classes=lambda config: config.atomic.classes,
    download=download_of(ATOMIC_FILE),
    layout="egoexo4d",
    released=(OMNIVORE_VIDEO,),
)
