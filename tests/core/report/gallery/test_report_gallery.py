"""The gallery: drawn by its rule, with pictures where there are any, and paths that are the integrated motions."""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from synthetic_results import Kept, Tables, built
from video_fixture import write_video

from schemas.config import CompletedReport
from trajpilot_core.report.gallery.pictures import Path as HeadPath
from trajpilot_core.report.gallery.pictures import integrate, three_views
from trajpilot_core.report.gallery.windows import (
    ALL_WRONG,
    CLASSES,
    HELPED,
    HURT,
    draw,
    draw_gallery,
    examples,
    load_facts,
    video_files,
)
from trajpilot_core.stages import report as stage

CFG = CompletedReport()


@pytest.fixture(scope="module")
def shown(inputs: Tables, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kept, list[str]]:
    """A report whose videos are there, but for one that is missing and one that is no video."""
    root = tmp_path_factory.mktemp("videos")
    files = sorted(video_files(draw_gallery(inputs, CFG), inputs).values())
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    whole = write_video(root / files[2], 15 * 20, width=64, height=64, fps=15)
    for name in files[3:]:
        shutil.copyfile(whole, root / name)
    (root / files[1]).write_bytes(b"not a video" * 100)
    return built(inputs, CFG, str(root)), files


def test_damaged_and_missing_videos_become_placeholders_with_the_reason(
    inputs: Tables, shown: tuple[Kept, list[str]]
) -> None:
    kept, files = shown
    page = kept.documents["report.html"].decode()
    assert len(files) > 4
    assert {row.code.value for row in kept.rejects} == {"VIDEO_MISSING", "WRONG_TYPE"}
    assert "no frame (VIDEO_MISSING)" in page
    assert "no frame (WRONG_TYPE)" in page
    drawn = draw_gallery(inputs, CFG)
    frames = {(one.take_id, time) for one in examples(drawn, load_facts(drawn, inputs)) for time in one.times_s}
    broken = {take for take, file in video_files(drawn, inputs).items() if file in files[:2]}
    assert page.count("data:image/jpeg;base64,") >= sum(take not in broken for take, _ in frames) > 2 * len(files)
    assert all(row.n_units == 0 for row in kept.rejects)
    assert kept.counts == (12, 12)


def test_a_report_without_frames_holds_no_image_byte(inputs: Tables, kept: Kept) -> None:
    page = kept.documents["report.html"].decode()
    assert "data:image" not in page.replace("img-src data:", "")
    assert "frames are switched off" in page
    assert stage.sources(inputs, CFG.replace(frames=False), "") == []


def test_the_stage_names_exactly_the_videos_that_it_opens(inputs: Tables, shown: tuple[Kept, list[str]]) -> None:
    (source,) = stage.sources(inputs, CFG, "")
    assert list(source.files) == shown[1]


def outcome_rows(inputs: Tables) -> dict[tuple[str, str], dict]:
    return {(r["window_id"], r["variant"]): r for r in inputs.tables["outcomes"].to_pylist()}


def test_equal_shares_are_drawn_and_every_window_is_in_its_class(inputs: Tables) -> None:
    drawn = draw(inputs.tables["outcomes"], CFG)
    rows = outcome_rows(inputs)
    assert (drawn.row, [len(drawn.classes[name]) for name in CLASSES]) == ("scorer", [4, 4, 4])
    for name in CLASSES:
        for window in drawn.classes[name]:
            right = {variant: row["mid_right"] for (one, variant), row in rows.items() if one == window}
            gained = right["scorer"] - right["no_traj"]
            told = {"oracle"} & set(right)
            assert name == (HELPED if gained > 0 else HURT if gained < 0 else ALL_WRONG)
            assert name != ALL_WRONG or max(n for row, n in right.items() if row not in told) == 0
    n = sum(variant == "scorer" for _, variant in rows)
    assert (drawn.n_windows, drawn.n_rest) == (n, n - sum(drawn.sizes.values()))
    assert drawn.n_rest > 0


def test_the_share_of_every_class_is_printed(inputs: Tables, kept: Kept) -> None:
    drawn = draw(inputs.tables["outcomes"], CFG)
    text = " ".join(kept.documents["report.html"].decode().split())
    for name in CLASSES:
        assert f"{name}: {drawn.sizes[name]} ({drawn.share(name):.1f} %)" in text
    assert f"none of these: {drawn.n_rest}." in text
    document = json.loads(kept.documents["report.json"])
    assert (document["gallery_sizes"], document["gallery_windows"]) == (dict(drawn.sizes), drawn.n_windows)


def test_the_draw_looks_at_nothing_but_the_seed(inputs: Tables) -> None:
    outcomes = inputs.tables["outcomes"]
    order = pa.array(np.random.default_rng(1).permutation(outcomes.num_rows))
    assert draw(outcomes.take(order), CFG) == draw(outcomes, CFG)
    assert draw(outcomes, CFG.replace(seed=1)).classes != draw(outcomes, CFG).classes


