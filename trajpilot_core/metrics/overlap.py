"""How much two sequences share: intersection over union of their labels, and the edit distance."""

from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.values import edit_distance, sequence_iou

MIOU = MetricSpec(
    id="mIoU",
    description="overlap of the sets of true and decoded labels, per window",
    values=lambda labels, decoded, _: sequence_iou(labels, decoded),
    table="sequence",
    reads="sequence",
)
ED = MetricSpec(
    id="ED",
    description="edit distance in steps, lower is better",
    values=lambda labels, decoded, _: edit_distance(labels, decoded),
    table="sequence",
    reads="sequence",
    higher_is_better=False,
)
