"""The simulated world before any file: procedures, intents, motion; and the Aria files made from the motion."""

import hashlib
import io
import itertools
import json
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from drawn_tables import middle_world, motions_table, world_tables
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial.transform import Rotation

from schemas.config import IngestConfig
from schemas.world import WorldConfig, tiny_world
from trajpilot_core.errors import WorldError
from trajpilot_core.simworld.faults import TAKE_FAULTS
from trajpilot_core.simworld.layouts import aria
from trajpilot_core.simworld.layouts.annotate import paraphrase_csv
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.motion import head_motion, head_poses
from trajpilot_core.simworld.world.truth import SegmentTruth, TakeTruth, World


@pytest.fixture(scope="module")
def demo() -> World:
    return sample_world(middle_world())


@pytest.fixture(scope="module")
def crowd() -> World:
    """Many takes, none broken."""
    return sample_world(middle_world().replace(train_takes=600, test_takes=1, broken="none"))


@pytest.fixture(scope="module")
def tiny() -> World:
    return sample_world(tiny_world())


def good(world: World) -> list[TakeTruth]:
    return [take for take in world.takes if take.fault is None]


def poses_of(world: World, take: TakeTruth) -> pl.DataFrame:
    return pl.read_csv(io.StringIO(aria.trajectory_csv(world, take, head_motion(world, take))))


def numbers(table: pl.DataFrame, *names: str) -> np.ndarray:
    return table.select(names).to_numpy()


def test_every_take_fault_occurs_and_comes_on_top_of_the_good_takes(demo: World, tiny: World) -> None:
    for world in (demo, tiny):
        assert {t.fault for t in world.takes} == {None, *TAKE_FAULTS}
        assert len(good(world)) == world.config.train_takes + world.config.test_takes


def test_a_capture_lies_in_one_split_and_holds_one_operator_and_ordered_rows(demo: World) -> None:
    for number, capture in enumerate(demo.captures):
        inside = [t for t in demo.takes if t.capture == number]
        assert len({t.split for t in inside}) == 1
        end = 0
        for take in inside:
            assert take.first_row > end
            end = take.first_row + take.n_frames
        assert end < capture.rows


def test_steps_follow_the_intent_and_advance_as_configured(crowd: World) -> None:
    world, config = crowd, crowd.config
    preferred, advance = [], []
    for take in world.takes:
        labels = [world.labels[s.label] for s in take.segments]
        assert {x.task for x in labels} == {take.task}
        preferred += [world.preferred[take.intent, x.task, x.position] == x.alternative for x in labels]
        advance += [(b.position - a.position) % config.positions for a, b in itertools.pairwise(labels)]
    assert np.mean(preferred) == pytest.approx(config.rho + (1 - config.rho) / config.alternatives, abs=0.01)
    assert np.bincount(advance, minlength=4) / len(advance) == pytest.approx(config.advance, abs=0.015)


def test_no_two_labels_share_a_text(demo: World) -> None:
    crowded = tiny_world().replace(tasks=18, positions=20, alternatives=1)
    for world in (demo, sample_world(WorldConfig(fps=10, size_px=192)), sample_world(crowded)):
        texts = [text for label in world.labels for text in label.texts]
        assert len(set(texts)) == len(texts)
        rows = paraphrase_csv(world).splitlines()
        assert rows[0] == "text,label_id"
        assert len(rows) == len(texts) + 1
    with pytest.raises(WorldError, match="lower `tasks` or `positions` of the world"):
        sample_world(tiny_world().replace(tasks=20, positions=20))


def test_without_information_the_motion_knows_nothing_of_labels() -> None:
    silent = sample_world(tiny_world().replace(kappa=0.0, style=0.0))
    quiet = sample_world(tiny_world().replace(kappa=0.0, style=0.0, motion_noise=0.0))
    loud = sample_world(tiny_world())
    for off, none, on in zip(silent.takes, quiet.takes, loud.takes, strict=True):
        for a, b, c in zip(off.segments, none.segments, on.segments, strict=True):
            assert not b.motion.any()
            operator = loud.captures[on.capture].operator
            told = (
                loud.config.kappa * loud.motion_labels[c.label]
                + loud.config.style * loud.motion_styles[operator, on.intent]
            )
            assert c.motion - told == pytest.approx(a.motion)


