"""Ego-Exo4D atomic descriptions -> candidate takes with time points; what cannot be used becomes rejects.

Source: docs.ego-exo4d-data.org, page Atomic Action Descriptions; decisions: docs/decisions/ingest.md. The unit that is
counted is the description: each one of the files that are read ends as a point of a candidate or in one reject.
"""

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.readers.corpus import Corpus
from trajpilot_core.readers.descriptions import choose_annotation, count_descriptions
from trajpilot_core.readers.egoexo4d_release import Annotated, Kind, list_release, read_release
from trajpilot_core.readers.extras import LABELS, SCENARIOS, TEST_SEGMENTS, TEST_TAKES, TRAIN_SEGMENTS, TRAIN_TAKES
from trajpilot_core.readers.reading import Candidate, Fault, Listing, Published, Reader, Reading

ATOMIC_FILE = "annotations/atomic_descriptions_{}.json"
FILTERS = "IngestConfig.subjects, drop_unsure, require_ego_visible, require_trajectory, keep_unvalidated"
PUBLISHED = {
    TRAIN_TAKES: Published(2237, FILTERS), TEST_TAKES: Published(312, FILTERS),
    TRAIN_SEGMENTS: Published(140413, FILTERS), TEST_SEGMENTS: Published(11425, FILTERS),
    LABELS: Published(8472, "IngestConfig.paraphrase_table, atomic.vocabulary, and the filters of segments"),
    SCENARIOS: Published(71, FILTERS),
}  # fmt: skip
"""Source: paper, appendix on data sets."""


def read_one(found: Annotated, config: IngestConfig) -> tuple[Candidate | None, list[Reject]]:
    """Return the take with the points of its chosen annotator."""
    name, path = found.take.take_id, found.path
    points, lost = choose_annotation(found.value, name, path, config)
    if not points:
        return None, [*lost, Fault(RejectCode.UNLABELLED, "no description passed the filters").reject(name, 0, path)]
    return Candidate(found.take, found.released, tuple(points), path), lost


ATOMIC = Kind(ATOMIC_FILE, "descriptions", count_descriptions, read_one)


def read_atomic(corpus: Corpus, config: IngestConfig) -> Reading:
    """Read the descriptions of the splits that are used.

    Raises:
        InputError: takes.json or splits.json cannot be used.
    """
    return read_release(corpus, config, ATOMIC)


def list_atomic(corpus: Corpus, config: IngestConfig) -> Listing:
    """List what `read_atomic` and the probing of its videos read, without opening an annotation or a video.

    Raises:
        InputError: takes.json or splits.json cannot be used.
    """
    return list_release(corpus, config, ATOMIC)


EGOEXO4D_ATOMIC = Reader(read=read_atomic, listing=list_atomic, published=PUBLISHED)