def with_right(outcomes: pa.Table, row: str, of: str) -> pa.Table:
    """The outcomes with one row's middle steps as right as another's, on every window."""
    held = {r["window_id"]: r["mid_right"] for r in outcomes.to_pylist() if r["variant"] == of}
    right = [held[r["window_id"]] if r["variant"] == row else r["mid_right"] for r in outcomes.to_pylist()]
    at = outcomes.schema.get_field_index("mid_right")
    return outcomes.set_column(at, outcomes.schema.field("mid_right"), pa.array(right, pa.int64()))


def test_a_class_with_few_windows_is_not_filled_up(inputs: Tables) -> None:
    outcomes = inputs.tables["outcomes"]
    for row in ("scorer", "oracle"):
        outcomes = with_right(outcomes, row, "no_traj")
    assert [len(draw(outcomes, CFG).classes[name]) for name in CLASSES] == [0, 0, 4]


def test_where_the_gate_changes_nothing_the_row_with_the_true_motion_stands_in_and_the_page_says_so(
    inputs: Tables, few: Tables
) -> None:
    closed = with_right(inputs.tables["outcomes"], "scorer", "no_traj")
    drawn = draw(closed, CFG)
    assert (drawn.row, drawn.sizes[HELPED] > 0) == ("oracle", True)
    page = built(Tables({**few.tables, "outcomes": closed}), CFG.replace(frames=False)).documents["report.html"]
    assert "the gate of Scorer changed no window" in page.decode()
    without = inputs.tables["outcomes"].filter(pc.not_equal(closed["variant"], "scorer"))
    assert draw(without, CFG).row == "oracle"


def test_without_two_rows_to_compare_there_is_no_gallery(inputs: Tables, few: Tables) -> None:
    outcomes = inputs.tables["outcomes"]
    plain = outcomes.filter(pc.equal(outcomes["variant"], "no_traj"))
    assert draw(plain, CFG).window_ids() == []
    page = built(Tables({**few.tables, "outcomes": plain}), CFG).documents["report.html"].decode()
    assert "There is no window to show" in page


def test_every_step_has_its_frame_and_the_retrieved_window_stands_next_to_the_true_one(inputs: Tables) -> None:
    drawn = draw_gallery(inputs, CFG)
    shown = examples(drawn, load_facts(drawn, inputs))
    rows, windows = outcome_rows(inputs), {w["window_id"]: w for w in inputs.tables["windows"].to_pylist()}
    for one in shown:
        assert len(one.times_s) == one.horizon == len(one.truth)
        assert list(one.times_s) == sorted(one.times_s)
        candidates = [rows[one.window_id, row]["candidate"] for row in ("scorer", "top1")]
        found = next((c for c in candidates if c), None)
        assert (one.retrieved.window_id if one.retrieved else None) == found
        if one.retrieved:
            assert one.retrieved.take_id == windows[found]["take_id"]
            assert len(one.retrieved.times_s) == len(one.retrieved.labels) == one.horizon
    assert any(one.retrieved for one in shown)
    assert {row.name for row in shown[0].plans} >= {"No-Traj", "Scorer", "Oracle"}


def test_the_page_shows_the_paths_of_every_example(shown: tuple[Kept, list[str]]) -> None:
    page = shown[0].documents["report.html"].decode()
    drawn = re.findall(
        r'<svg class="chart" role="img" aria-label="Head paths from three sides: true.*?</svg>', page, re.S
    )
    assert len(drawn) == 12
    assert all(side in picture for picture in drawn for side in ("from above", "from the left", "from behind"))


def motions(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, [0.05, 0.05, 0.05, 0.2, 0.2, 0.2], (n, 16, 6))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_the_end_of_a_path_is_the_composition_of_its_motions(seed: int, n: int) -> None:
    head_motions = motions(seed, n)
    whole = np.eye(4)
    for motion in head_motions.reshape(-1, 6):
        step = np.eye(4)
        step[:3, :3], step[:3, 3] = Rotation.from_rotvec(motion[3:]).as_matrix(), motion[:3]
        whole = whole @ step
    x, y, z = whole[:3, 3]
    path = integrate(head_motions)
    assert path.shape == (16 * n + 1, 3)
    assert path[0].tolist() == [0, 0, 0]
    assert path[-1] == pytest.approx([z, y, -x])


def test_walking_straight_ahead_points_forward_and_a_path_that_does_not_move_can_be_drawn() -> None:
    ahead = np.zeros((2, 16, 6))
    ahead[..., 2] = 0.1
    assert integrate(ahead)[-1] == pytest.approx([3.2, 0, 0])
    still = HeadPath("true", "true", integrate(np.zeros((1, 16, 6))))
    assert "<svg" in three_views([still], "m")
    assert "No path" in three_views([], "m")
