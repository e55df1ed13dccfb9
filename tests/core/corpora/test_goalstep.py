"""Ego4D GoalStep: the released validation file to the segment, and every fault that its files can have."""

import json
from pathlib import Path

import hypothesis
import pytest
from egoexo_fixture import ingest, write
from hypothesis import given
from hypothesis import strategies as st
from segment_corpora_fixture import Json, codes, counted, entry, four, goalstep, of, read, settings, step

from schemas.rejects import RejectCode
from trajpilot_core.corpora.goalstep.files import RELEVANCE
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import open_corpus

CFG = settings("goalstep")
ALL = settings("goalstep", relevance=RELEVANCE, min_label_train=0)


# groups


PARTS = {"one": 6.0, "two": 4.0, "three": 6.0}
GROUP = "grp-one"


def test_each_step_of_a_group_lies_in_the_file_that_holds_its_middle(tmp_path: Path) -> None:
    steps = [step(1.0, 3.0), step(5.0, 8.0), step(8.5, 9.5), step(9.0, 12.0)]
    reading = read(goalstep(tmp_path, [entry(GROUP, steps)], [], PARTS), ALL)
    spans = {c.take.uid: [p.span_s for p in c.points] for c in reading.candidates}
    assert spans == {"one": [(1.0, 3.0)], "two": [(0.0, 2.0), (2.5, 3.5)], "three": [(0.0, 2.0)]}
    straddling = of(reading, RejectCode.SEGMENT_STRADDLES)
    assert [(r.take, r.severity, r.n_units) for r in straddling] == [
        ("goalstep:grp-one:two", "repair", 0),
        ("goalstep:grp-one:three", "repair", 0),
    ]
    assert {c.take.capture for c in reading.candidates} == {GROUP}


@hypothesis.settings(max_examples=40)
@given(
    lengths=st.lists(st.floats(0.5, 50), min_size=1, max_size=5),
    spans=st.lists(st.tuples(st.floats(0, 200), st.floats(0, 60)), max_size=8),
)
def test_a_step_of_a_group_is_never_longer_and_never_leaves_its_file(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[float], spans: list[tuple[float, float]]
) -> None:
    root = tmp_path_factory.mktemp("group")
    files = {f"v{i}": length for i, length in enumerate(lengths)}
    steps = [step(a, a + long) for a, long in spans]
    last = f"v{len(lengths) - 1}"
    for candidate in read(goalstep(root, [], [entry("grp-v0", steps)], files, videos=False), ALL).candidates:
        for point in candidate.points:
            start_s, end_s = point.span_s
            assert start_s >= 0
            assert candidate.take.uid == last or end_s <= files[candidate.take.uid] + 1e-6
            _, long = spans[point.offset]
            assert end_s - start_s <= long + 1e-6


def test_a_group_that_was_downloaded_as_one_file_is_one_take_and_a_missing_file_costs_its_steps(tmp_path: Path) -> None:
    root = goalstep(tmp_path, [entry(GROUP, [step(1, 2), step(7, 8), step(11, 12)])], [], PARTS)
    (root / "v2/full_scale/two.mp4").unlink()
    reading = read(root, ALL)
    assert [(r.take, r.n_units) for r in of(reading, RejectCode.VIDEO_MISSING)] == [("goalstep:grp-one:two", 1)]
    assert {c.take.uid for c in reading.candidates} == {"one", "three"}
    write(root / "v2" / "full_scale" / f"{GROUP}.mp4", b"")
    (candidate,) = read(root, ALL).candidates
    assert candidate.take.take_id == f"goalstep:{GROUP}:{GROUP}"
    assert candidate.points[1].span_s == (7.0, 8.0)


