"""The files that a pair of Aria glasses and its MPS service leave: closed-loop trajectory, calibration, timesync.

Conventions (Project Aria documentation): device frame = left SLAM camera, x down, y left, z ahead; raw RGB camera the
same way round, turned against it by 39.4 degrees; quaternions x, y, z, w in the trajectory, w first in the calibration.
"""

import json

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from trajpilot_core.arrays import Array
from trajpilot_core.simworld.world.motion import HeadMotion, head_poses
from trajpilot_core.simworld.world.render import camera_matrix
from trajpilot_core.simworld.world.truth import CaptureTruth, TakeTruth, World, random_uid, stream

RGB_FROM_UPRIGHT = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
"""Takes upright coordinates (x right, y down, z ahead) to the raw RGB camera's (x down, y left, z ahead)."""
ROTATION_DEVICE_RGB = Rotation.from_rotvec(
    np.deg2rad(39.4) * np.array([0.987, 0.105, 0.121]) / np.linalg.norm([0.987, 0.105, 0.121])
)
TRANSLATION_DEVICE_RGB_M = np.array([-0.004, -0.012, -0.0045])
LEAD_S = 0.35
"""Trajectory before the first and after the last frame, seconds."""
DIFFERENCE_S = 5e-4
"""Half width of the finite differences that give the velocities, seconds."""
COLUMNS = (
    "graph_uid,tracking_timestamp_us,utc_timestamp_ns,tx_world_device,ty_world_device,tz_world_device,"
    "qx_world_device,qy_world_device,qz_world_device,qw_world_device,"
    "device_linear_velocity_x_device,device_linear_velocity_y_device,device_linear_velocity_z_device,"
    "angular_velocity_x_device,angular_velocity_y_device,angular_velocity_z_device,"
    "gravity_x_world,gravity_y_world,gravity_z_world,quality_score"
)
GEO_COLUMNS = (
    ",geo_available,tx_ecef_device,ty_ecef_device,tz_ecef_device,"
    "qx_ecef_device,qy_ecef_device,qz_ecef_device,qw_ecef_device"
)
ROW = "%s,%d,%d" + ",%.6f" * 3 + ",%.9f" * 4 + ",%.6f" * 9 + ",%.1f"
GEO_ROW = ",0,0.000000,0.000000,0.000000,0.000000000,0.000000000,0.000000000,1.000000000"
SIMULATED_EPOCH_NS = 1_700_000_000 * 10**9


def device_poses(motion: HeadMotion, t_s: Array) -> tuple[Rotation, Array]:
    """Return T_room_device at times `t_s` (N,): N rotations and (N, 3) positions in metres."""
    rotation, position = head_poses(motion, t_s)
    room_rgb = Rotation.from_matrix(rotation @ RGB_FROM_UPRIGHT.T)
    room_device = room_rgb * ROTATION_DEVICE_RGB.inv()
    return room_device, position - room_device.apply(TRANSLATION_DEVICE_RGB_M)


