"""Released features of Ego4D, EgoPER and EPIC-KITCHENS-100: where files lie, which time a row stands for, faults."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from test_features import Shards, Tables, take
from test_released_features import SPANS, Hostile, saved, segments

from schemas.annotation import Take
from schemas.config import FeatureConfig
from schemas.features import ReleasedName
from schemas.rejects import RejectCode
from schemas.world import tiny_world
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.corpora.released import RELEASED, ReleasedFeatures
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.stages.features import STAGE

LENGTH_S = 8.0
SWINL, I3D, SLOWFAST = (RELEASED[name] for name in ("omnivore_video_swinl", "egoper_i3d", "epic_slowfast"))
PATHS = {
    SWINL.name: "v2/omnivore_video_swinl/clip.pt",
    I3D.name: "Tea/features_10fps/clip.npy",
    SLOWFAST.name: "epic_kitchens/features/clip.npz",
}


def recorded() -> Take:
    known = {"take_id": "egoexo4d:a", "name": "clip", "video": "Tea/trim_videos/clip.mp4", "duration_s": LENGTH_S}
    return take("a").replace(**known)


def compute(folder: Path, name: ReleasedName, content: bytes | None, **changes: object) -> Shards:
    """Run the stage on one take whose segments are those of test_released_features."""
    if content is not None:
        path = folder / PATHS[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    cfg = FeatureConfig(source="released", released=name, precision="fp32").replace(**changes)
    inputs = Tables([recorded()], segments())
    assert STAGE.sources is not None
    pending, shards = tuple(STAGE.sources(inputs, cfg, "")), Shards()  # type: ignore[arg-type]
    runtime = Runtime(str(folder), "cpu", 1, folder / "scratch")
    STAGE.run(Work(inputs, cfg, pending, shards, runtime))  # type: ignore[arg-type]
    return shards


def planted(released: ReleasedFeatures) -> np.ndarray:
    """Rows whose every number is the centre of their window, seconds."""
    n_frames = released.clock.n_frames(LENGTH_S)
    centres = released.clock.spans_s(released.clock.n_rows(n_frames), n_frames).mean(axis=1)
    return np.repeat(centres[:, None], released.width, axis=1).astype(np.float32)


def written(released: ReleasedFeatures, rows: np.ndarray) -> bytes:
    if released.suffix == ".pt":
        return saved(torch.from_numpy(rows.copy()))
    return zipped(feats=rows) if released.suffix == ".npz" else array_bytes(rows)


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


def times_of(shards: Shards) -> np.ndarray:
    return np.array([vector[0] for vector in shards.tables["egoexo4d:a"]["vector"].to_pylist()])


SETS = (SWINL, I3D, SLOWFAST)


def test_each_segment_gets_the_rows_of_its_own_time_and_a_shift_by_one_row_is_seen(tmp_path: Path) -> None:
    for released in SETS:
        rows, row_s = planted(released), released.clock.stride / released.clock.rate_hz
        right = compute(tmp_path, released.name, written(released, rows))
        assert right.rejects["egoexo4d:a"] == []
        shifted = compute(tmp_path, released.name, written(released, np.roll(rows, 1, axis=0)))
        found, moved = times_of(right)[1], times_of(shifted)[1]  # centres of EgoPER's rows end 3.2 s before the video
        assert abs(found - sum(SPANS[1]) / 2) < row_s / 2 + 0.02
        assert found - moved == pytest.approx(row_s, abs=0.02)
        for change in (rows[:, None], rows.astype(np.float16), rows.astype(np.float64)):
            same = times_of(compute(tmp_path, released.name, written(released, change)))
            np.testing.assert_allclose(same, times_of(right), atol=0.02)


def test_big_endian_numbers_are_read_as_what_they_say(tmp_path: Path) -> None:
    found = times_of(compute(tmp_path / "a", I3D.name, written(I3D, planted(I3D).astype(">f4"))))
    assert found.tolist() == times_of(compute(tmp_path / "b", I3D.name, written(I3D, planted(I3D)))).tolist()


def test_a_missing_a_hostile_a_strange_and_a_short_file_cost_their_take_and_run_no_code(tmp_path: Path) -> None:
    for released in SETS:
        folder = tmp_path / released.name
        folder.mkdir()
        target, rows = folder / "executed", planted(released)
        hostile = np.array([Hostile(target)], object)
        malicious = saved(Hostile(target)) if released is SWINL else written(released, hostile)
        planted_faults = {
            RejectCode.FEATURES_MISSING: [None],
            RejectCode.FEATURES_MALFORMED: [
                malicious,
                written(released, rows)[:300],
                written(released, rows[:, :-1]),
                written(released, rows.astype(np.int64)),
            ],
            RejectCode.FEATURES_LENGTH: [written(released, rows[: len(rows) // 2])],
        }
        for code, contents in planted_faults.items():
            for content in contents:
                assert compute(folder, released.name, content).codes("egoexo4d:a") == [code]
        assert not target.exists()


def test_an_archive_without_its_array_or_that_would_fill_the_memory_costs_its_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = planted(SLOWFAST)
    assert not compute(tmp_path, SLOWFAST.name, zipped(other=rows, feats=rows)).rejects["egoexo4d:a"]
    found = compute(tmp_path, SLOWFAST.name, zipped(features=rows)).rejects["egoexo4d:a"]
    assert "contains features.npy of None bytes, expected feats.npy" in found[0].detail
    bad_sum = bytearray(written(SLOWFAST, rows))
    bad_sum[len(bad_sum) // 2] ^= 0xFF
    assert compute(tmp_path, SLOWFAST.name, bytes(bad_sum)).codes("egoexo4d:a") == [RejectCode.FEATURES_MALFORMED]
    assert compute(tmp_path, SLOWFAST.name, array_bytes(rows)).codes("egoexo4d:a") == [RejectCode.FEATURES_MALFORMED]
    monkeypatch.setattr("trajpilot_core.encoders.released.LARGEST", rows.nbytes)  # with its header it is more
    found = compute(tmp_path, SLOWFAST.name, zipped(feats=rows)).rejects["egoexo4d:a"]
    assert f"of at most {rows.nbytes:,}" in found[0].detail


def test_tokens_are_rows_inside_the_segment_in_the_order_of_time_and_none_sees_what_comes_after(tmp_path: Path) -> None:
    shards = compute(tmp_path, SLOWFAST.name, written(SLOWFAST, planted(SLOWFAST)), tokens="temporal", n_frames=8)
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


def test_rows_of_actionformers_files_never_move_back_to_the_end_of_the_video() -> None:
    clock = SLOWFAST.clock
    assert [clock.n_rows(n) for n in (20, 32, 39, 48)] == [1, 1, 1, 2]
    spans_s = clock.spans_s(4, 70)  # a file with one more than the three of 70 frames keeps the stride
    assert (spans_s[:, 0] * 30).tolist() == [0, 16, 32, 48]
    index = (spans_s.mean(axis=1) * 30 - 0.5 * 32) / 16  # how ActionFormer asks for a time
    assert index.tolist() == [0, 1, 2, 3]


def test_a_row_of_egoper_looks_back_and_sees_less_at_the_start() -> None:
    spans_s = I3D.clock.spans_s(80, 80)
    assert (I3D.clock.n_rows(80), spans_s[0].tolist(), spans_s[-1].tolist()) == (80, [0.0, 0.1], [1.6, 8.0])
    assert spans_s[70].tolist() == pytest.approx([0.7, 7.1])


def test_the_sets_are_of_the_corpora_that_publish_them_and_no_world_pretends_to_have_them() -> None:
    known = {name: [one.name for one in spec.released] for name, spec in CORPORA.items() if spec.released}
    assert known["goalstep"] == ["omnivore_video_swinl"]
    assert known["egoper"] == ["egoper_i3d"]
    assert known["epic_kitchens"] == ["epic_slowfast"]
    with pytest.raises(ValueError, match="no simulated world has features called egoper_i3d"):
        tiny_world().replace(released="egoper_i3d")
