"""Draw the room from the head camera: planes by homographies, boxes by polygons. Image motion obeys the pose.

Equal frames give equal mp4 bytes: one thread, fixed settings, no dates in the file.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.codec.context import Flags
from numpy.typing import NDArray

from trajpilot_core.arrays import Array, Image
from trajpilot_core.simworld.world.appearance import looks_at, station, take_appearance
from trajpilot_core.simworld.world.motion import HeadMotion, head_poses, profiles
from trajpilot_core.simworld.world.truth import TakeTruth, World

ROOM_M = ((-2.2, 2.7), (-2.5, 2.5), (0.0, 2.7))
"""Extent of the room in x, y, z."""
TABLE_M = ((0.4, 1.75), (-1.5, 1.5), 0.95)
"""Table top in x, y, and its height."""
BOARD_TOP_M = 1.95
"""Upper edge of the board on the far edge of the table."""
BOX_M, LIFT_M = 0.13, 0.16
"""Side of an object; how high the acted one is lifted."""
PLACES_M = tuple((x, y) for x in (1.4, 0.85) for y in (-0.75, -0.25, 0.25, 0.75))
"""Centres of the places on the table."""
NEAR_M = 0.05
CORNERS = np.array([[ahead - 0.5, left - 0.5, up] for up in (0, 1) for left in (0, 1) for ahead in (0, 1)])
"""(8, 3) corners of a unit box above the origin."""
FACES = {"top": [4, 5, 7, 6], "near": [0, 2, 6, 4], "right": [0, 1, 5, 4], "left": [2, 3, 7, 6]}
"""Corner numbers of the faces that can be seen from above and from the wearer's side."""
SHADES = {"top": 1.0, "near": 0.8, "right": 0.6, "left": 0.6}
TICKS_PER_FRAME = 512


def room_planes() -> Array:
    """Return (8, 4, 3) corners in metres: front, left, right, back, floor, ceiling; then board and mat.

    Those of one are in the order top left, top right, bottom right, bottom left of its texture.
    """
    (x0, x1), (y0, y1), (z0, z1) = ROOM_M
    (a0, a1), (b0, b1), height = TABLE_M
    x, y, z = np.eye(3)
    deep, wide, tall = x * (x1 - x0), y * (y1 - y0), z * (z1 - z0)
    rectangles = [
        ([x1, y1, z1], -wide, -tall),
        ([x0, y1, z1], deep, -tall),
        ([x1, y0, z1], -deep, -tall),
        ([x0, y0, z1], wide, -tall),
        ([x1, y1, z0], -wide, -deep),
        ([x0, y1, z1], -wide, deep),
        ([a1, b1, BOARD_TOP_M], -y * (b1 - b0), -z * (BOARD_TOP_M - height)),
        ([a1, b1, height], -y * (b1 - b0), -x * (a1 - a0)),
    ]
    return np.stack([np.stack([o, o + right, o + right + down, o + down]) for o, right, down in rectangles])


PLANES_M = room_planes()


def clip_near(corners: Array) -> Array:
    """Cut a convex polygon (N, 3) in camera coordinates at the near plane; returns (M, 3), M may be 0."""
    kept, rows = [], corners.tolist()
    for here, there in zip(rows, rows[1:] + rows[:1], strict=True):
        inside = here[2] >= NEAR_M
        if inside:
            kept.append(here)
        if inside != (there[2] >= NEAR_M):
            share = (NEAR_M - here[2]) / (there[2] - here[2])
            kept.append([a + (b - a) * share for a, b in zip(here, there, strict=True)])
    return np.array(kept).reshape(-1, 3)


