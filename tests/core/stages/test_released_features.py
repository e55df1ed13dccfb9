"""The stage `features` on released files: where they lie, which rows stand for a segment, what is refused and why."""

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import Marker
from test_features import Shards, tables_of, take
from trajectory_fixture import segment

from schemas.annotation import Segment, Take
from schemas.config import FeatureConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.released import OMNIVORE_VIDEO, RELEASED, ReleasedFeatures, RowClock
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.stages.features import STAGE

CONFIG = FeatureConfig(source="released", precision="fp32")
LENGTH_S = 8.0
SPANS = ((0.0, 3.0), (2.1, 4.7), (5.0, 5.4), (6.5, 8.0))
"""The third is shorter than a window."""
PATH, SHORT_PATH = "features/omnivore_video/a_aria01_rgb.pt", "features/a_aria01_rgb.pt"
ONE_ROW_S = 16 / 30


def recorded() -> Take:
    place = {"take_id": "egoexo4d:a", "name": "clip", "video": "Tea/trim_videos/clip.mp4", "camera": "aria01_214-1"}
    return take("a").replace(**place, duration_s=LENGTH_S)


def segments() -> list[Segment]:
    return [segment(recorded(), n, *span, segment_id=f"egoexo4d:a:{n}") for n, span in enumerate(SPANS)]


def planted(duration_s: float = LENGTH_S, released: ReleasedFeatures = OMNIVORE_VIDEO) -> torch.Tensor:
    """Rows whose every number is the centre of their window: a segment's vector tells which time it stands for."""
    n_frames = released.clock.n_frames(duration_s)
    centres = released.clock.spans_s(released.clock.n_rows(n_frames), n_frames).mean(axis=1)
    return torch.tensor(np.repeat(centres[:, None], released.width, axis=1), dtype=torch.float32)


def saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def compute(folder: Path, files: dict[str, bytes], cfg: FeatureConfig = CONFIG) -> Shards:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    inputs, shards = tables_of([recorded()], segments()), Shards()
    assert STAGE.sources is not None
    pending = tuple(STAGE.sources(inputs, cfg, ""))  # type: ignore[arg-type]
    runtime = Runtime(str(folder), "cpu", 1, folder / "scratch")
    STAGE.run(Work(inputs, cfg, pending, shards, runtime))  # type: ignore[arg-type]
    return shards


def times_of(shards: Shards) -> np.ndarray:
    """The (S,) times that the vectors of the planted rows stand for, seconds."""
    return np.array([vector[0] for vector in shards.tables["egoexo4d:a"]["vector"].to_pylist()])


def is_in_place(times_s: np.ndarray) -> bool:
    """Whether every vector stands for the middle of its segment, as nearly as rows can lie."""
    middles = np.array([sum(span) / 2 for span in SPANS])
    return bool(np.abs(times_s - middles).max() < ONE_ROW_S / 2 + 0.01)


def test_the_rows_of_a_video_are_those_of_the_extractors_formula() -> None:
    clock = RowClock()
    for n_frames, n_rows, last in ((20, 1, [0, 20]), (32, 1, [0, 32]), (39, 2, [7, 39]), (48, 2, [16, 48])):
        assert clock.n_rows(n_frames) == n_rows
        assert (clock.spans_s(n_rows, n_frames)[-1] * 30).round().tolist() == last


def test_a_segment_is_the_mean_of_the_rows_inside_it_else_the_nearest_row_with_its_overhang(tmp_path: Path) -> None:
    shards = compute(tmp_path, {PATH: saved(planted())})
    table = shards.tables["egoexo4d:a"]
    rows_s = np.array(table["frame_times_s"][0].as_py()).reshape(-1, 2)
    assert rows_s[:, 0].min() >= 0.0
    assert rows_s[:, 1].max() <= 3.0
    assert len(rows_s) == 4
    assert times_of(shards)[0] == pytest.approx(rows_s.mean(), abs=2e-3)
    start_s, end_s = table["frame_times_s"][2].as_py()
    assert end_s - start_s == pytest.approx(32 / 30), "the one row that is nearest to the short segment"
    assert set(table["encoder"].to_pylist()) == {"released:omnivore_video"}
    assert is_in_place(times_of(shards))


