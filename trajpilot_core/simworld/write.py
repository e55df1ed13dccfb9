"""Write a world to disk in the layout of its configuration, resumable per take, equal bytes for equal configurations.

`world.json` is written last and atomically; a folder without it is unfinished. Until then `.world/` holds one marker
per finished take and the files in progress. Nothing of the truth is written.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from pydantic import JsonValue

from schemas.base import Record, canonical_json
from schemas.world import WorldConfig
from trajpilot_core.engine.progress import Progress
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.incoming import parse_json
from trajpilot_core.runtime import start_worker, worker_pool
from trajpilot_core.simworld import faults
from trajpilot_core.simworld.latents import released_files
from trajpilot_core.simworld.layouts.aria import calibration_jsonl, trajectory_csv
from trajpilot_core.simworld.layouts.base import layout_of
from trajpilot_core.simworld.sample import PRESETS, sample_world
from trajpilot_core.simworld.world.motion import head_motion
from trajpilot_core.simworld.world.render import TICKS_PER_FRAME, render_at, write_video
from trajpilot_core.simworld.world.truth import TakeTruth, World
from trajpilot_core.store.lock import require_free_space

VERSION = 1
"""Raise when the bytes of a world change."""
VIDEO_BYTES_PER_PIXEL, POSE_BYTES_S = 0.2, 40_000
"""Per pixel of a frame, and per second of a take; measured on the worlds of the demo and the tests: 0.16 and 32,000."""
WORK = ".world"
MARKER = f"{WORK}/takes/{{:05d}}.json"
"""Path of a take's completion marker."""


class WorldSummary(Record):
    """What `write_world` left behind."""

    folder: str
    world_digest: str
    n_takes: int
    n_good: int
    n_test: int
    """Unbroken takes of the tested split."""
    n_broken: int
    n_files: int
    n_bytes: int
    written: int
    """Takes written by this call."""
    reused: int
    """Takes found finished."""


def write_world(config: WorldConfig, folder: Path, workers: int, progress: Progress) -> WorldSummary:
    """Write the world of `config` under `folder` in the layout that `config` names.

    Idempotent: a complete world of the same configuration is left alone; an unfinished one is continued take by take
    and ends with the same bytes, whatever the number of workers.

    Args:
        folder: corpus root; absent, empty, or begun by an earlier call with the same configuration.
        workers: processes that draw and encode takes; 1: this process.
        progress: called with (takes done, takes in all, what).

    Raises WorldError: the folder holds something else, or a worker process died.
    """
    world = sample_world(config)
    refuse_other_world(config, folder)
    whole, todo = folder / "world.json", list[int]()
    if whole.exists():
        shutil.rmtree(folder / WORK, ignore_errors=True)
        files = noted_files(noted(whole).get("files"), whole)
    else:
        prepare(folder, config)
        todo = [take.index for take in world.takes if read_marker(folder, take.index) is None]
        pixels_s = config.fps * config.size_px**2 if config.videos else 0
        take_bytes = round(config.segments * config.segment_s * (VIDEO_BYTES_PER_PIXEL * pixels_s + POSE_BYTES_S))
        require_free_space(folder, len(todo) * take_bytes, "the simulated world")
        before = len(world.takes) - len(todo)
        progress(before, len(world.takes), "simulated takes")
        for n, _ in enumerate(run_all([(config, folder, index) for index in todo], workers)):
            progress(before + n + 1, len(world.takes), "simulated takes")
        files = {name: put(folder, name, data) for name, data in layout_of(config.layout).rest(world)}
        for take in world.takes:
            files |= read_marker(folder, take.index) or {}
        content: dict[str, JsonValue] = {
            "format": 1,
            "simulated": True,
            "digest": world_digest(config),
            "config": config.content(),
            "files": {name: list(files[name]) for name in sorted(files)},
        }
        put(folder, "world.json", (canonical_json(content) + "\n").encode(), durable=True)
        shutil.rmtree(folder / WORK)
    good = [take for take in world.takes if take.fault is None]
    return WorldSummary(
        folder=str(folder),
        world_digest=world_digest(config),
        n_takes=len(world.takes),
        n_good=len(good),
        n_test=sum(take.split == "val" for take in good),
        n_broken=len(world.takes) - len(good),
        n_files=len(files),
        n_bytes=sum(size for _, size in files.values()),
        written=len(todo),
        reused=len(world.takes) - len(todo),
    )


def run_all(arguments: Sequence[tuple[WorldConfig, Path, int]], workers: int) -> Iterator[None]:
    """Run `write_take` for every take, in a few spawned processes that end when their parent does; 1 runs them here.

    Raises WorldError: a process died.
    """
    if workers <= 1 or len(arguments) <= 1:
        for argument in arguments:
            write_take(*argument)
            yield
        return
    with worker_pool(min(workers, len(arguments)), start_drawing) as pool:
        futures = [pool.submit(write_take, *argument) for argument in arguments]
        try:
            for future in as_completed(futures):
                future.result()
                yield
        except BrokenProcessPool as error:
            raise WorldError("a process that draws takes died (memory?); run again: finished takes are kept") from error


def start_drawing() -> None:
    """Prepare a worker that draws: one OpenCV thread."""
    cv2.setNumThreads(1)
    start_worker()


FileDigests = dict[str, tuple[str, int]]
"""Path relative to the corpus root -> (sha256, bytes)."""


def world_digest(config: WorldConfig) -> str:
    """Return the digest that names a world: configuration and version of this writer."""
    return hashlib.sha256(f"{VERSION}:{config.digest()}".encode()).hexdigest()


