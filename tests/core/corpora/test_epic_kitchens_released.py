"""EPIC-KITCHENS-100 as released: the validation annotations through the reader.

The annotations are under a licence that does not let the project distribute them.
"""

from pathlib import Path

import pytest
from checkout import OUTSIDE
from egoexo_fixture import write
from segment_corpora_fixture import codes, details, read, settings, table

from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import CorpusReading
from trajpilot_core.corpora.epic_kitchens.files import parse_actions, parse_classes

EPIC_DATA = OUTSIDE / "data" / "epic100"
if not EPIC_DATA.is_dir():
    pytest.skip(f"the released annotations of EPIC-KITCHENS-100 are not at {EPIC_DATA}", allow_module_level=True)
CFG = settings("epic_kitchens")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The released tables, with empty videos in place of the real ones."""
    root = tmp_path_factory.mktemp("epic")
    for path in EPIC_DATA.glob("EPIC_100_*.csv"):
        (root / path.name).symlink_to(path)
    write(root / "EPIC_100_train.csv", table([]))
    for row in parse_actions((EPIC_DATA / "EPIC_100_validation.csv").read_bytes(), "validation").actions:
        write(root / row.participant / "videos" / f"{row.video_id}.MP4", b"")
    return root


@pytest.fixture(scope="module")
def reading(released: Path) -> CorpusReading:
    return read(released, CFG)


def test_the_released_validation_table_holds_what_was_counted_in_it() -> None:
    found = parse_actions((EPIC_DATA / "EPIC_100_validation.csv").read_bytes(), "validation")
    rows = found.actions
    assert found.n_units == len(rows) == 9668
    assert not found.lost
    assert len({row.video_id for row in rows}) == 138
    assert len({(row.verb_class, row.noun_class) for row in rows}) == 1352
    assert sum(row.span_s[0] < 1.0 for row in rows) == 27
    assert not any(row.span_s[1] <= row.span_s[0] for row in rows)


def test_the_released_rows_reach_the_tables_but_for_27_that_start_too_early(reading: CorpusReading) -> None:
    assert reading.n_in == 9668
    assert sum(len(c.points) for c in reading.candidates) == 9668 - 27
    assert codes(reading)[RejectCode.TOO_EARLY] == 27
    every = [d for c in reading.candidates for d in details(c)]
    assert all(d.observed_end_s == pytest.approx((d.annotated_start_s or 0) - 1.0) for d in every)


def test_the_sets_of_the_protocol_are_those_of_the_released_lists(released: Path) -> None:
    reading = read(released, settings("epic_kitchens", segment="action"))
    every = [d for c in reading.candidates for d in details(c)]
    assert len(every) == 9668
    assert sum(bool(d.is_unseen) for d in every) == 1065
    assert (sum(bool(d.is_tail_verb) for d in every), sum(bool(d.is_tail_noun) for d in every)) == (1760, 1900)
    assert len({p.label_id for c in reading.candidates for p in c.points}) == 1352
    assert (len({d.verb_class for d in every}), len({d.noun_class for d in every})) == (78, 211)


def test_the_table_of_305_nouns_is_never_read(reading: CorpusReading) -> None:
    assert len(parse_classes((EPIC_DATA / "EPIC_100_noun_classes_v2.csv").read_bytes(), "v2")) == 305
    assert reading.listing is not None
    assert "EPIC_100_noun_classes.csv" in reading.listing.files
    assert not any("v2" in path for path in reading.listing.files)
