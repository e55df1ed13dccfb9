"""Which second of the video is which time of the pose file, for poses that a query names.

With a timesync file as Ego-Exo4D releases it, its rows decide; where the video is known to be a take, that file and the
take's rows of it are known, too. Else the clock runs evenly from the second of video at which the query says that the
first pose was taken. It is never guessed: a plan with a wrong clock looks like any other.
"""

import csv
import gzip
import io
from pathlib import Path
from typing import NamedTuple, NoReturn

from schemas.predict import PlanQuery
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.poses.aria import closed_loop, timesync
from trajpilot_core.poses.files import GZIP_MAGIC
from trajpilot_core.predict.footage import local_file
from trajpilot_core.video.probe import VideoProbe

RGB = "214-1"
"""Stream of the RGB camera in the names of Project Aria."""
SUFFIX = timesync.capture_column("")
OUR_CAMERA = "query"
NS_PER_S = 1_000_000_000


class QueryClock(NamedTuple):
    """A timesync file and the rows of it that are the video."""

    path: Path
    camera: str
    first: int
    end: int
    relation: str
    """How times are related, in words."""


def refuse_idle(query: PlanQuery) -> None:
    """Refuse settings of a timesync file where none is named: they would change nothing.

    Raises:
        InputError: which they are.
    """
    given = {"--camera": query.camera, "--timesync-start": query.timesync_start}
    idle = " and ".join(option for option, value in given.items() if value is not None)
    if idle and query.timesync is None:
        raise InputError(f"{idle} without --timesync would change nothing; name the timesync file, or leave {idle} out")


def given_clock(
    query: PlanQuery, poses: Path, video: VideoProbe, known: QueryClock | None, scratch: Path
) -> QueryClock:
    """Return the clock of a query that names its poses.

    Args:
        query: names a timesync file or an offset, or neither.
        poses: the pose file.
        video: counted facts of the video.
        known: clock of the take that the video is known to be; None: it is known to be none.
        scratch: folder for a timesync file that is made.

    Raises:
        InputError: it is unknown how the times are related, the timesync file does not state which of its rows are the
            video, or settings contradict.
    """
    if query.timesync is None:
        if query.trajectory_offset_s is not None:
            return _even_clock(query.trajectory_offset_s, poses, video, scratch)
        return known or _refuse_unknown(poses)
    if query.trajectory_offset_s is not None:
        raise InputError("--timesync and --trajectory-offset exclude each other: the timesync file states the times")
    path = local_file(query.timesync, "timesync")
    if known is not None and (query.timesync_start, query.camera) == (None, None) and path.samefile(known.path):
        return known
    camera = query.camera or _camera_of(path)
    try:
        rows = len(timesync.read_column("/", str(path), camera))
    except TakeFault as fault:
        raise InputError(f"timesync {path} cannot be used: {fault.detail}") from fault
    first = query.timesync_start
    if first is None:
        if video.n_frames not in (rows, rows - 1):
            raise InputError(
                f"{path.name} has {rows:,} rows and the video {video.n_frames:,} frames; say which row is the video's "
                "first frame with --timesync-start (Ego-Exo4D's takes.json: timesync_start_idx)"
            )
        first = 0
    return QueryClock(path, camera, first, first + video.n_frames, f"{path.name}, camera {camera}, from row {first} on")


def _refuse_unknown(poses: Path) -> NoReturn:
    """Refuse to guess.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"it is unknown which second of the video is which time in {poses.name}: the video is no take of the models' "
        "corpus or of an Ego-Exo4D download whose timesync file is there; give --timesync timesync.csv, or with "
        "--trajectory-offset the second of the video at which the first pose was taken (0: with the first frame)"
    )


def _even_clock(offset_s: float, poses: Path, video: VideoProbe, scratch: Path) -> QueryClock:
    """Write a timesync file whose clock runs evenly."""
    begin_ns = first_stamp_us(poses) * 1000 - round(offset_s * NS_PER_S)
    path = scratch / "timesync.csv"
    step_ns = NS_PER_S / video.fps
    times_ns = (begin_ns + round(k * step_ns) for k in range(video.n_frames + 1))
    path.write_text("\n".join([timesync.capture_column(OUR_CAMERA), *map(str, times_ns)]) + "\n", encoding="utf-8")
    relation = f"the first pose was taken at {offset_s:g} s of the video"
    return QueryClock(path, OUR_CAMERA, 0, video.n_frames, relation)


def first_stamp_us(poses: Path) -> int:
    """Return the device time of the first row of a pose file, plain or gzip, microseconds.

    Raises:
        InputError: it is no pose file, or has no row.
    """
    with poses.open("rb") as stream:
        head = stream.read(closed_loop.HEADER_BYTES)
    try:
        if head.startswith(GZIP_MAGIC):
            with gzip.open(poses) as stream:
                head = stream.read(closed_loop.HEADER_BYTES)
        names = closed_loop.header(head, str(poses))
    except (TakeFault, OSError, EOFError) as error:
        raise InputError(f"trajectory {poses} is no closed-loop pose file of Project Aria: {error}") from error
    try:
        rows = list(csv.reader(io.StringIO(head.decode("utf-8", errors="replace").lstrip("\ufeff\r\n"))))
        return int(rows[1][names.index(closed_loop.STAMP)])
    except (csv.Error, IndexError, ValueError) as error:
        raise InputError(f"trajectory {poses} has no time in its first row; give a whole file") from error


def _camera_of(path: Path) -> str:
    """Return the one RGB camera of a timesync file.

    Raises:
        InputError: there is none, or more than one.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            names = next(csv.reader(stream), [])
    except csv.Error as error:
        raise InputError(f"timesync {path} is no CSV: {error}; give the file as it was released") from error
    cameras = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    chosen = [name for name in cameras if name.endswith(RGB)] or cameras
    if len(chosen) != 1:
        found = ", ".join(cameras[:8]) or f"no column ...{SUFFIX}"
        raise InputError(f"timesync {path} has {len(chosen)} RGB cameras ({found}); name one with --camera")
    return chosen[0]
