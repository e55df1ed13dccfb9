"""The entries by frames and by latents: a world's tables straight from its truth, without any video or pose file.

The motion is the same pose stream that the files hold; the appearance is the same room and station, drawn from a head
that stands still, so that pixels know nothing of the motion (without pixels: simworld/latents.py). Source:
docs/decisions/claims.md.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from schemas.annotation import LATENTS, SIMULATED
from schemas.base import canonical_json
from schemas.config import IngestConfig
from schemas.world import WorldConfig
from trajpilot_core.arrays import Array
from trajpilot_core.corpora.base import AnnotatedPoint, Candidate, TakeFiles
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.records.intervals import intervals_by_take
from trajpilot_core.corpora.records.labels import normalise
from trajpilot_core.corpora.records.splits import dev_captures
from trajpilot_core.corpora.records.tables import CutTake, Labelling, Tables, cut_take, tables_of
from trajpilot_core.errors import WorldError
from trajpilot_core.poses.motions import knot_times_s, relative_motions
from trajpilot_core.poses.se3 import Poses
from trajpilot_core.poses.sources.take import SegmentIntervals, intervals
from trajpilot_core.simworld.layouts.aria import RGB_FROM_UPRIGHT
from trajpilot_core.simworld.world.motion import head_motion, head_poses
from trajpilot_core.simworld.world.render import render_at
from trajpilot_core.simworld.world.truth import TakeTruth, World
from trajpilot_core.video.probe import VideoProbe

MOTION_ONLY = {"name": "still", "fixed_on": "2026-11-21", "kappa": 0.0, "style": 0.0}
"""Settings that a still head does not show, at neutral values."""


def world_tables(world: World, config: IngestConfig) -> Tables:
    """Return takes, segments, labels and windows as ingest would write them for one clean annotator.

    Raises:
        WorldError: the world has broken takes, which only files can have.
    """
    if any(take.fault for take in world.takes):
        raise WorldError('a world that enters by features has no files to break; set its field broken to "none"')
    groups = {normalise(text): label.label_id for label in world.labels for text in label.texts}
    label_of = Labelling(groups, config)
    cut: list[CutTake] = []
    for take in world.takes:
        candidate = drawn_candidate(world, take)
        probe = VideoProbe(
            n_frames=take.n_frames,
            fps=world.config.fps,
            duration_s=world.take_duration_s(take),
            width=world.config.size_px,
            height=world.config.size_px,
            rotation_deg=0,
            is_vfr=False,
        )
        kept, lost = cut_take(candidate, probe, label_of, config)
        if len(kept.points) < len(take.segments):
            raise WorldError(f"take {candidate.take.take_id} lost a segment: {lost[0].detail}; lower min_segment_s")
        cut.append(kept)
    cut.sort(key=lambda kept: kept.candidate.take.take_id)
    dev = dev_captures((c.candidate.take.capture for c in cut if c.candidate.released == "train"), config)
    return tables_of(cut, dev, config)


def describe_world(config: WorldConfig, folder: Path) -> None:
    """Write the description of a world that enters by features, `world.json`, into its data root; equal bytes always.

    Raises:
        WorldError: the folder describes another world.
    """
    text = canonical_json({"format": 1, "simulated": True, "config": config.content()}) + "\n"
    path = folder / "world.json"
    if path.exists():
        if path.read_text(encoding="utf-8") != text:
            raise WorldError(f"{path} describes another world; choose another folder or delete it")
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / ".world.json"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def drawn_candidate(world: World, take: TakeTruth) -> Candidate:
    """Return a take with one point per step, as a reader would."""
    capture = world.captures[take.capture]
    files = TakeFiles(
        uid=take.uid,
        corpus=SIMULATED,
        take_id=take_id(take.uid),
        name=take.name,
        scenario=world.task_names[take.task],
        participant=str(world.participants[capture.operator]),
        capture=capture.name,
        camera=LATENTS if world.config.entry == "latents" else f"{capture.camera}_214-1",
        video="",
    )
    points = [
        AnnotatedPoint(segment.time_s, f"C {world.labels[segment.label].texts[0]}.", "", "", i)
        for i, segment in enumerate(take.segments)
    ]
    released = "train" if take.split == "train" else "test"
    return Candidate(take=files, released=released, points=tuple(points), source_file="")  # type: ignore[arg-type]


def exact_motions(world: World, take: TakeTruth, start_s: Array, end_s: Array) -> Array:
    """Return (S, 16, 6) relative motions of the raw camera over (S,) intervals, metres and radians."""
    rotation, position = head_poses(head_motion(world, take), knot_times_s(start_s, end_s).ravel())
    q_xyzw = Rotation.from_matrix(rotation @ RGB_FROM_UPRIGHT.T).as_quat()
    return relative_motions(Poses(q_xyzw, position), len(start_s))


def still_world(config: WorldConfig, size_px: int) -> WorldConfig:
    """Return what a still head can show of a world: its motion settings neutral, its frames `size_px` wide.

    Worlds with equal results share their features.
    """
    return config.replace(**MOTION_ONLY, size_px=size_px)


def still_frames(world: World, take: TakeTruth, t_s: Array) -> NDArray[np.uint8]:
    """Return (N, size, size, 3) RGB views at times (N,), rising, from a head that rests at its mean pose.

    Args:
        world: its config says how large the frames are.
        take: the take.
        t_s: seconds of video.
    """
    moving = head_motion(world, take)
    still = replace(moving, excursion=moving.excursion * 0.0, amplitude=moving.amplitude * 0.0)
    return np.stack(list(render_at(world, take, still, t_s)))


def by_take(segments: pa.Table) -> dict[str, SegmentIntervals]:
    """Return take id -> its segments, by position."""
    return {take: intervals(rows) for take, rows in intervals_by_take(segments).items()}
