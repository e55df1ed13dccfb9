"""Both readers of the pose file, and every damage that it can have."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from trajectory_fixture import (
    CLOCK_NS,
    COLUMNS,
    POSES,
    SEGMENTS,
    T_DEVICE_CAMERA,
    codes,
    compute,
    edited,
    joined,
    motions,
    pose_lines,
    row_of,
    true_pose,
    write_take,
)

from schemas.poses import TrajectoryConfig
from schemas.rejects import RejectCode
from trajpilot_core.errors import StoreError
from trajpilot_core.poses.aria import closed_loop, sparse
from trajpilot_core.poses.files import read_bytes
from trajpilot_core.poses.motions import bracket, measure

CFG = TrajectoryConfig()
ALL_GOOD: dict[str | None, str] = {}


@pytest.fixture(params=["sparse", "whole"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the lines around the knots, or the whole file."""
    if request.param == "whole":
        monkeypatch.setattr(sparse, "thin", lambda *_: None)


def expected_motions(camera: bool) -> np.ndarray:
    """Return the (S, 16, 6) motions that the fixture's formula gives, not resampled."""
    found = []
    for _, start_s, end_s in SEGMENTS:
        rotation, position = true_pose(np.linspace(start_s, end_s, 17))
        if camera:
            position = position + rotation.apply(T_DEVICE_CAMERA[1])
            rotation = rotation * T_DEVICE_CAMERA[0]
        back = rotation[:-1].inv()
        found.append(np.hstack([back.apply(np.diff(position, axis=0)), (back * rotation[1:]).as_rotvec()]))
    return np.array(found)


@pytest.mark.usefixtures("either_way")
def test_the_motions_are_those_of_the_true_motion(tmp_path: Path) -> None:
    for frame in ("camera", "device"):
        cfg = TrajectoryConfig.model_validate({"frame": frame})
        done = compute(tmp_path, write_take(tmp_path), cfg)
        assert codes(done) == ALL_GOOD
        assert_allclose(motions(done), expected_motions(frame == "camera"), atol=3e-6)
        assert done.table["frame"].to_pylist() == [frame] * 6
        assert done.table["segment_id"].to_pylist() == [s[0] for s in SEGMENTS]


def without(first: int, last: int) -> bytes:
    """Return the file without the rows first..last-1."""
    return joined(pose_lines()[: first + 1] + pose_lines()[last + 1 :])


