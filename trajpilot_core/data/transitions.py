"""Tables of a closed vocabulary: which label follows which, and which labels a scenario allows.

The code of a label is its class; several labels may share one. Shapes: V classes, G scenarios, B windows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from trajpilot_core.data.chains import fit_takes, predictor_config
from trajpilot_core.data.cross_fitting import Chain
from trajpilot_core.data.planning import ClosedTables, PlanningData, indices
from trajpilot_core.errors import LeakError
from trajpilot_core.store.reading import Inputs
from trajpilot_core.store.tensors import Models

CLASSES = "the table of classes"


def fitted_bigrams(
    segments: pa.Table, data: PlanningData, chain: Chain, codes: Mapping[str, int], n_classes: int
) -> Tensor:
    """Return `label_bigrams` of the takes that a chain is fitted on, on the device of `data`."""
    takes = {data.take_ids[take] for take in fit_takes(data, chain).tolist()}
    return label_bigrams(segments, takes, codes, n_classes).to(data.labels.device)


def label_bigrams(segments: pa.Table, takes: Collection[str], codes: Mapping[str, int], n_classes: int) -> Tensor:
    """Count which class follows which: each pair of neighbouring segments in a run, once.

    Pairs are counted in the annotations, not in windows: including runs too short for a window, and segments without
    feature or motion. Returns (V, V) float32, sparse and coalesced: how often the column's class follows the row's.

    Raises:
        LeakError: a take is not in the training split.
        StoreError: a label has no class.
    """
    counted = segments.filter(pc.is_in(segments["take_id"], value_set=pa.array(sorted(takes), pa.string())))
    other = counted.filter(pc.not_equal(counted["split"], "train"))
    if other.num_rows:
        take, split = other["take_id"][0].as_py(), other["split"][0].as_py()
        raise LeakError(
            f"transitions would be counted in {take}, a take of {split}; only training takes may be counted"
        )
    counted = counted.sort_by([("take_id", "ascending"), ("position", "ascending")])
    take_S = counted["take_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    run_S, position_S = (counted[name].to_numpy() for name in ("run", "position"))
    class_S = indices(counted["label_id"].to_pylist(), codes, CLASSES)
    is_next = (take_S[1:] == take_S[:-1]) & (run_S[1:] == run_S[:-1]) & (position_S[1:] == position_S[:-1] + 1)
    pairs_2P = torch.stack([class_S[:-1], class_S[1:]])[:, torch.from_numpy(is_next)]
    one_P = torch.ones(pairs_2P.shape[1])
    return torch.sparse_coo_tensor(pairs_2P, one_P, (n_classes, n_classes), check_invariants=False).coalesce()


class ScenarioMasks(NamedTuple):
    """Which classes each scenario allows."""

    scenarios: tuple[str, ...]
    """G scenarios, sorted."""
    allowed: Tensor
    """(G, V) bool."""
    of_take: Tensor
    """(takes,) long, index into `scenarios`."""

    def of_windows(self, take_B: Tensor) -> Tensor:
        """Return (B, V) bool: the allowed classes of windows from takes (B,)."""
        return self.allowed[self.of_take[take_B]]


def scenario_masks(
    scenario_labels: pa.Table, takes: pa.Table, take_ids: Sequence[str], codes: Mapping[str, int], n_classes: int
) -> ScenarioMasks:
    """Read which classes the scenario of each take allows: those with an allowed label, by `codes` (label id -> class).

    A scenario without allowed labels, because no training take has it, is not masked.

    Raises StoreError: a label has no class, or a take is not in `takes`.
    """
    scenario_of = dict(zip(takes["take_id"].to_pylist(), takes["scenario"].to_pylist(), strict=True))
    scenarios = tuple(sorted(set(scenario_of.values())))
    place = {scenario: at for at, scenario in enumerate(scenarios)}
    of_take = indices(take_ids, {take: place[scenario] for take, scenario in scenario_of.items()}, "takes")
    rows = scenario_labels.filter(scenario_labels["is_allowed"])
    rows = rows.filter(pc.is_in(rows["scenario"], value_set=pa.array(scenarios, pa.string())))
    allowed_GV = torch.zeros(len(scenarios), n_classes, dtype=torch.bool)
    row_N = torch.tensor([place[scenario] for scenario in rows["scenario"].to_pylist()], dtype=torch.long)
    allowed_GV[row_N, indices(rows["label_id"].to_pylist(), codes, CLASSES)] = True
    allowed_GV |= ~allowed_GV.any(1, keepdim=True)
    return ScenarioMasks(scenarios, allowed_GV, of_take)


def masks_of(inputs: Inputs, data: PlanningData) -> ScenarioMasks:
    """Read which labels the scenario of each take of the data allows; tensors on the CPU.

    Raises StoreError: tables do not match.
    """
    takes = inputs.table("takes", ["take_id", "scenario"])
    return scenario_masks(inputs.table("scenario_labels"), takes, data.take_ids, data.codes, len(data.label_ids))


def with_closed_tables(data: PlanningData, inputs: Inputs, predictors: Models) -> PlanningData:
    """Return the data with the inputs of decoding on a closed vocabulary; unchanged without class heads.

    Raises StoreError: tables do not match.
    """
    return data if predictor_config(predictors).head == "open" else closed(data, inputs)


def closed(data: PlanningData, inputs: Inputs) -> PlanningData:
    """Return the data with the inputs of decoding on a closed vocabulary."""
    every = torch.arange(len(data.take_ids))
    segments = inputs.table("segments", ["take_id", "split", "position", "run", "label_id"])
    return replace(data, closed=ClosedTables(segments, masks_of(inputs, data).of_windows(every)))
