"""Stage `video_motions`: a second set of head motions of the segments, from the video."""

from dataclasses import replace

from schemas.trajectories import VideoMotionsConfig
from trajpilot_core.engine.stage import Inputs, Output, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import trajectories

ENTRY = "video_motions"


def sources(inputs: Inputs, cfg: VideoMotionsConfig, data_root: str) -> list[Source]:
    """Return one source per take, as `trajectories` does.

    Raises:
        InputError: the second source is that of the pose files, or its motions are of no segments.
    """
    if cfg.source == "aria":
        raise InputError("video_motions.source is aria, the pose files; the second source is pi3 or odometry")
    if cfg.span != "segment":
        raise InputError(f"video_motions.span is {cfg.span}; the second set is of the segments themselves: segment")
    return trajectories.sources(inputs, cfg, data_root)


def run(work: Work[VideoMotionsConfig]) -> None:
    """Compute the motions of the pending takes and commit one shard for each."""
    trajectories.run(replace(work))  # type: ignore[arg-type]


STAGE = Stage(
    name="video_motions",
    reads=("takes", "segments"),
    writes=(ENTRY,),
    config=VideoMotionsConfig,
    run=run,
    version=trajectories.VERSION,
    summary="Videos -> a second set of 16 relative 6-DoF motions a segment, next to those of `trajectories`",
    shard_by="take",
    sources=sources,
    pure_sources=True,
    lowers=("video_motions.pi3.pixel_limit",),
    uses_gpu=True,
    output=Output("segments", ENTRY, ("source", "frame", "scale")),
)