def test_a_group_that_cannot_be_resolved_costs_its_steps_and_says_so(tmp_path: Path, subtests: pytest.Subtests) -> None:
    root = goalstep(tmp_path, [entry(GROUP, four())], [entry("alone", four())], PARTS)
    table, lengths = root / "v2/annotations/goalstep_video_groups.tsv", root / "ego4d.json"
    tables = (
        "['other', 'two']", "['one', 'two']\n['one', 'three']", "__import__('os').remove('x')",
        "['one', '../two']", "['one', 'one']", "[]"
    )  # fmt: skip
    one, two = {"video_uid": "one"}, {"video_uid": "two", "duration_sec": 4}
    documents = ({"videos": [one]}, {"videos": [one | {"duration_sec": 0}, two]})
    bad = [*((table, f"video_group\n{rows}\n") for rows in tables), *((lengths, json.dumps(d)) for d in documents)]
    for path, content in bad:
        with subtests.test(content=content):
            whole = path.read_text()
            path.write_text(content)
            reading = read(root, ALL)
            path.write_text(whole)
            (unknown,) = of(reading, RejectCode.TAKE_UNKNOWN)
            assert (unknown.take, unknown.n_units) == (f"goalstep:{GROUP}:{GROUP}", 4)
            assert [c.take.uid for c in reading.candidates] == ["alone"]


def test_one_recording_in_two_splits_is_refused_in_both(tmp_path: Path) -> None:
    reading = read(goalstep(tmp_path, [entry(GROUP, [step(1, 2), step(7, 8)])], [entry("two", four())], PARTS), ALL)
    assert sorted(r.take for r in of(reading, RejectCode.NO_SPLIT)) == ["goalstep:grp-one:two", "goalstep:two:two"]
    assert [c.take.uid for c in reading.candidates] == ["one"]


# filters, labels, levels


FLAGGED = [
    step(0, 1, "A", is_relevant="irrelevant"),
    step(1, 2, "B", is_relevant="unsure"),
    step(2, 3, "C"),
    step(3, 4, "D"),
    step(4, 5, "E"),
    step(5, 6, "F", is_relevant="optional"),
]


FILTERS: list[tuple[Json, str, RejectCode]] = [
    ({}, "CDEF", RejectCode.NOT_RELEVANT),
    ({"relevance": ("essential",)}, "CDE", RejectCode.NOT_RELEVANT),
    ({"min_label_train": 2}, "", RejectCode.LABEL_RARE),
]


def test_each_filter_is_a_setting_and_what_it_costs_is_counted(tmp_path: Path) -> None:
    root = goalstep(tmp_path, [entry("a", FLAGGED)], [])
    for changes, kept, code in FILTERS:
        reading = read(root, settings("goalstep", **changes))
        assert "".join(p.text for c in reading.candidates for p in c.points) == kept, changes
        assert sum(r.n_units for r in of(reading, code)) > 0, changes


def test_rare_labels_are_those_of_training_and_are_cut_in_both_splits(tmp_path: Path) -> None:
    train = [entry("a", four()), entry("b", four("Cook: Toast"))]
    reading = read(goalstep(tmp_path, train, [entry("c", four("Cook: Fry"))]), settings("goalstep", min_label_train=2))
    assert {p.text for c in reading.candidates for p in c.points} == {"Cook: Pour", "Cook: Boil", "Cook: Serve"}
    assert sum(r.n_units for r in of(reading, RejectCode.LABEL_RARE)) == 3
    assert counted(reading)["training labels that occur at least 1 times"] == 5
    assert counted(reading)["training labels that occur at least 2 times"] == 3


def test_an_absent_relevance_counts_as_essential_and_is_told(tmp_path: Path) -> None:
    bare = {k: v for k, v in step(0, 2).items() if k != "is_relevant"}
    reading = read(goalstep(tmp_path, [entry("a", [bare, step(2, 4)])], []), CFG)
    (told,) = of(reading, RejectCode.FIELD_MISSING)
    assert (told.severity, told.n_units, told.source_offset) == ("repair", 0, 0)
    assert len(reading.candidates[0].points) == 2


# faults


MALFORMED = ({"step_category": "x"}, step(0, 2, ""), step(0, 2, 7), step(0, 2, "\ud800"), "no object", None)
UNKNOWN_FLAGS = ({"is_relevant": "perhaps"}, {"is_relevant": ["essential"]})
BAD_STEPS: list[tuple[object, RejectCode]] = [
    *((step(start, 2), RejectCode.TS_INVALID) for start in ("0", -1, True)),
    (step(0, float("nan")), RejectCode.TS_INVALID),
    *((bad, RejectCode.RECORD_MALFORMED) for bad in MALFORMED),
    *((step(0, 2, **flags), RejectCode.RECORD_MALFORMED) for flags in UNKNOWN_FLAGS),
]