def swapped() -> bytes:
    """Return the file with its halves exchanged."""
    head, *rows = pose_lines()
    return joined([head, *rows[len(rows) // 2 :], *rows[: len(rows) // 2]])


def doubled() -> bytes:
    """Return the file with every row twice (equal stamps)."""
    head, *rows = pose_lines()
    return joined([head, *(row for pair in zip(rows, rows, strict=True) for row in pair)])


def reordered() -> bytes:
    """Return the file with its columns the other way round and one more column in front."""
    return joined(
        [b",".join([b"new" if k == 0 else b"0", *reversed(line.split(b","))]) for k, line in enumerate(pose_lines())]
    )


GOOD_FILES = {
    "CRLF line ends": b"\r\n".join(pose_lines()) + b"\r\n",
    "no newline at the end": joined(pose_lines())[:-1],
    "CRLF and none at the end": b"\r\n".join(pose_lines()),
    "empty lines at the end": joined(pose_lines()) + b"\n\n",
    "equal stamps": doubled(),
    "other order of columns": reordered(),
    "byte order mark": b"\xef\xbb\xbf" + joined(pose_lines()),
    "quoted header": joined([b",".join(b'"%s"' % name.encode() for name in COLUMNS), *pose_lines()[1:]]),
    "a bad row outside all segments": joined(edited(3, 4, "tx_world_device", "oops")),
    "opposite signs of quaternions": joined(
        [pose_lines()[0]]
        + [
            b",".join([*c[:6], *(b"%.9f" % -float(v) for v in c[6:10]), *c[10:]]) if k % 2 else line
            for k, line in enumerate(pose_lines()[1:])
            for c in [line.split(b",")]
        ]
    ),
}


@pytest.mark.usefixtures("either_way")
def test_harmless_variations_give_the_same_motions(tmp_path: Path) -> None:
    expected = motions(compute(tmp_path, write_take(tmp_path)))
    for kind, content in GOOD_FILES.items():
        done = compute(tmp_path, write_take(tmp_path, content))
        assert codes(done) == ALL_GOOD, kind
        atol = 1e-7 if kind == "opposite signs of quaternions" else 0
        assert_allclose(motions(done), expected, atol=atol, err_msg=kind)


MIDDLE = row_of(3.2)
"""In segment 0002, [2.5, 4), and in no other."""
WIDE = (row_of(3.05), row_of(3.35))


def zero_quaternions() -> bytes:
    """Return the file with quaternions of zeros in segment 0002."""
    lines = list(pose_lines())
    for row in range(*WIDE):
        cells = lines[row + 1].split(b",")
        lines[row + 1] = b",".join([*cells[:6], *[b"0.0"] * 4, *cells[10:]])
    return joined(lines)


UP = {None: "TRAJ_MALFORMED"}
DAMAGED: dict[str, tuple[bytes, dict[str | None, str]]] = {
    "cut in a row": (
        joined(pose_lines())[: len(joined(pose_lines()[: row_of(4.4)])) - 60],
        {"0003": "TRAJ_TRUNCATED", "0004": "TRAJ_TRUNCATED", "0005": "TRAJ_TRUNCATED"},
    ),
    "cut inside a time stamp": (
        joined(pose_lines()[: row_of(4.4)]) + b"map-1,7",
        {"0003": "TRAJ_TRUNCATED", "0004": "TRAJ_TRUNCATED", "0005": "TRAJ_TRUNCATED"},
    ),
    "begins late": (joined(pose_lines()[:1] + pose_lines()[row_of(1.0) :]), {"0000": "TRAJ_TRUNCATED"}),
    "header only": (joined(pose_lines()[:1]), {None: "TRAJ_TRUNCATED"}),
    "one row": (joined(pose_lines()[:2]), {None: "TRAJ_TRUNCATED"}),
    "a hole of 0.3 s": (without(*WIDE), {"0002": "TRAJ_GAP"}),
    "a hole of 0.11 s anywhere": (without(MIDDLE, row_of(3.31)), {"0002": "TRAJ_GAP"}),
    "NaN": (joined(edited(*WIDE, "ty_world_device", "nan")), {"0002": "TRAJ_NOT_FINITE"}),
    "infinity": (joined(edited(*WIDE, "qx_world_device", "inf")), {"0002": "TRAJ_NOT_FINITE"}),
    "NaN quality": (joined(edited(*WIDE, "quality_score", "NaN")), {"0002": "TRAJ_NOT_FINITE"}),
    "low quality": (joined(edited(*WIDE, "quality_score", "0.2")), {"0002": "TRAJ_LOW_QUALITY"}),
    "second map": (
        joined(edited(MIDDLE, len(pose_lines()) - 1, "graph_uid", "map-2")),
        {"0002": "TRAJ_FRAME_CHANGE"},
    ),
    "zero quaternion": (zero_quaternions(), {"0002": "TRAJ_QUATERNION"}),
    "scaled quaternion": (joined(edited(*WIDE, "qw_world_device", "1.2")), {"0002": "TRAJ_QUATERNION"}),
    "not a number": (joined(edited(*WIDE, "tz_world_device", "oops")), {"0002": "TRAJ_MALFORMED"}),
    "an empty field": (joined(edited(*WIDE, "qz_world_device", "")), {"0002": "TRAJ_MALFORMED"}),
    "no stamp": (joined(edited(*WIDE, "tracking_timestamp_us", "?")), {"0002": "TRAJ_MALFORMED"}),
    "not in order": (swapped(), {None: "TRAJ_UNSORTED"}),
    "missing column": (joined(pose_lines()).replace(b"qw_world_device", b"qw", 1), UP),
    "column twice": (joined(pose_lines()).replace(b"note", b"quality_score", 1), UP),
    "web page": (b"<!DOCTYPE html>\n<html><body>403 Forbidden</body></html>\n", UP),
    "empty": (b"", UP),
    "binary": (bytes(range(256)) * 20, UP),
}


@pytest.mark.usefixtures("either_way")
def test_damage_costs_the_segments_that_it_touches_and_says_why(tmp_path: Path) -> None:
    for kind, (content, expected) in DAMAGED.items():
        done = compute(tmp_path, write_take(tmp_path, content))
        assert codes(done) == expected, kind
        whole_take_lost = None in expected and expected[None] != "TRAJ_UNSORTED"
        assert done.table.num_rows == (0 if whole_take_lost else 6 - len(set(expected) - {None})), kind
        assert all(r.source_file == POSES and r.detail and r.action for r in done.rejects), kind


@pytest.mark.usefixtures("either_way")
def test_segments_without_length_outside_the_video_or_not_a_number_are_rejected(tmp_path: Path) -> None:
    bounds = [(3.0, 2.0), (2.0, 2.0), (float("nan"), 2.0), (-1.0, 1.0), (7.0, 9.0), (1.0, 2.0)]
    segments: list[list[object]] = [[f"egoexo4d:u:{k:04d}", *pair] for k, pair in enumerate(bounds)]
    done = compute(tmp_path, write_take(tmp_path), CFG, segments)
    outside = dict.fromkeys(("0002", "0003", "0004"), "TIMESYNC_MISMATCH")
    assert codes(done) == {"0000": "SEGMENT_EMPTY", "0001": "SEGMENT_EMPTY", **outside}


def test_a_missing_file_costs_the_take(tmp_path: Path) -> None:
    take = write_take(tmp_path)
    (tmp_path / POSES).unlink()
    assert codes(compute(tmp_path, take)) == {None: "NO_TRAJECTORY"}
    assert codes(compute(tmp_path, take.replace(trajectory=None))) == {None: "NO_TRAJECTORY"}
    assert codes(compute(tmp_path, take.replace(trajectory="."))) == {None: "NO_TRAJECTORY"}


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take, thin = write_take(tmp_path), sparse.thin

    def thin_and_append(path: Path, *rest: object) -> bytes | None:
        found = thin(path, *rest)  # type: ignore[arg-type]
        with path.open("ab") as stream:
            stream.write(b"more")
        return found

    monkeypatch.setattr(sparse, "thin", thin_and_append)
    assert codes(compute(tmp_path, take)) == {None: "INPUT_UNSTABLE"}


def test_a_path_out_of_the_root_and_a_foreign_protocol_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        read_bytes(str(tmp_path), "../secret", RejectCode.NO_TRAJECTORY)
    with pytest.raises(StoreError):
        read_bytes("http://example.org", "poses.csv", RejectCode.NO_TRAJECTORY)


def swap_rows(first: int, second: int) -> bytes:
    """Return the file with two rows exchanged."""
    lines = list(pose_lines())
    lines[first + 1], lines[second + 1] = lines[second + 1], lines[first + 1]
    return joined(lines)


def test_disorder_that_a_knot_meets_is_repaired(tmp_path: Path) -> None:
    good = compute(tmp_path, write_take(tmp_path))
    knot = row_of(3.25)  # the ninth knot of segment 0002
    for content in (swap_rows(knot - 1, knot + 900), swapped()):
        done = compute(tmp_path, write_take(tmp_path, content))
        assert codes(done) == {None: "TRAJ_UNSORTED"}
        assert np.array_equal(motions(done), motions(good))


def test_the_sparse_reader_reads_little_and_gives_up_on_a_row_that_contradicts_the_order(tmp_path: Path) -> None:
    knots_us = (CLOCK_NS + 1_000_000_000 * np.linspace(2.5, 4.0, 17)[None]).astype(np.int64) // 1000

    def thinned(content: bytes) -> bytes | None:
        (tmp_path / POSES).write_bytes(content)
        return sparse.thin(tmp_path / POSES, COLUMNS.index("tracking_timestamp_us"), knots_us, 100_000)

    good = thinned(joined(pose_lines()))
    assert good.count(b"\n") <= 1 + 4 + 2 * 17
    for content in (swap_rows(row_of(3.25) - 2, row_of(3.25) + 900), swapped(), pose_lines()[0] + b"\n"):
        assert thinned(content) is None


@pytest.mark.usefixtures("either_way")
def test_unreadable_rows_between_knots_make_no_hole(tmp_path: Path) -> None:
    lines, knot_rows = list(pose_lines()), np.array([row_of(t_s) for t_s in np.linspace(0.5, 5.5, 17)])
    for row in range(knot_rows[0], knot_rows[-1], 2):
        if np.abs(knot_rows - row).min() > 20:
            lines[row + 1] = lines[row + 1].replace(b",-1,", b",-1,oops", 1)
    segments: list[list[object]] = [["egoexo4d:u:0000", 0.5, 5.5]]
    assert codes(compute(tmp_path, write_take(tmp_path, joined(lines)), CFG, segments)) == ALL_GOOD


def test_a_hole_between_knots_is_found_wherever_it_is(tmp_path: Path) -> None:
    cfg = CFG.replace(max_bracket_gap_s=1.0)
    segments: list[list[object]] = [["egoexo4d:u:0000", 0.5, 5.5], ["egoexo4d:u:0001", 5.6, 7.9]]
    assert codes(compute(tmp_path, write_take(tmp_path), cfg, segments)) == ALL_GOOD
    for at_s in np.linspace(1.6, 4.3, 10).tolist():
        for length_s, expected in ((0.103, {"0000": "TRAJ_GAP"}), (0.095, ALL_GOOD)):
            take = write_take(tmp_path, without(row_of(at_s), row_of(at_s + length_s)))
            assert codes(compute(tmp_path, take, cfg, segments)) == expected, (at_s, length_s)


def test_the_limits_are_settings(tmp_path: Path) -> None:
    take = write_take(tmp_path, without(*WIDE))
    assert codes(compute(tmp_path, take, CFG.replace(max_bracket_gap_s=0.5, max_inner_gap_s=0.5))) == ALL_GOOD
    assert codes(compute(tmp_path, take, CFG.replace(max_bracket_gap_s=0.5))) == {"0002": "TRAJ_GAP"}
    low = write_take(tmp_path, DAMAGED["low quality"][0])
    assert codes(compute(tmp_path, low, CFG.replace(min_quality=0.1))) == ALL_GOOD


@st.composite
def odd_files(draw: st.DrawFn) -> tuple[bytes, np.ndarray, int]:
    """Draw a sorted pose file with holes, equal stamps and lines of any length, knots in and around it, and a limit."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, holes = draw(st.integers(1, 150)), draw(st.integers(0, 4))
    steps = rng.choice([0, 1, 7, 10, 11, 30], n)
    steps[rng.integers(0, n, holes)] = rng.integers(30, 300, holes)
    stamps = np.cumsum([1000, *steps])
    notes = rng.choice([0, 1, 2, 3], len(stamps), p=[0.5, 0.3, 0.18, 0.02]).tolist()
    pads = ["", "y", "y" * 90, "y" * 5000]
    rows = [
        f"{k // 40},{us},-1,{k % 7},{k % 5},{k},0,0,0,1,0.{1 + us % 9},{pads[note]}"
        for k, (us, note) in enumerate(zip(stamps.tolist(), notes, strict=True))
    ]
    content = "\n".join([",".join(COLUMNS), *rows]) + draw(st.sampled_from(["", "\n", "\r\n"]))
    low, high = int(stamps[0]) - 5, int(stamps[-1]) + 5
    segments = np.sort(rng.integers(low, high + 1, (draw(st.integers(1, 5)), 4)), axis=1)
    return content.encode(), segments, draw(st.integers(20, 320))


@settings(max_examples=40)
@given(odd_files())
def test_the_sparse_reader_answers_like_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[bytes, np.ndarray, int]
) -> None:
    content, knots_us, limit_us = drawn
    path = tmp_path_factory.getbasetemp() / "odd.csv"
    path.write_bytes(content)
    whole = closed_loop.parse(content, "odd.csv")
    thinned = sparse.thin(path, COLUMNS.index("tracking_timestamp_us"), knots_us, limit_us)
    part = closed_loop.parse(thinned, "odd.csv")
    if len(whole.stamp_us) < 2:
        assert len(part.stamp_us) == len(whole.stamp_us)
        return
    of_whole, of_part = (bracket(s, knots_us * 1000) for s in (whole, part))
    assert np.array_equal(of_whole.covered, of_part.covered)
    covered = of_whole.covered.all(axis=1)
    for rows in ("low", "high"):
        stamps = [s.stamp_us[getattr(b, rows)][covered] for s, b in ((whole, of_whole), (part, of_part))]
        positions = [s.T_world_device.t_m[getattr(b, rows)][covered] for s, b in ((whole, of_whole), (part, of_part))]
        assert np.array_equal(*stamps)
        assert np.array_equal(*positions)
    holes = [np.rint(measure(s, b).hole_s[covered] * 1e6) > limit_us for s, b in ((whole, of_whole), (part, of_part))]
    assert np.array_equal(*holes)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 3, *[st.floats(-1, 1)] * 4, st.floats(0, 1)), min_size=2, max_size=20)
)
def test_what_is_written_in_full_precision_is_read_back_exactly(rows: list[tuple[float, ...]]) -> None:
    lines = [f"m,{1000 + k},-1," + ",".join(map(repr, row)) + "," for k, row in enumerate(rows)]
    stream = closed_loop.parse("\n".join([",".join(COLUMNS), *lines]).encode(), "x.csv")
    found = np.hstack([stream.T_world_device.t_m, stream.T_world_device.q_xyzw, stream.quality[:, None]])
    assert np.array_equal(found, np.array(rows))
    assert stream.readable.all()