def test_durations_and_numbers_of_steps_do_not_tell_the_label(crowd: World) -> None:
    """The planted fault: a duration that follows the label."""
    world = crowd
    by_label: list[list[SegmentTruth]] = [[] for _ in world.labels]
    for segment in (s for t in good(world) for s in t.segments):
        by_label[segment.label].append(segment)
    lengths = [[s.end_s - s.start_s for s in segments] for segments in by_label]
    late = [[s.time_s - (s.start_s + s.end_s) / 2 for s in segments] for segments in by_label]
    counts = [[len(t.segments) for t in good(world) if t.task == task] for task in range(world.config.tasks)]
    assert all(stats.f_oneway(*groups).pvalue > 0.001 for groups in (lengths, late, counts))
    leaking = [[length + 0.01 * (label % 7) for length in own] for label, own in enumerate(lengths)]
    assert stats.f_oneway(*leaking).pvalue < 0.001


def test_the_trajectory_file_has_the_columns_and_conventions_of_the_real_one(demo: World) -> None:
    take = next(t for t in demo.takes if t.dense)
    table = poses_of(demo, take)
    assert ",".join(table.columns).startswith(aria.COLUMNS)
    clock = numbers(table, "tracking_timestamp_us")[:, 0]
    steps = np.diff(clock)
    assert steps.min() >= 1
    assert steps.max() < 1200
    assert 995 < 1e6 / steps.mean() < 1030
    assert len(np.unique(steps)) > 5
    quaternion = numbers(table, *(f"q{c}_world_device" for c in "xyzw"))
    assert np.abs(np.linalg.norm(quaternion, axis=1) - 1).max() < 1e-8
    up = Rotation.from_quat(quaternion).inv().apply([0.0, 0.0, 1.0])
    assert up[:, 0].mean() < -0.8
    assert set(numbers(table, "gravity_z_world")[:, 0]) == {-9.81}


def test_calibration_takes_the_device_to_the_head_camera(demo: World) -> None:
    take = good(demo)[2]
    first = json.loads(aria.calibration_jsonl(demo, take).splitlines()[0])
    rgb = next(c for c in first["CameraCalibrations"] if c["Label"] == "camera-rgb")["T_Device_Camera"]
    w, (x, y, z) = rgb["UnitQuaternion"]
    device_rgb = Rotation.from_quat([x, y, z, w])
    assert np.rad2deg(device_rgb.magnitude()) == pytest.approx(39.4, abs=0.01)
    table = poses_of(demo, take)
    frame0 = aria.frame_clock_ns(demo, demo.captures[take.capture], np.array([take.first_row]))[0] / 1e3
    t_s = (numbers(table, "tracking_timestamp_us")[:, 0] - frame0) / 1e6
    head, _ = head_poses(head_motion(demo, take), t_s)
    world_rgb = Rotation.from_quat(numbers(table, *(f"q{c}_world_device" for c in "xyzw"))) * device_rgb
    upright = world_rgb * Rotation.from_matrix(aria.RGB_FROM_UPRIGHT)
    apart = (upright[:-50].inv() * upright[50:]) * (
        Rotation.from_matrix(head[:-50]).inv() * Rotation.from_matrix(head[50:])
    ).inv()
    assert apart.magnitude().max() < 1e-6


