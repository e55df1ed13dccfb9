"""What the tables of closed vocabularies print, all of it of the decoded sequence: SR, both mAcc, mIoU, ED.

SR, mIoU and ED are what they are elsewhere. The paper's closed tables call Mid mAcc plainly mAcc.
"""

from dataclasses import replace

from trajpilot_core.metrics import exact, overlap
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.values import mean_accuracy, mid_accuracy

MID_MACC = MetricSpec(
    id="Mid mAcc",
    description="middle steps of the decoded sequence that are right",
    values=lambda labels, decoded, _: mid_accuracy(labels, decoded),
    table="closed",
)
FULL_MACC = MetricSpec(
    id="Full mAcc",
    description="all steps of the decoded sequence that are right, Start and Goal included",
    values=lambda labels, decoded, _: mean_accuracy(labels, decoded),
    table="closed",
)
SR = replace(exact.SR, table="closed", at_most=(MID_MACC.id, FULL_MACC.id, overlap.MIOU.id))
MIOU = replace(overlap.MIOU, table="closed")
ED = replace(overlap.ED, table="closed")
