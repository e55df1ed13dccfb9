"""The planners of other papers that a run has trained, and their plans of windows.

Axes: B windows of one horizon H, A actions. Source: docs/decisions/planners.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.planners import PlannerName, PlannersConfig
from trajpilot_core.data.chains import frozen
from trajpilot_core.data.cross_fitting import Chain, model_key
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.data.transitions import masks_of
from trajpilot_core.models.planners.decoding import PlannerShape, TransitionPrior, clamped_prior
from trajpilot_core.models.planners.matched import DecodedPlan, MatchedPlanner, PlannerInputs, decode
from trajpilot_core.store.reading import Inputs
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.fit_planners import AT_ONCE, PlannerTask, planner_task, variant_of

SEEDS_APART = 1_000_003
"""Distance between the seeds of two samplings: more than there are training seeds."""


@dataclass(frozen=True)
class PlannerTables:
    """Inputs of planners that are the same for every seed and horizon."""

    models: Models
    config: PlannersConfig
    task: PlannerTask
    allowed: Tensor
    """(takes, A) bool, labels of the scenario of each take."""
    prior: TransitionPrior
    chain: Chain


class PlannerRows(NamedTuple):
    """The planners of one seed and horizon."""

    tables: PlannerTables
    of_method: Mapping[PlannerName, MatchedPlanner]
    seed: int


def open_planners(inputs: Inputs, data: PlanningData, chain: Chain, device: str) -> PlannerTables | None:
    """Open the output of the stage `planners`; None where it has trained nothing, or on another vocabulary.

    Reads planner_models, descriptions, scenario_labels, segments and takes.
    """
    models = inputs.models("planner_models")
    if not models.keys:
        return None
    config = PlannersConfig.model_validate_json(models.about["config"])
    if (config.vocabulary == "classes") != (data.code_of is not None):
        return None
    task = planner_task(inputs, data, chain)
    task = replace(task, descriptions=task.descriptions.to(device), transition=task.transition.to(device))
    allowed = masks_of(inputs, data).of_windows(torch.arange(len(data.take_ids))).to(device)
    prior = clamped_prior(task.transition, config.transition_floor)
    return PlannerTables(models, config, task, allowed, prior, chain)


def planner_rows(tables: PlannerTables | None, seed: int, horizon: int, device: str) -> PlannerRows | None:
    """Build the planners of one seed and horizon, in evaluation mode; None where there are none."""
    if tables is None:
        return None
    shape = PlannerShape.from_json(tables.models.about["shape"])
    planners: dict[PlannerName, MatchedPlanner] = {}
    for method in tables.config.methods:
        key = model_key(tables.chain, seed, variant_of(method, horizon))
        if key in tables.models.keys:
            model = MatchedPlanner(method, tables.config, shape, horizon)
            planners[method] = frozen(model, tables.models, key, device)
    return PlannerRows(tables, planners, seed) if planners else None


@torch.inference_mode()
def planned(
    rows: PlannerRows,
    method: PlannerName,
    data: PlanningData,
    segments_BH: Tensor,
    *,
    masked: bool = False,
    ddpm: bool = False,
    sampling: int = 0,
) -> DecodedPlan | None:
    """Return the plans of a planner; None where it was not trained, or does not answer in this way.

    Of the windows (B, H) the features of their ends are read, and the scenario of their take where `masked`. The rows
    of PDPP use its `sampling` 0.
    """
    model, tables = rows.of_method.get(method), rows.tables
    if model is None or (ddpm and not tables.config.answers_ddpm):
        return None
    parts, seed = [], rows.seed + SEEDS_APART * sampling
    for segments in torch.split(segments_BH, AT_ONCE):
        ends_B2D = data.features[segments[:, [0, -1]]].float().mean(2).half()
        inputs = PlannerInputs(ends_B2D, segments[:, 0], tables.task.descriptions, tables.task.transition)
        allowed = tables.allowed[data.segment_take[segments[:, 0]]] if masked else None
        parts.append(decode(method, model.plan(inputs, seed, ddpm=ddpm), tables.prior, allowed))
    if not parts:
        return None
    return DecodedPlan(torch.cat([part.scores for part in parts]), torch.cat([part.decoded for part in parts]))
