"""How many true labels the masks of the scenarios allow: where one is forbidden, no masked row can be right.

Shapes: B test windows of one horizon H, V labels. Source: docs/decisions/closed-vocabulary.md.
"""

from schemas.results import MaskCoverage
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.data.transitions import ScenarioMasks
from trajpilot_core.models.planners.decoding import truths_allowed


def mask_coverage(masks: ScenarioMasks, data: PlanningData) -> list[MaskCoverage]:
    """Count, for every horizon, the steps of the test windows whose true label the mask of their scenario allows.

    Args:
        masks: of the takes of `data`, on the CPU.
        data: likewise. A horizon without test windows is left out.
    """
    found = []
    for horizon, windows in data.windows.items():
        rows = (windows.split == SPLITS.index("test")).nonzero()[:, 0]
        if not len(rows):
            continue
        take_B = windows.take[rows]
        allowed_BH = truths_allowed(masks.of_windows(take_B), data.labels[windows.segments[rows]])
        found.append(
            MaskCoverage(
                horizon=horizon,
                n_windows=len(rows),
                n_windows_unmasked=int((~masks.is_known[masks.of_take[take_B]]).sum()),
                n_steps=allowed_BH.numel(),
                n_allowed=int(allowed_BH.sum()),
                n_middle=allowed_BH[:, 1:-1].numel(),
                n_middle_allowed=int(allowed_BH[:, 1:-1].sum()),
            )
        )
    return found
