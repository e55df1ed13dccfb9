"""The subset of test windows that vision-language models were asked for: every row is scored on it alone.

Source: docs/decisions/vlm.md.
"""

from dataclasses import replace

import torch

from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.vlm.material import subset


def on_subset(data: PlanningData, per_horizon: int, seed: int) -> PlanningData:
    """Return the data with so many test windows of each horizon, those that vision-language models were asked for."""
    windows = {}
    for horizon, one in data.windows.items():
        is_test = (one.split == SPLITS.index("test")).tolist()
        kept = subset(
            [(id_, horizon) for id_, test in zip(one.window_ids, is_test, strict=True) if test], per_horizon, seed
        )
        rows = [row for row, id_ in enumerate(one.window_ids) if not is_test[row] or id_ in kept]
        at = torch.tensor(rows, dtype=torch.long)
        ids = tuple(one.window_ids[row] for row in rows)
        windows[horizon] = replace(
            one, window_ids=ids, take=one.take[at], split=one.split[at], segments=one.segments[at]
        )
    return replace(data, windows=windows)
