"""EPIC-KITCHENS-100: the released validation rows, what may be seen before an action, classes, sets, and faults."""

from pathlib import Path

import pytest
from egoexo_fixture import ingest, write
from hypothesis import given
from hypothesis import strategies as st
from segment_corpora_fixture import action, codes, details, epic, of, read, settings, table, take

from schemas.rejects import RejectCode
from trajpilot_core.corpora.epic_kitchens.files import parse_actions, parse_videos, seconds_of, words
from trajpilot_core.corpora.epic_kitchens.reader import frames_s, observed, read_epic
from trajpilot_core.corpora.formats.strict import FileFaultError
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import open_corpus

CFG = settings("epic_kitchens")


# time


@given(st.floats(0, 400, allow_nan=False), st.floats(0, 5), st.floats(0.01, 8))
def test_nothing_of_what_may_be_seen_lies_after_the_gap(start_s: float, gap_s: float, observed_s: float) -> None:
    window = observed(start_s, gap_s, observed_s)
    assert (window is None) == (start_s < gap_s)
    if window is not None:
        assert 0 <= window[0] <= window[1] <= start_s - gap_s
        assert window[1] - window[0] <= observed_s + 1e-9


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 99))
def test_timestamps_are_hours_minutes_and_seconds(hours: int, minutes: int, seconds: int, hundredths: int) -> None:
    found = seconds_of(f"{hours:02}:{minutes:02}:{seconds:02}.{hundredths:02}")
    assert found == pytest.approx(hours * 3600 + minutes * 60 + seconds + hundredths / 100)
    no_times = ("", "1:02", "00:61:00.00", "00:00:60.0", "-0:00:01.00", "00:00:1", "nan", "٠٠:00:01.00")
    assert not any(map(seconds_of, no_times))


ROWS = [
    action("P01_11_2", "00:00:08.00", "00:00:09.50", 1, 1),
    action("P01_11_0", "00:00:03.00", "00:00:04.00", 0, 0),
    action("P01_11_1", "00:00:01.50", "00:00:02.00", 2, 2),
]


def test_what_is_seen_ends_one_second_before_the_action_and_is_cut_at_the_start_of_the_video(tmp_path: Path) -> None:
    early = action("P01_11_3", "00:00:00.20", "00:00:01.00")
    reading = read(epic(tmp_path, [*ROWS, early], []), CFG)
    (candidate,) = reading.candidates
    assert [p.span_s for p in candidate.points] == [(0.0, 0.5), (1.0, 2.0), (6.0, 7.0)]
    assert [d.annotated_start_s for d in details(candidate)] == [1.5, 3.0, 8.0]
    assert [p.label for p in candidate.points] == ["wash cup", "take plate", "put down chopping board"]
    (lost,) = of(reading, RejectCode.TOO_EARLY)
    assert (lost.take, lost.n_units, "0.2" in lost.detail) == ("epic:P01_11", 1, True)
    assert not of(read(tmp_path, settings("epic_kitchens", gap_s=0.2)), RejectCode.TOO_EARLY)
    (candidate,) = read(tmp_path, settings("epic_kitchens", segment="action")).candidates
    assert [p.span_s for p in candidate.points] == [(0.2, 1.0), (1.5, 2.0), (3.0, 4.0), (8.0, 9.5)]
    assert details(candidate)[0].observed_end_s is None


def test_a_window_that_the_interval_cap_would_move_is_an_error(tmp_path: Path) -> None:
    root, longer = epic(tmp_path, ROWS, []), settings("epic_kitchens", observed_s=6.0)
    assert read(root, settings("epic_kitchens", observed_s=4.0).replace(interval_cap_s=2.0))
    with pytest.raises(InputError, match=r"set ingest\.interval_cap_s to null"):
        read(root, longer.replace(interval_cap_s=2.0))
    assert read(root, longer)


@pytest.mark.usefixtures("no_decoder")
def test_ingest_cuts_no_interval_that_reaches_the_action(tmp_path: Path) -> None:
    train = [*ROWS, action("P02_01_0", "00:00:05.00", "00:00:06.00"), action("P02_02_0", "00:00:05.00", "00:00:06.00")]
    sink = ingest(epic(tmp_path, train, [action("P03_01_0", "00:00:05.00", "00:00:06.00", 0, 2)]), CFG)
    told = {row["segment_id"]: row for row in sink.rows("details")}
    assert len(sink.rows("segments")) == 6
    assert sink.rows("windows") == [], "actions are not planned, three in a row neither"
    for row in sink.rows("segments"):
        assert row["end_s"] <= told[row["segment_id"]]["annotated_start_s"] - 1.0 + 1e-9
    (tested,) = [row for row in sink.rows("segments") if row["split"] == "test"]
    sets = told[tested["segment_id"]]
    assert [sets[f"is_{name}"] for name in ("unseen", "tail_verb", "tail_noun")] == [True, False, True]
    assert (tested["label_id"], tested["annotation_uid"]) == ("v0:n2", "P03_01_0")


# labels, splits, layout