def noted(path: Path) -> dict[str, Any]:
    """Read what this writer noted about a world. Raises WorldError: it is damaged, or something else."""
    try:
        return dict(parse_json(path.read_bytes(), str(path)))
    except (InputError, TypeError, ValueError) as error:
        raise WorldError(f"{path} is no note of a simulated world; delete its folder, or name another") from error


def noted_files(listed: Any, path: Path) -> FileDigests:
    """Return files as they were noted as JSON. Raises WorldError: it was not noted by this writer."""
    try:
        return {name: (str(sha), int(size)) for name, (sha, size) in listed.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise WorldError(f"{path} lists no files with digest and size: delete its folder, or name another") from error


def refuse_other_world(config: WorldConfig, folder: Path) -> None:
    """Do nothing where a folder holds this world, a part of it, or none.

    Args:
        folder: corpus root; need not exist.

    Raises WorldError: it holds another one, finished or not; it is named where `--world` knows it.
    """
    rest = "choose another folder for the new one (another --root for a demo), or delete the old one"
    for note in (folder / "world.json", folder / WORK / "begun.json"):
        digest = str(noted(note).get("digest")) if note.is_file() else None
        if digest in (None, world_digest(config)):
            continue
        known = next((name for name, make in PRESETS.items() if world_digest(make()) == digest), None)
        if known:
            raise WorldError(f"{folder} holds another world, {known!r}; go on with it by --world {known}, or {rest}")
        raise WorldError(f"{folder} holds another world, of other settings or another version ({digest[:12]}); {rest}")


def prepare(folder: Path, config: WorldConfig) -> None:
    """Make the folder ready: new, or begun earlier with the same configuration; leftovers of a kill are swept up."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / WORK / "begun.json").exists() and any(entry.name != WORK for entry in folder.iterdir()):
        raise WorldError(
            f"{folder} is not empty and was not begun by this writer; choose an empty folder for the simulated world"
        )
    shutil.rmtree(folder / WORK / "tmp", ignore_errors=True)
    (folder / WORK / "tmp").mkdir(parents=True)
    (folder / WORK / "takes").mkdir(exist_ok=True)
    put(folder, f"{WORK}/begun.json", json.dumps({"digest": world_digest(config), "name": config.name}).encode())


known_world = lru_cache(maxsize=1)(sample_world)
"""Samples the world once per process."""


def write_take(config: WorldConfig, folder: Path, index: int) -> None:
    """Write the files of one take, then its marker."""
    world = known_world(config)
    take = world.takes[index]
    files: FileDigests = {}
    if take.fault not in faults.WITHOUT_FILES:
        content = take_files(world, take, folder / WORK / "tmp")
        if take.fault in faults.FILE_DAMAGE:
            content = faults.FILE_DAMAGE[take.fault](content)
        named = chain(layout_of(config.layout).take_files(world, take, content), released_files(world, take))
        files |= {name: put(folder, name, data) for name, data in named}
    put(folder, MARKER.format(index), json.dumps(files).encode())


def take_files(world: World, take: TakeTruth, scratch: Path) -> faults.TakeContents:
    """Draw and encode one take, a broken one only as far as its fault needs it; `FILE_DAMAGE` does the rest."""
    config, layout = world.config, layout_of(world.config.layout)
    motion = head_motion(world, take)
    path, videos = scratch / f"{take.uid}.{os.getpid()}.mp4", list[bytes]()
    ticks: list[int] | None = None
    if config.videos and take.fault not in ("video_missing", "video_text"):
        frames = faults.break_frames(take, render_at(world, take, motion, np.arange(take.n_frames) / config.fps))
        if take.fault in ("video_hole", "video_uneven"):
            late = TICKS_PER_FRAME // 3 if take.fault == "video_uneven" else 0
            even = (k * TICKS_PER_FRAME + (late if k % 3 == 1 else 0) for k in range(take.n_frames))
            ticks = list(faults.break_frames(take, even))
        for n in layout.parts(world, take):
            write_video(path, islice(frames, n), config.fps, config.crf, ticks)
            videos.append(path.read_bytes())
            path.unlink()
    first, later = (videos[0] if videos else None), tuple(videos[1:])
    if not layout.has_poses:
        return faults.TakeContents(first, None, None, later)
    return faults.TakeContents(
        first, trajectory_csv(world, take, motion).encode(), calibration_jsonl(world, take).encode(), later
    )


def read_marker(folder: Path, index: int) -> FileDigests | None:
    """Return the files of a finished take; None where it is unfinished or a file is no longer as it was written."""
    path = folder / MARKER.format(index)
    if not path.exists():
        return None
    files = noted_files(noted(path), path)
    places = {folder / name: size for name, (_, size) in files.items()}
    return files if all(place.is_file() and place.stat().st_size == size for place, size in places.items()) else None


def put(folder: Path, name: str, data: bytes, durable: bool = False) -> tuple[str, int]:
    """Write one file through a temporary name and a rename; returns its sha256 and size.

    Args:
        durable: also ask the disk to keep file and folder before returning.
    """
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder / WORK / "tmp" / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.{os.getpid()}"
    with temporary.open("wb") as handle:
        handle.write(data)
        if durable:
            handle.flush()
            os.fsync(handle.fileno())
    temporary.replace(target)
    if durable:
        entries = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(entries)
        finally:
            os.close(entries)
    return hashlib.sha256(data).hexdigest(), len(data)