def test_timesync_rows_are_the_frame_times_of_the_trajectory_clock(demo: World) -> None:
    take = good(demo)[0]
    capture = demo.captures[take.capture]
    table = pl.read_csv(io.StringIO(aria.timesync_csv(demo, capture)))
    ns = table[f"{capture.camera}_214-1_capture_timestamp_ns"].to_numpy()
    assert len(ns) == capture.rows
    assert np.abs(np.diff(ns) - 1e9 / demo.config.fps).max() <= 1
    clock = numbers(poses_of(demo, take), "tracking_timestamp_us")[:, 0]
    assert clock[0] * 1e3 < ns[take.first_row]
    assert clock[-1] * 1e3 > ns[take.first_row + take.n_frames - 1]


WORDS = {
    "takes": "5696d884040e4c97",
    "segments": "c92619644cf5b804",
    "labels": "05b821d4e9bb8d26",
    "windows": "de4ce94fad8db8d9",
}
"""First 16 digits of sha256 over the texts and whole numbers of each table."""
NUMBERS = {
    "takes.duration_s": 0.1483267577,
    "takes.fps": 0.1480837827,
    "segments.start_s": 0.009005417894,
    "segments.end_s": 0.008591951473,
    "segments.anchor_s": 0.008943681131,
    "truth": -0.01522290474,
    "motions": 0.002614158499,
}
"""Of the other numbers: `weighed`."""
CLOSE = 8 * float(np.finfo(np.float32).eps)
"""Motions are stored in float32: a mean of numbers of at most 1 is off by a few roundings at most."""
COLUMNS = (
    ("takes", "duration_s"),
    ("takes", "fps"),
    ("segments", "start_s"),
    ("segments", "end_s"),
    ("segments", "anchor_s"),
)
"""Those of float64."""
SMALL = {"broken": "none", "train_takes": 6, "test_takes": 3, "seed": 7}


def test_a_small_world_has_the_recorded_tables_and_motions() -> None:
    """A failure means that every simulated result is of another world.

    Renew, only with that intent, by pasting what the comparison prints.
    """
    words, numbers = described()
    assert words == WORDS
    assert numbers == pytest.approx(NUMBERS, rel=0, abs=CLOSE)


def test_a_changed_world_is_seen() -> None:
    """The planted faults: other motion alone, other looks alone, and other draws."""
    assert changed(kappa=1.0) == {"truth", "motions"}
    assert changed(label_appearance=1.0) == {"truth"}
    assert changed(seed=8) >= {"segments", "windows", "truth", "motions"}


def changed(**changes: Any) -> set[str]:
    """Names of what is not as recorded."""
    words, numbers = described(**changes)
    other = {name for name in WORDS if words[name] != WORDS[name]}
    return other | {name for name in NUMBERS if abs(numbers[name] - NUMBERS[name]) > CLOSE}


def described(**changes: Any) -> tuple[dict[str, str], dict[str, float]]:
    """Words and numbers of the tables, of what is true, and of the motions."""
    world = sample_world(WorldConfig(fps=10, size_px=192).replace(**{**SMALL, **changes}))
    tables = world_tables(world, IngestConfig(central_share=0.6, dev_min=1))
    by_name: dict[str, pa.Table] = {name: getattr(tables, name) for name in ("takes", "segments", "labels", "windows")}
    words = {name: words_digest(table) for name, table in by_name.items()}
    truth = [[*segment.motion, *segment.look, segment.place] for take in world.takes for segment in take.segments]
    motions = motions_table(world, tables.segments)["motions"].to_numpy(zero_copy_only=False)
    arrays = {f"{name}.{column}": by_name[name][column].to_numpy() for name, column in COLUMNS}
    arrays |= {"truth": np.array(truth), "motions": np.stack(motions)}
    return words, {name: weighed(values) for name, values in arrays.items()}


def words_digest(table: pa.Table) -> str:
    exact = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    return hashlib.sha256(json.dumps(table.select(exact).to_pylist(), sort_keys=True).encode()).hexdigest()[:16]


def weighed(values: NDArray[np.floating[Any]]) -> float:
    """The mean of the numbers, divided by the largest, each times a weight of its place."""
    flat = values.astype(np.float64).ravel()
    return float((flat * np.cos(np.arange(flat.size))).mean() / np.abs(flat).max())
