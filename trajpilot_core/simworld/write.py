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
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import cv2
import numpy as np
from pydantic import JsonValue

from schemas.base import Record, canonical_json
from schemas.world import WorldConfig
from trajpilot_core.corpora.formats.folders import WORLD_FILE
from trajpilot_core.engine.progress import Progress
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.incoming import parse_json
from trajpilot_core.runtime import start_worker, worker_pool
from trajpilot_core.simworld import faults
from trajpilot_core.simworld.latents import released_files
from trajpilot_core.simworld.layouts.aria import calibration_jsonl, trajectory_csv
from trajpilot_core.simworld.layouts.base import layout_of
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.motion import head_motion
from trajpilot_core.simworld.world.render import TICKS_PER_FRAME, render_at, write_video
from trajpilot_core.simworld.world.truth import TakeTruth, World
from trajpilot_core.store.files import open_folder

VERSION = 1
"""Raise when the bytes of a world change."""
WORK = ".world"
BEGUN = f"{WORK}/begun.json"
MARKER = f"{WORK}/takes/{{:05d}}"
"""Path of a take's completion marker, an empty file."""


class WorldSummary(Record):
    """What `write_world` left behind."""

    n_good: int
    n_test: int
    """Unbroken takes of the tested split."""
    n_broken: int
    written: int
    """Takes written by this call."""
    reused: int
    """Takes found finished."""


def write_world(config: WorldConfig, folder: Path, workers: int, progress: Progress) -> WorldSummary:
    """Write the world of `config` under `folder` in the layout that `config` names; with one worker in this process.

    Idempotent: a complete world of the same configuration is left alone; an unfinished one is continued take by take
    and ends with the same bytes, whatever the number of workers.

    Raises WorldError: the folder holds something else, or a worker process died.
    """
    world = sample_world(config)
    refuse_other_world(config, folder)
    todo, n = list[int](), len(world.takes)
    if (folder / WORLD_FILE).exists():
        shutil.rmtree(folder / WORK, ignore_errors=True)
    else:
        prepare(folder, config)
        todo = [take.index for take in world.takes if not (folder / MARKER.format(take.index)).exists()]
        progress(n - len(todo), n, "simulated takes")
        for done, _ in enumerate(run_all([(config, folder, index) for index in todo], workers), n - len(todo) + 1):
            progress(done, n, "simulated takes")
        for name, data in layout_of(config.layout).rest(world):
            put(folder, name, data)
        content: dict[str, JsonValue] = {"format": 1, "simulated": True, "digest": world_digest(config)}
        content["config"] = config.content()
        open_folder(str(folder)).replace(WORLD_FILE, (canonical_json(content) + "\n").encode())
        shutil.rmtree(folder / WORK)
    good = [take for take in world.takes if take.fault is None]
    return WorldSummary(
        n_good=len(good),
        n_test=sum(take.split == "val" for take in good),
        n_broken=n - len(good),
        written=len(todo),
        reused=n - len(todo),
    )


def run_all(arguments: Sequence[tuple[WorldConfig, Path, int]], workers: int) -> Iterator[None]:
    """Run `write_take` for every take, here or in spawned processes that end with their parent.

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


def world_digest(config: WorldConfig) -> str:
    """Return the digest that names a world: configuration and version of this writer."""
    return hashlib.sha256(f"{VERSION}:{config.digest()}".encode()).hexdigest()


def refuse_other_world(config: WorldConfig, folder: Path) -> None:
    """Do nothing where a folder holds this world, a part of it, or none, or does not exist.

    Raises WorldError: it holds another one, finished or not, or a damaged note.
    """
    for note in (folder / WORLD_FILE, folder / BEGUN):
        if not note.is_file():
            continue
        try:
            digest = dict(parse_json(note.read_bytes(), str(note))).get("digest")
        except (InputError, TypeError, ValueError) as error:
            raise WorldError(f"{note} is no note of a simulated world; delete its folder, or name another") from error
        if digest != world_digest(config):
            raise WorldError(
                f"{folder} holds another world, of another name, settings or version; choose another folder for the "
                "new one (another --root for a demo), go on with the old one by its --world, or delete it"
            )


def prepare(folder: Path, config: WorldConfig) -> None:
    """Make the folder ready: new, or begun earlier with the same configuration; leftovers of a kill are swept up."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / BEGUN).exists() and any(entry.name != WORK for entry in folder.iterdir()):
        raise WorldError(
            f"{folder} is not empty and was not begun by this writer; choose an empty folder for the simulated world"
        )
    shutil.rmtree(folder / WORK / "tmp", ignore_errors=True)
    (folder / WORK / "tmp").mkdir(parents=True)
    (folder / WORK / "takes").mkdir(exist_ok=True)
    put(folder, BEGUN, json.dumps({"digest": world_digest(config)}).encode())


known_world = lru_cache(maxsize=1)(sample_world)
"""Samples the world once per process."""


def write_take(config: WorldConfig, folder: Path, index: int) -> None:
    """Write the files of one take, then its marker."""
    world = known_world(config)
    take = world.takes[index]
    if take.fault not in faults.WITHOUT_FILES:
        content = take_files(world, take, folder / WORK / "tmp")
        if take.fault in faults.FILE_DAMAGE:
            content = faults.FILE_DAMAGE[take.fault](content)
        for name, data in chain(layout_of(config.layout).take_files(world, take, content), released_files(world, take)):
            put(folder, name, data)
    put(folder, MARKER.format(index), b"")


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
    content = faults.TakeContents(videos[0] if videos else None, None, None, tuple(videos[1:]))
    if not layout.has_poses:
        return content
    poses, calibration = trajectory_csv(world, take, motion).encode(), calibration_jsonl(world, take).encode()
    return replace(content, trajectory=poses, calibration=calibration)


def put(folder: Path, name: str, data: bytes) -> None:
    """Write one file through a temporary name and a rename."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder / WORK / "tmp" / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.{os.getpid()}"
    temporary.write_bytes(data)
    temporary.replace(target)