def frame_clock_ns(world: World, capture: CaptureTruth, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the device times in ns, shape (N,), of the timesync rows `rows`, shape (N,)."""
    return capture.clock_ns + (rows * 10**9) // world.config.fps


def trajectory_csv(world: World, take: TakeTruth, motion: HeadMotion) -> str:
    """Return the text of closed_loop_trajectory.csv: gravity-aligned world with arbitrary origin and heading.

    Dense takes have steps near 1 ms with rows in between now and then, as real files have; the others an even step
    at `trajectory_hz` with a jitter of 2 %. Velocities, in the device frame, are central differences.
    """
    capture = world.captures[take.capture]
    rng = stream(world.config, "trajectory", take.index)
    graph, heading, origin = random_uid(rng), Rotation.from_euler("z", rng.uniform(-np.pi, np.pi)), rng.normal(0, 2, 3)
    first, last = frame_clock_ns(world, capture, np.array([take.first_row, take.first_row + take.n_frames - 1])) / 1e3
    start, span = int(first - LEAD_S * 1e6), float(last - first + 2e6 * LEAD_S)
    if take.dense:
        n = int(span / 950)
        steps = rng.choice([999, 1000, 954, 1045], size=n, p=[0.42, 0.42, 0.08, 0.08])
        extra = rng.random(n) < 0.018
        steps[extra] = rng.integers(1, 900, int(extra.sum()))
    else:
        mean = 1e6 / world.config.trajectory_hz
        steps = np.rint(mean * (1 + 0.02 * rng.uniform(-1, 1, int(1.05 * span / mean)))).astype(np.int64)
    times = start + np.concatenate([[0], np.cumsum(steps)])
    clock = np.asarray(times[times <= start + span], np.int64)
    t_s = (clock - first) / 1e6
    rotation, position = device_poses(motion, t_s)
    before, p0 = device_poses(motion, t_s - DIFFERENCE_S)
    after, p1 = device_poses(motion, t_s + DIFFERENCE_S)
    linear = rotation.inv().apply((p1 - p0) / (2 * DIFFERENCE_S))
    angular = (before.inv() * after).as_rotvec() / (2 * DIFFERENCE_S)
    quality = np.where(t_s < t_s[0] + 0.1, 0.5, 1.0)
    utc = SIMULATED_EPOCH_NS + (clock - clock[0]) // 100_000 * 10**8 if rng.random() < 0.8 else np.full(len(clock), -1)
    gravity = np.tile([0.0, 0.0, -9.81], (len(t_s), 1))
    numbers = np.hstack(
        [heading.apply(position) + origin, (heading * rotation).as_quat(), linear, angular, gravity, quality[:, None]]
    )
    row, head = (ROW + GEO_ROW, COLUMNS + GEO_COLUMNS) if capture.geo_columns else (ROW, COLUMNS)
    lines = [row % (graph, c, u, *v) for c, u, v in zip(clock.tolist(), utc.tolist(), numbers.tolist(), strict=True)]
    return head + "\n" + "\n".join(lines) + "\n"


def calibration_jsonl(world: World, take: TakeTruth) -> str:
    """Return online_calibration.jsonl: one line per second with the left SLAM camera and the RGB camera (w first).

    The projection is a pinhole (`Linear`: fx, fy, cx, cy of the written video), which is how the frames are drawn.
    """
    capture, size = world.captures[take.capture], world.config.size_px
    focal, _, centre = camera_matrix(size, world.config.view_deg)[0].tolist()
    what, params = "fx, fy, cx, cy of the written video", [round(focal, 9), round(focal, 9), centre, centre]
    x, y, z, w = (round(float(v), 15) for v in ROTATION_DEVICE_RGB.as_quat())
    cameras = [
        {
            "Calibrated": True,
            "Label": label,
            "Projection": {"Name": "Linear", "Description": what, "Params": params},
            "T_Device_Camera": {"Translation": translation, "UnitQuaternion": quaternion},
        }
        for label, translation, quaternion in (
            ("camera-slam-left", [0.0, 0.0, 0.0], [1.0, [0.0, 0.0, 0.0]]),
            ("camera-rgb", TRANSLATION_DEVICE_RGB_M.tolist(), [w, [x, y, z]]),
        )
    ]
    calibrations = {"ImuCalibrations": [], "CameraCalibrations": cameras}
    lines = [
        {"utc_timestamp_ns": -1, "tracking_timestamp_us": int(ns // 1000), **calibrations}
        for ns in frame_clock_ns(world, capture, take.first_row + np.arange(0, take.n_frames, world.config.fps))
    ]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def timesync_csv(world: World, capture: CaptureTruth) -> str:
    """Return timesync.csv of a capture: one row per synchronised frame, for the glasses and one static camera.

    The SLAM stream of the glasses starts late: its first cells are empty, as in real files.
    """
    rng = stream(world.config, "timesync", world.captures.index(capture))
    late, frame0 = int(rng.integers(2, 8)), int(rng.integers(0, 400))
    rgb, slam = f"{capture.camera}_214-1", f"{capture.camera}_1201-1"
    clock = frame_clock_ns(world, capture, np.arange(capture.rows))
    head = f"cam01_pts,cam01_frame_number,{slam}_capture_timestamp_ns"
    rows = [f"{head},{rgb}_pts,{rgb}_frame_number,{rgb}_capture_timestamp_ns\n"]
    for k, ns in enumerate(clock.tolist()):
        rows.append(f"{k * 1001},{k},{'' if k < late else ns + 11_000_000},{k},{frame0 + k},{ns}\n")
    return "".join(rows)
