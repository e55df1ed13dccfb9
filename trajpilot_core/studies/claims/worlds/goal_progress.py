"""Goal progress: how many true plans come closer to the goal with every step, in the space of the features.

Source: paper, appendix on goal progress; reading and reasons: docs/decisions/claims-checks.md. Axes: N windows of one
horizon H, M = H - 2 middle steps, D feature width.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.results import GoalProgress
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.studies.claims.worlds.geometry import pooled_features


def goal_progress(inputs: Inputs) -> list[GoalProgress]:
    """Count the test windows whose middle steps approach the Goal monotonically, per take and horizon.

    Windows with a segment that has no feature are left out, as they are by every row.

    Args:
        inputs: takes, segments, windows and features.
    """
    takes = {row["take_id"]: row["split"] for row in inputs.table("takes", ["take_id", "split"]).to_pylist()}
    take_of = {r["segment_id"]: r["take_id"] for r in inputs.table("segments", ["segment_id", "take_id"]).to_pylist()}
    ids, features = pooled_features(inputs)
    train = np.array([takes[take_of[name]] == "train" for name in ids], bool)
    mean, scale = feature_scales(features[train][:, None])
    at = {name: row for row, name in enumerate(ids)}
    rows = inputs.table("windows", ["take_id", "horizon", "segment_ids"]).to_pylist()
    tested = [row for row in rows if takes[row["take_id"]] == "test" and all(s in at for s in row["segment_ids"])]
    found = []
    for horizon in sorted({row["horizon"] for row in tested}):
        windows = [row for row in tested if row["horizon"] == horizon]
        places_NH = torch.tensor([[at[name] for name in row["segment_ids"]] for row in windows])
        approaches_N = approaches((features[places_NH] - mean) / scale)
        owners = np.array([row["take_id"] for row in windows])
        for take in sorted(set(owners)):
            mine = owners == take
            found.append(
                GoalProgress(
                    take_id=str(take),
                    horizon=horizon,
                    n_windows=int(mine.sum()),
                    monotone=int(approaches_N[mine].sum()),
                )
            )
    return found


def approaches(features_NHD: Tensor) -> NDArray[np.bool_]:
    """Return (N,): true where the l1 distance to the last step falls at every middle step.

    Start is not in the chain, so that a single middle step always counts, as in the paper's table.

    Args:
        features_NHD: (N, H, D) of the steps, standardised.
    """
    distance_NM = (features_NHD[:, 1:-1] - features_NHD[:, -1:]).abs().mean(-1)
    falls: NDArray[np.bool_] = (distance_NM.diff(dim=1) < 0).all(1).numpy()
    return falls
