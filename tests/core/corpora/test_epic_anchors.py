"""Where the clip before an action ends and how long it is: the corpus' protocol, and V-JEPA 2's to the letter."""

from pathlib import Path

import pytest
from egoexo_fixture import ingest, write
from segment_corpora_fixture import action, codes, details, epic, read, settings, take

from schemas.rejects import RejectCode
from trajpilot_core.corpora.epic_kitchens.files import parse_videos
from trajpilot_core.corpora.epic_kitchens.reader import frames_s, read_epic
from trajpilot_core.corpora.formats.strict import FileFaultError
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import open_corpus

ROWS = [action("P01_11_0", "00:00:10.00", "00:00:13.00"), action("P01_11_1", "00:00:20.00", "00:00:20.50")]


def window(root: Path, **changes: object) -> list[tuple[float | None, float | None]]:
    """What may be seen before each tested action."""
    reading = read(epic(root, [], ROWS), settings("epic_kitchens", **changes))
    return [(one.observed_start_s, one.observed_end_s) for one in details(take(reading, "epic:P01_11"))]


def test_the_clip_ends_one_second_before_the_start_and_the_stop_anchor_sees_the_action(tmp_path: Path) -> None:
    """Planted: the anchor of V-JEPA 2's evaluation; the stage probe refuses what it gives."""
    assert window(tmp_path) == [(8.0, 9.0), (18.0, 19.0)]
    (_, late), (_, early) = window(tmp_path, anchor="vjepa2_stop")
    assert (late, early) == (12.0, 19.5)
    assert late > 10.0 - 1.0


def test_the_context_of_frames_is_as_long_as_32_frames_of_the_video_and_a_cap_that_cuts_it_is_refused(
    tmp_path: Path,
) -> None:
    epic(tmp_path, [], ROWS)
    info, head = tmp_path / "EPIC_100_video_info.csv", "video_id,duration,fps,resolution\nP01_11,60.0"
    info.write_text(f"{head},59.9400599400599,1x1\n")
    (start, end), _ = window(tmp_path, context="vjepa2_frames")
    assert start is not None
    assert (round(9.0 - start, 2), end) == (3.74, 9.0)
    assert [round(frames_s(rate), 2) for rate in (59.94, 29.97, 50.0, 47.95, 5.0)] == [3.74, 3.2, 3.84, 3.34, 6.4]
    info.write_text(f"{head},5.0,1x1\n")
    slow = settings("epic_kitchens", context="vjepa2_frames")
    with pytest.raises(InputError, match=r"has 6\.4 s"):
        read(tmp_path, slow.replace(interval_cap_s=2.0))
    assert read(tmp_path, slow).n_in == 2


def test_a_video_without_a_rate_loses_its_rows_and_a_file_without_rates_is_refused(tmp_path: Path) -> None:
    epic(tmp_path, [], ROWS)
    with pytest.raises(InputError, match="EPIC_100_video_info"):
        read(tmp_path, settings("epic_kitchens", context="vjepa2_frames"))
    write(tmp_path / "EPIC_100_video_info.csv", b"video_id,duration,fps,resolution\nP01_12,60.0,50.0,1x1\n")
    reading = read(tmp_path, settings("epic_kitchens", context="vjepa2_frames"))
    assert codes(reading)[RejectCode.TAKE_UNKNOWN] == 2
    for rate in ("fast", "0.5", "1e3", ""):
        with pytest.raises(FileFaultError, match="fps is"):
            parse_videos(f"video_id,fps\nP01_12,{rate}\n".encode(), "info")


def test_without_videos_lengths_are_those_of_the_table_and_no_video_is_named(tmp_path: Path) -> None:
    epic(tmp_path, [], ROWS)
    info = tmp_path / "EPIC_100_video_info.csv"
    config = settings("epic_kitchens").replace(video="none")
    with pytest.raises(InputError, match="EPIC_100_video_info"):
        read(tmp_path, config)
    write(info, b"video_id,duration,fps,resolution\nP01_11,60.5,50.0,1x1\n")
    found = take(read(tmp_path, config), "epic:P01_11").take
    assert (found.video, found.stated_s, found.stated_fps) == ("", 60.5, 50.0)
    listing = read_epic(open_corpus(str(tmp_path)), config).listing
    assert listing is not None
    assert info.name in {Path(path).name for path in listing.files}
    assert not [path for path in listing.files if path.endswith(".MP4")]
    for length in ("long", "-1", "nan", ""):
        write(info, f"video_id,duration,fps,resolution\nP01_11,{length},50.0,1x1\n".encode())
        assert take(read(tmp_path, config), "epic:P01_11").take.stated_s is None  # ingest rejects it with a reason


def test_no_planning_windows_are_made(tmp_path: Path) -> None:
    rows = [
        action(f"P0{video}_0{video}_{at}", f"00:00:0{at}.00", f"00:00:0{at}.80")
        for video in (2, 3)
        for at in range(2, 8)
    ]
    tested = [row for row in rows if row["participant_id"] == "P03"]
    trained = [row for row in rows if row["participant_id"] == "P02"]
    more = [action(f"P04_01_{at}", f"00:00:0{at}.00", f"00:00:0{at}.80") for at in range(2, 8)]
    sink = ingest(epic(tmp_path, [*trained, *more], tested), settings("epic_kitchens"))
    assert sink.tables["windows"].num_rows == 0
    assert sink.tables["segments"].num_rows == 18
