"""The stage `features` on released files: which rows stand for a segment, and what is refused with a reason."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from test_features import Shards, Tables, take

from schemas.annotation import Segment, Take
from schemas.config import FeatureConfig, PipelineConfig, RunOptions
from schemas.rejects import RejectCode
from trajpilot_core.corpora.released import OMNIVORE_VIDEO, RowClock
from trajpilot_core.engine.resolve import resolve_config
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.stages.features import STAGE

CONFIG = FeatureConfig(source="released", precision="fp32")
LENGTH_S, WIDTH = 8.0, OMNIVORE_VIDEO.width
SPANS = ((0.0, 3.0), (2.1, 4.7), (5.0, 5.4), (6.5, 8.0))
"""The third is shorter than a window."""
PATH = "features/omnivore_video/a_aria01_rgb.pt"
ONE_ROW_S = 16 / 30


def recorded() -> Take:
    return take("a").replace(take_id="egoexo4d:a", camera="aria01_214-1", duration_s=LENGTH_S)


def segments() -> list[Segment]:
    given = {"split": "train", "run": 0, "raw_text": "", "label": "l", "label_id": "l", "annotation_uid": "u"}
    return [
        Segment(
            segment_id=f"egoexo4d:a:{n}",
            take_id="egoexo4d:a",
            position=n,
            start_s=start_s,
            end_s=end_s,
            anchor_s=start_s,
            annotator="",
            **given,
        )
        for n, (start_s, end_s) in enumerate(SPANS)
    ]


def planted(duration_s: float = LENGTH_S) -> torch.Tensor:
    """Rows whose every number is the centre of their window: a segment's vector tells which time it stands for."""
    clock = OMNIVORE_VIDEO.clock
    n_frames = clock.n_frames(duration_s)
    centres = clock.spans_s(clock.n_rows(n_frames), n_frames).mean(axis=1)
    return torch.tensor(np.repeat(centres[:, None], WIDTH, axis=1), dtype=torch.float32)


def saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def compute(folder: Path, files: dict[str, bytes], cfg: FeatureConfig = CONFIG) -> Shards:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    inputs, shards = Tables([recorded()], segments()), Shards()
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
    overhangs = table["overhang_s"].to_pylist()
    assert overhangs[:2] == [0.0, 0.0]
    assert overhangs[2] == pytest.approx(32 / 30 - 0.4)
    assert set(table["encoder"].to_pylist()) == {"released:omnivore_video"}
    assert is_in_place(times_of(shards))


def test_a_file_that_is_shifted_by_one_row_is_seen_by_the_planted_signal(tmp_path: Path) -> None:
    shifted = torch.roll(planted(), 1, dims=0)
    assert not is_in_place(times_of(compute(tmp_path, {PATH: saved(shifted)})))


def test_shape_and_dtype_of_a_file_change_no_vector(tmp_path: Path) -> None:
    rows = planted()
    expected = times_of(compute(tmp_path, {PATH: saved(rows)}))
    for as_released in (rows[:, None], rows.half(), rows.double(), rows.bfloat16(), rows.T.contiguous().T):
        np.testing.assert_allclose(times_of(compute(tmp_path, {PATH: saved(as_released)})), expected, atol=0.02)


def test_both_paths_are_read(tmp_path: Path) -> None:
    short = PATH.replace("omnivore_video/", "")
    assert is_in_place(times_of(compute(tmp_path, {short: saved(planted())})))


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


BROKEN: dict[str, tuple[Callable[[Path], bytes], RejectCode]] = {
    "hostile": (lambda folder: saved(Hostile(folder / "executed")), RejectCode.FEATURES_MALFORMED),
    "bare pickle": (lambda folder: pickle.dumps(Hostile(folder / "executed")), RejectCode.FEATURES_MALFORMED),
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


def test_a_missing_file_is_a_reject_that_names_both_places(tmp_path: Path) -> None:
    shards = compute(tmp_path, {})
    assert shards.codes("egoexo4d:a") == [RejectCode.FEATURES_MISSING]
    detail = shards.rejects["egoexo4d:a"][0].detail
    assert PATH in detail
    assert PATH.replace("omnivore_video/", "") in detail


def test_a_number_that_float16_cannot_hold_costs_the_segment_alone(tmp_path: Path) -> None:
    rows = planted()
    rows[0, 3] = float("nan")
    rows[-1, 3] = 1e6
    shards = compute(tmp_path, {PATH: saved(rows)})
    assert shards.codes("egoexo4d:a") == [RejectCode.FEATURE_NOT_FINITE] * 2
    assert shards.tables["egoexo4d:a"].num_rows == len(SPANS) - 2


def test_settings_of_released_features_are_the_same_on_every_machine() -> None:
    base = PipelineConfig()
    config = base.replace(features=base.features.replace(source="released"))
    assert resolve_config(STAGE, config, RunOptions(device="cpu")).precision == "fp32"