def test_a_participant_is_unseen_in_validation_only(tmp_path: Path) -> None:
    both = [action("P03_01_0", "00:00:05.00", "00:00:06.00")], [action("P03_02_0", "00:00:05.00", "00:00:06.00")]
    reading = read(epic(tmp_path, *both), CFG)
    assert [details(take(reading, f"epic:{video}"))[0].is_unseen for video in ("P03_01", "P03_02")] == [False, True]


def test_the_label_is_the_pair_of_verb_and_noun(tmp_path: Path) -> None:
    assert read(epic(tmp_path, ROWS[:1], []), CFG).candidates[0].points[0].label_id == "v1:n1"
    keys = ("board:chopping", "put-down", "towel:kitchen:paper")
    assert [words(key) for key in keys] == ["chopping board", "put down", "paper kitchen towel"]


def test_pairs_that_training_lacks_are_kept(tmp_path: Path) -> None:
    root = epic(tmp_path, ROWS, [action("P03_01_0", "00:00:05.00", "00:00:06.00", 2, 0)])
    assert take(read(root, CFG), "epic:P03_01")


def test_videos_are_found_in_either_case_and_under_the_downloader_s_folder_and_tables_in_a_clone(
    tmp_path: Path,
) -> None:
    for suffix in (".MP4", ".mp4"):
        root = epic(tmp_path / suffix, ROWS, [], suffix)
        assert take(read(root, CFG), "epic:P01_11").take.video == f"P01/videos/P01_11{suffix}"
        for folder in ("EPIC-KITCHENS", "epic-kitchens-100-annotations"):
            (root / folder).mkdir()
        (root / "P01").rename(root / "EPIC-KITCHENS" / "P01")
        for path in root.glob("*.csv"):
            path.rename(root / "epic-kitchens-100-annotations" / path.name)
        assert take(read(root, CFG), "epic:P01_11").take.video == f"EPIC-KITCHENS/P01/videos/P01_11{suffix}"


def test_a_video_in_both_splits_is_refused_and_one_that_is_missing_costs_its_rows(tmp_path: Path) -> None:
    reading = read(epic(tmp_path, ROWS, [action("P01_11_9", "00:00:05.00", "00:00:06.00")]), CFG)
    assert sorted(r.n_units for r in of(reading, RejectCode.NO_SPLIT)) == [1, 3]
    assert not reading.candidates
    (epic(tmp_path, ROWS, []) / "P01/videos/P01_11.MP4").unlink()
    assert [(r.take, r.n_units) for r in of(read(tmp_path, CFG), RejectCode.VIDEO_MISSING)] == [("epic:P01_11", 3)]


# faults


def bad_row(start: str = "00:00:05.00", stop: str = "00:00:06.00", *classes: object, **changes: object) -> str:
    """Return the line of the action table of one more row."""
    return table([action("P01_11_7", start, stop, *classes, **changes)]).decode().split("\n", 1)[1]


BAD_ROWS = {
    bad_row("00:00:61.00", "00:00:02.00"): RejectCode.TS_INVALID,
    bad_row("", ""): RejectCode.TS_INVALID,
    bad_row("00:00:05.00", "00:00:05.00"): RejectCode.SEGMENT_EMPTY,
    bad_row("00:00:05.00", "00:00:04.00"): RejectCode.SEGMENT_EMPTY,
    bad_row("00:00:05.00", "00:00:06.00", "x"): RejectCode.RECORD_MALFORMED,
    bad_row("00:00:05.00", "00:00:06.00", 0, -1): RejectCode.RECORD_MALFORMED,
    bad_row("00:00:05.00", "00:00:06.00", 0, 9): RejectCode.LABEL_UNKNOWN,
    bad_row(participant_id="P02"): RejectCode.RECORD_MALFORMED,
    bad_row(video_id="../evil"): RejectCode.TAKE_NAME_INVALID,
    bad_row(participant_id="/etc"): RejectCode.TAKE_NAME_INVALID,
    "P01_11_8,P01\n": RejectCode.RECORD_MALFORMED,
}


def test_a_bad_row_costs_itself_and_says_its_line(tmp_path: Path) -> None:
    path = epic(tmp_path, ROWS, []) / "EPIC_100_train.csv"
    whole, found = path.read_text(), {}
    for line, code in BAD_ROWS.items():
        path.write_text(whole + line)
        reading = read(tmp_path, CFG)
        assert len(take(reading, "epic:P01_11").points) == 3
        found[line] = [(row.code, row.n_units, row.source_offset) for row in of(reading, code)]
    assert found == {line: [(code, 1, 5)] for line, code in BAD_ROWS.items()}
    path.write_text(whole + whole.split("\n")[1] + "\n")  # a narration id that stands twice costs both rows
    reading = read(tmp_path, CFG)
    assert (codes(reading)[RejectCode.RECORD_MALFORMED], len(take(reading, "epic:P01_11").points)) == (2, 2)


def test_a_quote_that_is_never_closed_swallows_no_rows_in_silence(tmp_path: Path) -> None:
    root = epic(tmp_path, ROWS, [])
    path = root / "EPIC_100_train.csv"
    head, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, first[:-1], *(line.replace('"', "") for line in rest), ""]))
    with pytest.raises(InputError, match=r"EPIC_100_train\.csv cannot be read: no table"):
        read(root, CFG)


