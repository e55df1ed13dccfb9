"""What planners of closed vocabularies share: their sizes, the parts of a loss, and PDPP's task classifier."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from trajpilot_core.models.blocks import DataSizes


@dataclass(frozen=True)
class PlannerShape(DataSizes):
    """Sizes that follow from the data."""

    feature_width: int
    text_width: int
    actions: int
    tasks: int


class PlannerLoss(NamedTuple):
    """Loss of one batch, every part a scalar."""

    total: Tensor
    """Weighted sum of the terms; the one to minimise."""
    terms: dict[str, Tensor]
    """Name -> unweighted value."""


class TaskClassifier(nn.Module):
    """Narrow, widen and narrow each feature, average the two, and predict the task.

    Its prediction is an input of planning. Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), train_mlp.py.
    Shapes: B windows, D feature width (at least 3), K tasks. There is no non-linearity between the first two layers:
    together they are one map of rank D / 3, as in the original.
    """

    def __init__(self, features: int, tasks: int) -> None:
        super().__init__()
        narrow, wide = features // 3, features * 4
        self.narrow_in, self.widen = nn.Linear(features, narrow), nn.Linear(narrow, wide)
        self.narrow_out, self.readout = nn.Linear(wide, narrow), nn.Linear(narrow, tasks)
        for layer in (self.narrow_in, self.widen, self.narrow_out, self.readout):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features_B2D: Tensor) -> Tensor:
        """Return logits (B, K)."""
        hidden_B2N = F.relu(self.narrow_out(F.relu(self.widen(self.narrow_in(features_B2D)))))
        logits: Tensor = self.readout(hidden_B2N.mean(dim=1))
        return logits