def draw_plane(image: Image, texture: Image, corners: Array, camera: Array) -> None:
    """Draw `texture` (h, w, 3) onto `image` (S, S, 3) in place; its `corners` (4, 3) are in camera coordinates, metres
    (x right, y down, z ahead), and the intrinsic matrix (3, 3) in pixels."""
    visible = corners if corners[:, 2].min() >= NEAR_M else clip_near(corners)
    if len(visible) < 3:
        return
    points = visible @ camera.T
    outline = np.rint(points[:, :2] / points[:, 2:]).astype(np.int32)
    xs, ys = outline.T.tolist()
    left, top = max(min(xs), 0), max(min(ys), 0)
    right, bottom = (min(max(values) + 1, len(image)) for values in (xs, ys))
    if right <= left or bottom <= top:
        return
    height, width = texture.shape[:2]
    basis = np.stack([(corners[1] - corners[0]) / width, (corners[3] - corners[0]) / height, corners[0]], axis=1)
    moved = camera.copy()
    moved[:2, 2] -= left, top
    size = right - left, bottom - top
    warped = cv2.warpPerspective(texture, moved @ basis, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    mask = cv2.fillConvexPoly(np.zeros(size[::-1], np.uint8), outline - np.array([left, top], np.int32), 255)
    cv2.copyTo(warped, mask, image[top:bottom, left:right])


def camera_matrix(size_px: int, view_deg: float) -> Array:
    """Return the (3, 3) intrinsic matrix of the upright square video, pixels."""
    focal, centre = size_px / 2 / np.tan(np.deg2rad(view_deg) / 2), (size_px - 1) / 2
    return np.array([[focal, 0.0, centre], [0.0, focal, centre], [0.0, 0.0, 1.0]])


def render_at(world: World, take: TakeTruth, motion: HeadMotion, t_s: Array) -> Iterator[Image]:
    """Yield the views, uint8 RGB of shape (size_px, size_px, 3), upright, at times `t_s` (N,) of the take."""
    config = world.config
    rotation, position = head_poses(motion, t_s)
    looks, steps = looks_at(take, t_s)
    appearance = take_appearance(world, take)
    light = appearance.light
    colours = {face: (light.objects * shade).tolist() for face, shade in SHADES.items()}
    camera = camera_matrix(config.size_px, config.view_deg)
    board, mat = station(appearance, looks[0])
    for k, now in enumerate(t_s.tolist()):
        if k and np.any(looks[k] != looks[k - 1]):
            board, mat = station(appearance, looks[k])
        image = np.zeros((config.size_px, config.size_px, 3), np.uint8)
        planes = (PLANES_M - position[k]) @ rotation[k]
        for texture, corners in zip((*appearance.room, board, mat), planes, strict=True):
            draw_plane(image, texture, corners, camera)
        # The acted object is lifted and shaken; the far ones are drawn first, each by the faces that are seen.
        segment = take.segments[int(steps[k])]
        phase = np.clip((now - segment.start_s) / (segment.end_s - segment.start_s), 0.0, 1.0)
        bump, swing = profiles(np.array([phase]))[:, 0]
        centres = np.array([(x, y, TABLE_M[2]) for x, y in PLACES_M[: config.places]])
        centres[segment.place] += np.array([-0.05 * bump, 0.08 * swing, LIFT_M * bump])
        corners = ((centres[:, None] + BOX_M * CORNERS - position[k]) @ rotation[k]) @ camera.T
        pixels = np.rint(corners[..., :2] / corners[..., 2:]).astype(np.int32)
        seen = corners[..., 2].min(axis=1) > NEAR_M
        for place in np.argsort(-centres[:, 0], kind="stable").tolist():
            side = "right" if position[k, 1] < centres[place, 1] else "left"
            for face in (side, "near", "top") if seen[place] else ():
                cv2.fillConvexPoly(image, pixels.take(FACES[face], axis=1)[place], colours[face][place])
        yield np.asarray(cv2.convertScaleAbs(image, alpha=light.gain + light.gain_slope * now), np.uint8)


def write_video(
    path: Path, frames: Iterable[NDArray[np.uint8]], fps: int, crf: int, ticks: Iterable[int] | None = None
) -> int:
    """Encode upright RGB frames (S, S, 3) as H.264 (B-frames, 4:2:0) in mp4; return their number.

    Args:
        crf: constant rate factor (mpeg4: fixed quantiser in its place).
        ticks: presentation time of every frame in 1 / (512 * fps) s; None: evenly spaced.
    """
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact", "movflags": "+faststart"}) as container:
        stream, count = None, 0
        clock = iter(ticks) if ticks is not None else None
        for frame in frames:
            if stream is None:
                stream = add_stream(container, fps, crf, frame.shape[0])
            planes = np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2YUV_I420), np.uint8)
            picture = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            picture.pts = next(clock) if clock is not None else count * TICKS_PER_FRAME
            picture.time_base = Fraction(1, fps * TICKS_PER_FRAME)
            container.mux(stream.encode(picture))
            count += 1
        if stream is not None:
            container.mux(stream.encode(None))
    return count


def add_stream(container: av.container.OutputContainer, fps: int, crf: int, size_px: int) -> av.VideoStream:
    """Add the one video stream with settings that do not depend on the machine."""
    name = "libx264" if "libx264" in av.codecs_available else "mpeg4"  # where this build of FFmpeg lacks the first
    fixed = {"preset": "superfast", "crf": str(crf), "bf": "3", "x264-params": "threads=1:lookahead-threads=1"}
    options = fixed if name == "libx264" else {"qscale": "4", "bf": "2"}
    stream = container.add_stream(name, rate=fps, options=options)
    assert isinstance(stream, av.VideoStream)
    stream.width = stream.height = size_px
    stream.pix_fmt = "yuv420p"
    stream.gop_size = 60
    context = stream.codec_context
    context.thread_count = 1
    context.flags |= Flags.bitexact
    context.time_base = Fraction(1, fps * TICKS_PER_FRAME)
    return stream
