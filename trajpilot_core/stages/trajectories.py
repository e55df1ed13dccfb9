"""Stages `trajectories`, `video_motions`: the head motion of every segment, 16 relative motions from a pose source."""

from dataclasses import replace

import pyarrow as pa

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.poses import TrajectoryConfig, VideoMotionsConfig
from trajpilot_core.corpora.records.contents import INTERVAL, covered_s, intervals_by_take
from trajpilot_core.engine.stage import Output, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.poses.sources.base import pose_source
from trajpilot_core.store.reading import Inputs

VERSION = 1
ENDS = {"action": ("annotated_start_s", "annotated_end_s"), "gap": ("observed_end_s", "annotated_start_s")}
"""Span -> columns of details with its ends, seconds."""


def sources(inputs: Inputs, cfg: TrajectoryConfig, data_root: str) -> list[Source]:
    """Return one source per take: files and facts of its pose source, and the segment intervals."""
    segments, poses = intervals_by_take(spans_of(inputs, cfg)), pose_source(cfg.source)
    listed = []
    for take in rows_of(Take, inputs.table("takes")):
        facts = {**poses.facts(take, cfg), "segments": segments.get(take.take_id, [])}
        listed.append(Source(shard=take.take_id, files=poses.files(take, cfg), facts=facts))
    return listed


def spans_of(inputs: Inputs, cfg: TrajectoryConfig) -> pa.Table:
    """Return the columns INTERVAL of every segment: its own interval, or that of the action that it precedes.

    Raises InputError: the segments do not precede actions.
    """
    segments = inputs.table("segments", INTERVAL)
    if cfg.span == "segment":
        return segments
    names = ENDS[cfg.span]
    rows = inputs.table("details", ["segment_id", *names]).to_pylist()
    ends = {row["segment_id"]: tuple(row[name] for name in names) for row in rows}
    spans = [ends.get(segment, (None, None)) for segment in segments["segment_id"].to_pylist()]
    if any(end is None for both in spans for end in both):
        raise InputError(
            f"trajectories.span={cfg.span} needs segments that each precede an action, as with "
            "ingest.corpus=epic_kitchens and ingest.epic_kitchens.segment=observed; otherwise set span=segment"
        )
    for at, name in enumerate(("start_s", "end_s")):
        column = pa.array([both[at] for both in spans], pa.float64())
        segments = segments.set_column(segments.schema.get_field_index(name), name, column)
    return segments


def run(work: Work[TrajectoryConfig]) -> None:
    """Compute the motions of the pending takes and commit one shard for each."""
    takes = {take.take_id: take for take in rows_of(Take, work.inputs.table("takes"))}
    jobs = [(takes[source.shard], source.facts["segments"]) for source in work.pending]
    for done in pose_source(work.config.source).motions(jobs, work.config, work.runtime) if jobs else ():
        work.sink.shard(done.take_id, done.table, done.rejects, done.n_in)


STAGE = Stage(
    name="trajectories",
    reads=("takes", "segments"),
    writes=("motions",),
    config=TrajectoryConfig,
    run=run,
    version=VERSION,
    summary="Pose files or videos -> 16 relative 6-DoF motions a segment",
    shard_by="take",
    sources=sources,
    lowers=("trajectories.pi3.pixel_limit",),
    uses_gpu=lambda cfg: cfg.source == "pi3",
    video_s=covered_s,
    narrowed=lambda config: None if config.trajectories.span == "segment" else ("takes", "segments", "details"),
    output=Output("segments", "motions", ("source", "frame", "scale")),
)


SECOND = replace(
    STAGE,
    name="video_motions",
    writes=("video_motions",),
    config=VideoMotionsConfig,
    summary="Videos -> a second set of 16 relative 6-DoF motions a segment, next to those of `trajectories`",
    lowers=("video_motions.pi3.pixel_limit",),
    uses_gpu=True,
    video_s=None,
    narrowed=None,
    output=Output("segments", "video_motions", ("source", "frame", "scale")),
)
"""The same from the video, next to the pose files: for the table of pose sources and for the action token."""
