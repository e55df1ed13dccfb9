"""Stage `video_motions`: a second set of head motions, from the video, next to that of the pose files."""

from dataclasses import replace

from schemas.config import VideoMotionsConfig
from trajpilot_core.engine.stage import Inputs, Output, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import trajectories

ENTRY = "video_motions"


def sources(inputs: Inputs, cfg: VideoMotionsConfig, data_root: str) -> list[Source]:
    """Return one source per take, as `trajectories` does.

    Raises:
        InputError: the second source is that of the pose files.
    """
    if cfg.source == "aria":
        raise InputError("video_motions.source is aria, the pose files; the second source is pi3 or odometry")
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
    summary="Videos -> a second set of 16 relative 6-DoF motions a segment, for the table of pose sources",
    shard_by="take",
    sources=sources,
    pure_sources=True,
    needs=trajectories.needs,
    uses_gpu=True,
    output=Output("segments", ENTRY, ("source", "frame", "scale")),
)