BROKEN: dict[str, tuple[Callable[[Path], bytes], RejectCode]] = {
    "hostile": (lambda folder: saved(Marker(folder / "executed")), RejectCode.FEATURES_MALFORMED),
    "bare pickle": (lambda folder: pickle.dumps(Marker(folder / "executed")), RejectCode.FEATURES_MALFORMED),
    "truncated": (lambda _: saved(planted())[:5000], RejectCode.FEATURES_MALFORMED),
    "empty": (lambda _: b"", RejectCode.FEATURES_MALFORMED),
    "page": (lambda _: b"<html>403</html>", RejectCode.FEATURES_MALFORMED),
    "dictionary": (lambda _: saved({"features": planted()}), RejectCode.FEATURES_MALFORMED),
    "other width": (lambda _: saved(planted()[:, :768]), RejectCode.FEATURES_MALFORMED),
    "two views": (lambda _: saved(planted()[:, None].repeat(1, 2, 1)), RejectCode.FEATURES_MALFORMED),
    "integers": (lambda _: saved(planted().long()), RejectCode.FEATURES_MALFORMED),
    "no rows": (lambda _: saved(planted()[:0]), RejectCode.FEATURES_MALFORMED),
    "half the rows": (lambda _: saved(planted()[:7]), RejectCode.FEATURES_LENGTH),
    "another video": (lambda _: saved(planted(20.0)), RejectCode.FEATURES_LENGTH),
}


def test_a_broken_file_costs_its_take_with_a_reason_and_no_code_of_it_runs(tmp_path: Path) -> None:
    for kind, (make, code) in BROKEN.items():
        shards = compute(tmp_path, {PATH: make(tmp_path)})
        assert shards.codes("egoexo4d:a") == [code], kind
        assert shards.rejects["egoexo4d:a"][0].n_units == len(SPANS)
        assert not (tmp_path / "executed").exists(), kind
    with pytest.MonkeyPatch.context() as patch:  # the fault: were the file loaded without care, it would run
        patch.setattr(torch, "load", lambda file, **_: pickle.load(file))
        compute(tmp_path, {PATH: BROKEN["bare pickle"][0](tmp_path)})
        assert (tmp_path / "executed").exists()


def test_a_missing_file_is_a_reject_that_names_both_places_and_a_number_too_large_costs_its_segment_alone(
    tmp_path: Path,
) -> None:
    (lost,) = compute(tmp_path, {}).rejects["egoexo4d:a"]
    assert (lost.code, PATH in lost.detail, SHORT_PATH in lost.detail) == (RejectCode.FEATURES_MISSING, True, True)
    rows = planted()
    rows[0, 3] = float("nan")
    rows[-1, 3] = 1e6
    shards = compute(tmp_path, {PATH: saved(rows)})
    assert shards.codes("egoexo4d:a") == [RejectCode.FEATURE_NOT_FINITE] * 2
    assert shards.tables["egoexo4d:a"].num_rows == len(SPANS) - 2


SLOWFAST = RELEASED["epic_slowfast"]
PATHS = {OMNIVORE_VIDEO.name: PATH, SLOWFAST.name: "epic_kitchens/features/clip.npz"}


def of_set(folder: Path, of: ReleasedFeatures, content: bytes | np.ndarray | None, **changes: object) -> Shards:
    """Run the stage on the same segments with the rows of one set, or with a file in their place."""
    cfg = FeatureConfig(source="released", released=of.name, precision="fp32").replace(**changes)
    if isinstance(content, np.ndarray):
        content = written(of, content)
    return compute(folder, {} if content is None else {PATHS[of.name]: content}, cfg)


def written(released: ReleasedFeatures, rows: np.ndarray) -> bytes:
    return zipped(feats=rows) if released.suffix == ".npz" else saved(torch.from_numpy(rows.copy()))


def array_bytes(rows: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=rows.dtype == object)
    return buffer.getvalue()


