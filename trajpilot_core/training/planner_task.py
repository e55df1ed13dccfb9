"""The data of planners of other papers, as tensors.

Shapes: S segments, D feature width, A actions, Z sentences per action, E text width, N windows of the horizon H, B
windows of a batch.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from trajpilot_core.data.chains import fit_takes
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.data.transitions import fitted_bigrams, masks_of
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.models.planners.matched import PlannerInputs
from trajpilot_core.models.planners.planner import PlannerShape
from trajpilot_core.training.jobs import Task


@dataclass(frozen=True)
class PlannerTask(Task):
    """The tensors of one run, on the device."""

    SHARED: ClassVar[tuple[str, ...]] = ("features", "labels", "tasks", "descriptions", "transition", "n_tasks")

    features: Tensor
    """(S, D) float16, raw, tokens averaged."""
    labels: Tensor
    """(S,) long."""
    tasks: Tensor
    """(S,) long, scenario of each segment's take."""
    descriptions: Tensor
    """(A, Z, E)."""
    transition: Tensor
    """(A, A) float32, counts in the fitted takes."""
    fit_rows: Tensor
    """(n,) long, segments of the fitted takes."""
    fit: dict[int, Tensor]
    """Horizon -> (N, H) long."""
    dev: dict[int, Tensor]
    """Horizon -> (N, H) long."""
    n_tasks: int

    def shape(self) -> PlannerShape:
        """Return the sizes that follow from the data."""
        return PlannerShape(
            self.features.shape[1], self.descriptions.shape[2], len(self.descriptions), max(1, self.n_tasks)
        )

    def inputs(self, segments_BH: Tensor, windows_B: Tensor) -> PlannerInputs:
        """Return the inputs of a planner for windows."""
        ends_B2D = self.features[segments_BH[:, [0, -1]]]
        return PlannerInputs(ends_B2D, windows_B, self.descriptions, self.transition)


def planner_task(inputs: Inputs, data: PlanningData, chain: Chain) -> PlannerTask:
    """Read the data of a chain; tensors on the CPU. A horizon without windows to fit on or in dev is left out.

    Args:
        inputs: segments, takes, scenario_labels and descriptions are read.
        data: windows, features and labels.
        chain: the planners are fitted on its takes.

    Raises:
        InputError: there are no descriptions.
    """
    takes = fit_takes(data, chain)
    fit = {h: w.segments[torch.isin(w.take, takes)] for h, w in data.windows.items()}
    dev = {h: w.segments[w.split == 1] for h, w in data.windows.items()}
    kept = [h for h in data.windows if len(fit[h]) and len(dev[h])]
    masks, n_labels = masks_of(inputs, data), len(data.label_ids)
    return PlannerTask(
        features=data.features.float().mean(1).half(),
        labels=data.labels,
        tasks=masks.of_take[data.segment_take],
        descriptions=read_descriptions(inputs.table("descriptions"), data.label_ids),
        transition=fitted_bigrams(inputs.table("segments"), data, chain, data.codes, n_labels).to_dense(),
        fit_rows=rows_of_takes(data.segment_take, takes),
        fit={h: fit[h] for h in kept},
        dev={h: dev[h] for h in kept},
        n_tasks=len(masks.scenarios),
    )


def read_descriptions(table: pa.Table, label_ids: tuple[str, ...]) -> Tensor:
    """Return (A, Z, E) float32: the sentences of each label, in the order of the bank; "before" comes first.

    Raises:
        InputError: the text bank has no sentences.
        StoreError: a label has too few.
    """
    if not table.num_rows:
        raise InputError(
            "planners read sentences about the states before and after every label, but the text bank has none; set "
            "text_bank.descriptions to template or file"
        )
    ordered = table.sort_by([("label_id", "ascending"), ("place", "ascending")])
    each = len(pc.unique(table["place"]))
    described = ordered["label_id"].to_pylist()[::each]
    row_of = {label_id: row for row, label_id in enumerate(described)}
    missing = next((label_id for label_id in label_ids if label_id not in row_of), None)
    if missing is not None or len(described) * each != ordered.num_rows:
        raise StoreError(f"descriptions lack the label {missing!r}; run text_bank again")
    vectors = np.asarray(ordered["vector"].combine_chunks().flatten(), dtype=np.float32)
    sentences_AZE = torch.from_numpy(vectors.copy()).view(len(described), each, -1)
    return sentences_AZE[torch.tensor([row_of[label_id] for label_id in label_ids])]
