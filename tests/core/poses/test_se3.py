"""Properties of rigid motions and of the 16 relative motions."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.spatial.transform import Rotation, Slerp

from schemas.annotation import KNOTS
from trajpilot_core.poses import geometry
from trajpilot_core.poses.aria.closed_loop import PoseStream
from trajpilot_core.poses.geometry import Poses
from trajpilot_core.poses.motions import bracket, relative_motions, sample

EXAMPLES = settings(max_examples=30, derandomize=True, deadline=None)
vectors = st.floats(-3, 3, allow_subnormal=False)


def turned(rotation_vectors: np.ndarray) -> np.ndarray:
    return np.asarray(Rotation.from_rotvec(rotation_vectors).as_quat())


@st.composite
def poses(draw: st.DrawFn, n: int = KNOTS) -> Poses:
    """Draw n motions; rotations of any angle, identity included."""
    rotation_vectors = draw(arrays(float, (n, 3), elements=vectors))
    return Poses(turned(rotation_vectors), draw(arrays(float, (n, 3), elements=vectors)))


def as_matrices(p: Poses) -> np.ndarray:
    matrices = np.tile(np.eye(4), (len(p.t_m), 1, 1))
    matrices[:, :3, :3], matrices[:, :3, 3] = Rotation.from_quat(p.q_xyzw).as_matrix(), p.t_m
    return matrices


def stream_of(p: Poses, stamp_us: np.ndarray) -> PoseStream:
    n = len(stamp_us)
    return PoseStream(stamp_us, p, np.zeros(n, np.uint32), np.ones(n), np.ones(n, bool), True)


def motions_of(p: Poses, stamp_us: np.ndarray, knots_ns: np.ndarray) -> np.ndarray:
    stream = stream_of(p, stamp_us)
    return relative_motions(sample(stream, bracket(stream, knots_ns)), len(knots_ns))


def chain(motions: np.ndarray) -> np.ndarray:
    """Return the product of the motions of one segment, (16, 6) -> (4, 4)."""
    return np.linalg.multi_dot(list(as_matrices(Poses(turned(motions[:, 3:]), motions[:, :3]))))


@EXAMPLES
@given(poses(2), st.floats(0, 1), st.booleans())
def test_slerp_agrees_with_scipy(p: Poses, fraction: float, flip: bool) -> None:
    q0, q1 = p.q_xyzw[:1], p.q_xyzw[1:] * (-1 if flip else 1)
    if abs(float(np.sum(q0 * q1))) < 1e-3:
        return  # half a turn apart: both ways are as short
    ours = Rotation.from_quat(geometry.slerp(q0, q1, np.array([fraction])))
    theirs = Slerp([0, 1], Rotation.from_quat(np.vstack([q0, q1])))(fraction)
    assert (ours * theirs.inv()).magnitude().max() < 1e-12


def test_slerp_of_equal_nearly_equal_and_unnormalised_quaternions_is_exact() -> None:
    q0 = Rotation.from_rotvec(np.tile([0.3, -0.2, 0.5], (3, 1)))
    step = np.array([[0.0, 0, 0], [1e-12, 0, 0], [1e-5, 2e-5, 0]])
    q1 = q0 * Rotation.from_rotvec(step)
    found = Rotation.from_quat(geometry.slerp(1.0005 * q0.as_quat(), -0.9995 * q1.as_quat(), np.full(3, 0.25)))
    assert_allclose((q0.inv() * found).as_rotvec(), 0.25 * step, atol=1e-15)


@EXAMPLES
@given(poses(), poses(1))
def test_a_change_of_world_frame_does_not_change_the_motions(p: Poses, world: Poses) -> None:
    moved = geometry.compose(Poses(np.tile(world.q_xyzw, (KNOTS, 1)), np.tile(world.t_m, (KNOTS, 1))), p)
    here, there = relative_motions(p, 1)[0], relative_motions(moved, 1)[0]
    assert_allclose(
        as_matrices(Poses(turned(here[:, 3:]), here[:, :3])),
        as_matrices(Poses(turned(there[:, 3:]), there[:, :3])),
        atol=1e-11,
    )


@EXAMPLES
@given(poses())
def test_the_sixteen_motions_lead_from_the_first_pose_to_the_last(p: Poses) -> None:
    matrices = as_matrices(p)
    assert_allclose(matrices[0] @ chain(relative_motions(p, 1)[0]), matrices[-1], atol=1e-10)


@EXAMPLES
@given(arrays(float, 3, elements=vectors), st.floats(-2, 2), st.floats(-0.5, 0.5), st.integers(0, 2**32 - 1))
def test_a_constant_screw_is_resampled_exactly(axis: np.ndarray, turn: float, pitch: float, seed: int) -> None:
    axis = axis / max(np.linalg.norm(axis), 1e-9) if np.linalg.norm(axis) > 1e-3 else np.array([1.0, 0, 0])
    stamp_us = np.cumsum(np.random.default_rng(seed).integers(1, 1180, 3000))
    t_s = stamp_us * 1e-6
    p = Poses(turned(t_s[:, None] * turn * axis), t_s[:, None] * pitch * axis)
    knots_ns = np.linspace(stamp_us[0], stamp_us[-1], KNOTS)[None] * 1000
    step_s = (stamp_us[-1] - stamp_us[0]) * 1e-6 / (KNOTS - 1)
    motions = motions_of(p, stamp_us, np.rint(knots_ns).astype(np.int64))
    expected = np.concatenate([step_s * pitch * axis, step_s * turn * axis])
    assert_allclose(motions, np.tile(expected, (1, KNOTS - 1, 1)), atol=1e-8)  # knots are whole nanoseconds


def test_resampling_agrees_with_scipy_to_1e_9() -> None:
    rng = np.random.default_rng(3)
    stamp_us = np.cumsum(rng.integers(1, 1180, 20_000))
    slow = np.sin(stamp_us[:, None] * 1e-6 * rng.uniform(0.5, 3, 3) + rng.uniform(0, 6, 3))
    p = Poses(turned(slow), slow * 2)
    start = np.linspace(stamp_us[0] + 1, stamp_us[-1] - 2e6, 8)
    knots_ns = np.rint((start[:, None] + np.linspace(0, 1.9e6, KNOTS)) * 1000).astype(np.int64)
    expected = []
    for row in knots_ns:
        rotation = Slerp(stamp_us * 1000.0, Rotation.from_quat(p.q_xyzw))(row)
        position = np.stack([np.interp(row, stamp_us * 1000.0, p.t_m[:, k]) for k in range(3)], axis=1)
        back = rotation[:-1].inv()
        expected.append(np.hstack([back.apply(np.diff(position, axis=0)), (back * rotation[1:]).as_rotvec()]))
    assert np.abs(motions_of(p, stamp_us, knots_ns) - np.array(expected)).max() < 1e-9


def test_a_knot_on_a_row_takes_that_row_and_the_last_row_is_covered() -> None:
    stamp_us = np.array([10, 20, 20, 30])
    p = Poses(np.tile([0.0, 0, 0, 1], (4, 1)), np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]]))
    found = bracket(stream_of(p, stamp_us), np.array([[9_999, 10_000, 20_000, 29_999, 30_000, 30_001]]))
    assert found.covered.tolist() == [[False, True, True, True, True, False]]
    assert found.low[0, 1:5].tolist() == [0, 2, 2, 2]
    assert found.fraction[0, [1, 2, 4]].tolist() == [0.0, 0.0, 1.0]