def zipped(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in arrays.items():
            archive.writestr(f"{name}.npy", array_bytes(rows))
    return buffer.getvalue()


def test_each_segment_gets_the_rows_of_its_own_time_and_a_shift_by_one_row_is_seen(tmp_path: Path) -> None:
    """Numbers of any size and order of bytes are read as what they say."""
    for released in (OMNIVORE_VIDEO, SLOWFAST):
        rows, row_s = planted(released=released).numpy(), released.clock.stride / released.clock.rate_hz
        right = of_set(tmp_path, released, rows)
        assert right.rejects["egoexo4d:a"] == []
        moved = times_of(of_set(tmp_path, released, np.roll(rows, 1, axis=0)))[1]
        found = times_of(right)[1]
        assert abs(found - sum(SPANS[1]) / 2) < row_s / 2 + 0.02
        assert found - moved == pytest.approx(row_s, abs=0.02)
        kinds = ["f2", "f8"] if released.suffix.endswith(".pt") else ["f2", "f8", ">f4"]
        for change in (rows[:, None], *map(rows.astype, kinds)):
            np.testing.assert_allclose(times_of(of_set(tmp_path, released, change)), times_of(right), atol=0.02)


def test_a_missing_a_hostile_a_strange_and_a_short_file_cost_their_take_and_run_no_code(tmp_path: Path) -> None:
    target = tmp_path / "executed"
    rows = planted(released=SLOWFAST).numpy()
    for code, *contents in (
        (RejectCode.FEATURES_MISSING, None),
        (RejectCode.FEATURES_MALFORMED, np.array([Marker(target)], object), written(SLOWFAST, rows)[:300]),
        (RejectCode.FEATURES_MALFORMED, rows[:, :-1], rows.astype(np.int64)),
        (RejectCode.FEATURES_LENGTH, rows[: len(rows) // 2]),
    ):
        for content in contents:
            assert of_set(tmp_path, SLOWFAST, content).codes("egoexo4d:a") == [code]
    assert not target.exists()


def test_an_archive_without_its_array_or_that_would_fill_the_memory_costs_its_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = planted(released=SLOWFAST).numpy()
    assert not of_set(tmp_path, SLOWFAST, zipped(other=rows, feats=rows)).rejects["egoexo4d:a"]
    (found,) = of_set(tmp_path, SLOWFAST, zipped(features=rows)).rejects["egoexo4d:a"]
    assert "contains features.npy of None bytes, expected feats.npy" in found.detail
    bad_sum = bytearray(zipped(feats=rows))
    bad_sum[len(bad_sum) // 2] ^= 0xFF
    for content in (bytes(bad_sum), array_bytes(rows)):
        assert of_set(tmp_path, SLOWFAST, content).codes("egoexo4d:a") == [RejectCode.FEATURES_MALFORMED]
    monkeypatch.setattr("trajpilot_core.encoders.released.LARGEST", rows.nbytes)  # with its header it is more
    (found,) = of_set(tmp_path, SLOWFAST, rows).rejects["egoexo4d:a"]
    assert f"of at most {rows.nbytes:,}" in found.detail


def test_tokens_are_rows_inside_the_segment_in_the_order_of_time_and_none_sees_what_comes_after(tmp_path: Path) -> None:
    shards = of_set(tmp_path, SLOWFAST, planted(released=SLOWFAST).numpy(), tokens="temporal", n_frames=8)
    table = shards.tables["egoexo4d:a"]
    assert (table.schema.metadata or {})[b"tokens"] == b"4"
    assert shards.codes("egoexo4d:a") == [RejectCode.FEATURES_OUTSIDE]  # the segment that is shorter than a row
    for row in table.to_pylist():
        start_s, end_s = SPANS[int(row["segment_id"].rpartition(":")[2])]
        times_s = np.array(row["vector"]).reshape(4, -1)[:, 0]
        spans_s = np.array(row["frame_times_s"]).reshape(4, 2)
        np.testing.assert_allclose(times_s, spans_s.mean(axis=1), atol=0.01)
        assert (np.diff(times_s) >= 0).all()
        assert spans_s.min() >= start_s
        assert spans_s.max() <= end_s


def test_rows_of_actionformers_files_never_move_back_to_the_end() -> None:
    clock = SLOWFAST.clock
    assert [clock.n_rows(n) for n in (20, 32, 39, 48)] == [1, 1, 1, 2]
    spans_s = clock.spans_s(4, 70)  # a file with one more than the three of 70 frames keeps the stride
    assert (spans_s[:, 0] * 30).tolist() == [0, 16, 32, 48]
    index = (spans_s.mean(axis=1) * 30 - 0.5 * 32) / 16  # how ActionFormer asks for a time
    assert index.tolist() == [0, 1, 2, 3]
