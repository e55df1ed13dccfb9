"""Windows whose segments have head motion from two sources, as planning data with either (docs/decisions/poses.md).

Shapes: S segments.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from trajpilot_core.data.planning import SPLITS, PlanningData, load_planning_data
from trajpilot_core.errors import InputError
from trajpilot_core.poses.motions import median_step_m, rms_scaled
from trajpilot_core.store.reading import Inputs


class TwoMotions(NamedTuple):
    """The windows that both sources cover, and the motions of their segments."""

    data: PlanningData
    """With motions from pose files."""
    raw: Tensor
    """(S, 16, 6) from video, lengths as estimated."""
    by_rule: Tensor
    """(S, 16, 6) from video, every clip scaled to the median step of the training clips from pose files."""
    step_m: float
    """That step."""


def two_motions(inputs: Inputs) -> TwoMotions:
    """Read the planning data that both `motions`, from pose files, and `video_motions` cover.

    Raises InputError: no segment, or no test window in all of its segments, has motions from both sources.
    """
    from_poses, from_video = common(inputs.table("motions"), inputs.table("video_motions"))
    data = load_planning_data(inputs, "pose_sources", from_poses)
    if not any((windows.split == SPLITS.index("test")).any() for windows in data.windows.values()):
        raise InputError(
            "no test window has motions from both sources in every segment; look at the rejects of both stages of "
            "motions, or lower video_motions.min_quality"
        )
    raw = load_planning_data(inputs, "pose_sources", from_video).motions
    train = torch.isin(data.segment_take, (data.take_split == SPLITS.index("train")).nonzero()[:, 0])
    step_m = median_step_m(data.motions[train].numpy())
    return TwoMotions(data, raw, torch.from_numpy(rms_scaled(raw.numpy(), step_m)).float(), step_m)


def common(own: pa.Table, other: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both tables whose segments are in both. Raises InputError: there are none."""
    kept, others = (
        table.filter(pc.is_in(table["segment_id"], value_set=of["segment_id"]))
        for table, of in ((own, other), (other, own))
    )
    if not kept.num_rows:
        raise InputError("no segment has motions from both sources; look at the rejects of both stages of motions")
    return kept, others