def test_classes_and_sets_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    root = epic(tmp_path, ROWS, [])
    for name, content in (
        ("noun_classes", None),
        ("noun_classes", b"id,key\n0,a\n2,b\n"),
        ("verb_classes", b"id,key\n0,a\n0,b\n"),
        ("verb_classes", b""),
        ("tail_verbs", b"verb\ntake\n"),
        ("unseen_participant_ids_validation", b"participant\nP03\n"),
    ):
        path = root / f"EPIC_100_{name}.csv"
        whole = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(InputError, match=path.name):
            read(root, CFG)
        path.write_bytes(whole)


def test_the_unlabelled_test_split_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set ingest\.test_split to val"):
        read(epic(tmp_path, ROWS, []), CFG.replace(test_split="test"))


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_parser_of_a_table(content: bytes) -> None:
    for told in (content, table([]) + content):
        try:
            found = parse_actions(told, "made")
        except InputError:
            continue
        assert found.n_units == len(found.actions) + len(found.lost)


TWO_ROWS = [action("P01_11_0", "00:00:10.00", "00:00:13.00"), action("P01_11_1", "00:00:20.00", "00:00:20.50")]


def windows(root: Path, **changes: object) -> list[tuple[float, float] | None]:
    """What may be seen before each tested action."""
    reading = read(epic(root, [], TWO_ROWS), settings("epic_kitchens", **changes))
    return [point.span_s for point in take(reading, "epic:P01_11").points]


def test_the_clip_ends_one_second_before_the_start_and_the_stop_anchor_sees_the_action(tmp_path: Path) -> None:
    """Planted: the anchor of V-JEPA 2's evaluation; the stage probe refuses what it gives."""
    assert windows(tmp_path) == [(8.0, 9.0), (18.0, 19.0)]
    (_, late), (_, early) = windows(tmp_path, anchor="vjepa2_stop")
    assert (late, early) == (12.0, 19.5)
    assert late > 10.0 - 1.0


def test_the_context_of_frames_is_as_long_as_32_frames_of_the_video_and_a_cap_that_cuts_it_is_refused(
    tmp_path: Path,
) -> None:
    epic(tmp_path, [], TWO_ROWS)
    info, head = tmp_path / "EPIC_100_video_info.csv", "video_id,duration,fps,resolution\nP01_11,60.0"
    info.write_text(f"{head},59.9400599400599,1x1\n")
    (start, end), _ = windows(tmp_path, context="vjepa2_frames")
    assert (round(9.0 - start, 2), end) == (3.74, 9.0)
    assert [round(frames_s(rate), 2) for rate in (59.94, 29.97, 50.0, 47.95, 5.0)] == [3.74, 3.2, 3.84, 3.34, 6.4]
    info.write_text(f"{head},5.0,1x1\n")
    slow = settings("epic_kitchens", context="vjepa2_frames")
    with pytest.raises(InputError, match=r"has 6\.4 s"):
        read(tmp_path, slow.replace(interval_cap_s=2.0))
    assert read(tmp_path, slow).n_in == 2


def test_a_video_without_a_rate_loses_its_rows_and_a_file_without_rates_is_refused(tmp_path: Path) -> None:
    epic(tmp_path, [], TWO_ROWS)
    with pytest.raises(InputError, match="EPIC_100_video_info"):
        read(tmp_path, settings("epic_kitchens", context="vjepa2_frames"))
    write(tmp_path / "EPIC_100_video_info.csv", b"video_id,duration,fps,resolution\nP01_12,60.0,50.0,1x1\n")
    reading = read(tmp_path, settings("epic_kitchens", context="vjepa2_frames"))
    assert codes(reading)[RejectCode.TAKE_UNKNOWN] == 2
    for rate in ("fast", "0.5", "1e3", ""):
        with pytest.raises(FileFaultError, match="fps is"):
            parse_videos(f"video_id,fps\nP01_12,{rate}\n".encode(), "info")


def test_without_videos_lengths_are_those_of_the_table_and_no_video_is_named(tmp_path: Path) -> None:
    epic(tmp_path, [], TWO_ROWS)
    info = tmp_path / "EPIC_100_video_info.csv"
    config = settings("epic_kitchens").replace(video="none")
    with pytest.raises(InputError, match="EPIC_100_video_info"):
        read(tmp_path, config)
    write(info, b"video_id,duration,fps,resolution\nP01_11,60.5,50.0,1x1\n")
    found = take(read(tmp_path, config), "epic:P01_11").take
    assert (found.video, found.stated_s, found.stated_fps) == ("", 60.5, 50.0)
    listing = read_epic(open_corpus(str(tmp_path)), config).listing
    assert info.name in {Path(path).name for path in listing.files}
    assert not [path for path in listing.files if path.endswith(".MP4")]
    for length in ("long", "-1", "nan", ""):
        write(info, f"video_id,duration,fps,resolution\nP01_11,{length},50.0,1x1\n".encode())
        assert take(read(tmp_path, config), "epic:P01_11").take.stated_s is None  # ingest rejects it with a reason