def test_a_bad_segment_costs_itself_and_says_where_it_stands(tmp_path: Path) -> None:
    for bad, code in BAD_STEPS:
        reading = read(goalstep(tmp_path, [entry("a", [*four(), bad])], []), CFG)
        assert [(r.take, r.n_units, r.source_offset) for r in of(reading, code)] == [("goalstep:a:a", 1, 4)], bad
        assert len(reading.candidates[0].points) == 4


BAD_ENTRIES: list[tuple[Json | str, RejectCode, int]] = [
    (entry("../../etc/passwd", four()), RejectCode.TAKE_NAME_INVALID, 4),
    (entry("good", four()), RejectCode.RECORD_MALFORMED, 8),
    (entry(None, four()), RejectCode.RECORD_MALFORMED, 4),
    (entry("a", {"not": "a list"}), RejectCode.RECORD_MALFORMED, 0),
    ("no object", RejectCode.RECORD_MALFORMED, 0),
    (entry("a", []), RejectCode.UNLABELLED, 0),
]


def test_a_bad_entry_costs_its_segments(tmp_path: Path) -> None:
    for bad, code, n_units in BAD_ENTRIES:
        train: list[Json] = [entry("good", four()), bad]  # type: ignore[list-item]
        reading = read(goalstep(tmp_path, train, [entry("val", four())]), CFG)
        assert of(reading, code), bad
        assert sum(r.n_units for r in of(reading, code)) == n_units, bad
        assert "val" in {c.take.uid for c in reading.candidates}


def test_steps_out_of_order_are_sorted_and_overlaps_are_told(tmp_path: Path) -> None:
    reading = read(goalstep(tmp_path, [entry("a", [step(4, 8), step(0, 2), step(1, 3)])], []), CFG)
    assert [p.span_s for p in reading.candidates[0].points] == [(0.0, 2.0), (1.0, 3.0), (4.0, 8.0)]
    assert (codes(reading)[RejectCode.TS_REORDERED], codes(reading)[RejectCode.SEGMENT_OVERLAP]) == (1, 1)


def test_both_names_of_the_validation_file_are_known_and_videos_of_either_size(tmp_path: Path) -> None:
    root = goalstep(tmp_path, [entry("a", four())], [entry("b", four())])
    folder = root / "v2/annotations"
    (folder / "goalstep_val.json").rename(root / "goalstep_valid.json")
    assert len(read(root, CFG).candidates) == 2
    (root / "v2/full_scale").rename(root / "v2/video_540ss")
    assert not read(root, CFG).candidates
    assert len(read(root, settings("goalstep", video="video_540ss")).candidates) == 2


def test_the_unlabelled_test_split_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set ingest\.test_split to val"):
        read(goalstep(tmp_path, [entry("a", four())], []), CFG.replace(test_split="test"))


def test_the_listing_names_what_is_read(tmp_path: Path) -> None:
    root = goalstep(tmp_path, [entry(GROUP, four())], [entry("b", four())], PARTS)
    listed = spec_of("goalstep").listing(open_corpus(str(root)), CFG)
    videos = [f"v2/full_scale/{uid}.mp4" for uid in ("b", "one", "three", "two")]
    assert [path for path in listed.files if path.endswith(".mp4")] == videos
    assert {"ego4d.json", "v2/annotations/goalstep_video_groups.tsv"} <= set(listed.files)


def test_ingest_writes_segments_details_and_counts_of_a_download(tmp_path: Path) -> None:
    train = [entry("a", four()), entry("b", four()), entry("c", four())]
    sink = ingest(
        goalstep(tmp_path, [*train, entry(GROUP, [step(5, 8), step(8.5, 9.5)])], [entry("d", four())], PARTS), CFG
    )
    assert {row["corpus"] for row in sink.rows("takes")} == {"goalstep"}
    assert {row["participant"] for row in sink.rows("takes")} == {"7"}
    rows = {(row["take_id"], row["position"]): row for row in sink.rows("segments")}
    cut = rows["goalstep:grp-one:two", 0]
    assert (cut["start_s"], cut["end_s"], cut["label"]) == (0.0, 2.0, "cook stir")
    assert any(row["what"] == "segments, test" and row["paper"] == 2709 for row in sink.rows("counts"))
