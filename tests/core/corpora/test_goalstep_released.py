"""Ego4D GoalStep as released: the validation annotations through the reader.

The annotations are those of a data set that the project does not distribute.
"""

from pathlib import Path

import pytest
from checkout import OUTSIDE
from egoexo_fixture import write, write_json
from segment_corpora_fixture import codes, read, settings

from schemas.rejects import RejectCode
from trajpilot_core.corpora.goalstep.files import RELEVANCE, parse_goalstep, parse_groups

GOALSTEP_DATA = OUTSIDE / "data" / "goalstep"
if not GOALSTEP_DATA.is_dir():
    pytest.skip(f"the released annotations of GoalStep are not at {GOALSTEP_DATA}", allow_module_level=True)
CFG = settings("goalstep")
ALL = settings("goalstep", relevance=RELEVANCE, min_label_train=0)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The released files, with made lengths and empty videos in place of the real ones."""
    root = tmp_path_factory.mktemp("goalstep")
    folder = root / "v2" / "annotations"
    folder.mkdir(parents=True)
    for name in ("goalstep_valid.json", "goalstep_video_groups.tsv"):
        (folder / name).symlink_to(GOALSTEP_DATA / name)
    write_json(folder / "goalstep_train.json", {"videos": []})
    document = parse_goalstep((folder / "goalstep_valid.json").read_bytes(), "valid")
    groups = parse_groups((folder / "goalstep_video_groups.tsv").read_bytes(), "groups")
    uids = [uid for e in document.entries for uid in groups.get(e.uid, (e.uid,)) or ()]
    write_json(root / "ego4d.json", {"videos": [{"video_uid": uid, "duration_sec": 600.0} for uid in uids]})
    for uid in uids:
        write(root / "v2" / "full_scale" / f"{uid}.mp4", b"")
    return root


def test_the_released_validation_file_holds_what_was_counted_in_it() -> None:
    steps = parse_goalstep((GOALSTEP_DATA / "goalstep_valid.json").read_bytes(), "valid")
    assert not steps.lost
    assert not any(e.faults for e in steps.entries)
    assert len(steps.entries) == 134
    assert sum(e.uid.startswith("grp-") for e in steps.entries) == 33
    assert steps.n_units == 3349
    all_steps = [s for e in steps.entries for s in e.steps]
    assert len({s.category for s in all_steps}) == 355
    assert sum(s.relevance is None for s in all_steps) == 1
    assert [sum(s.relevance == r for s in all_steps) for r in RELEVANCE] == [2406, 405, 450, 87]


def test_every_group_of_the_released_file_has_its_videos() -> None:
    groups = parse_groups((GOALSTEP_DATA / "goalstep_video_groups.tsv").read_bytes(), "groups")
    entries = parse_goalstep((GOALSTEP_DATA / "goalstep_valid.json").read_bytes(), "valid").entries
    assert len(groups) == 263
    assert None not in groups.values()
    assert all(groups[e.uid] for e in entries if e.uid.startswith("grp-"))


def test_all_steps_of_the_released_file_reach_the_tables_when_no_filter_is_set(released: Path) -> None:
    reading = read(released, ALL)
    assert reading.n_in == 3349 == sum(len(c.points) for c in reading.candidates)
    assert len({c.take.capture for c in reading.candidates}) == 134
    assert codes(reading)[RejectCode.FIELD_MISSING] == 1
    assert codes(reading)[RejectCode.TAKE_UNKNOWN] == 0


def test_the_default_filters_leave_the_paper_s_neighbourhood(released: Path) -> None:
    reading = read(released, CFG)
    assert sum(len(c.points) for c in reading.candidates) == 2812  # the paper has 2,709; its filter is not said
    rows = {row.what: row for row in reading.counts}
    assert (rows["entries that keep a segment, test"].ours, rows["entries that keep a segment, test"].paper) == (
        129,
        124,
    )
