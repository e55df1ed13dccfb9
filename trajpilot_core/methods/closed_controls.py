"""Controls of the transition prior of class heads: No-Traj without it, and the prior with the class scores of both ends
alone. Rows of closed vocabularies; elsewhere they are absent. Source: docs/decisions/closed-vocabulary.md.

Axes: B windows of one horizon H, P width of a plan.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.models.readout import ClassReadout


def class_readout(batch: "WindowBatch") -> "ClassReadout | None":
    """Return how class scores become labels; None for the open vocabulary."""
    from trajpilot_core.models.readout import ClassReadout

    readout = batch.view.readout
    return readout if isinstance(readout, ClassReadout) else None


def ranked(batch: "WindowBatch", plan_BHP: "Tensor", readout: "ClassReadout") -> Answers:
    """Return the labels of plans under a readout."""
    from trajpilot_core.methods.plans import rank_plan

    return rank_plan(plan_BHP, replace(batch.view, readout=readout), batch.segments)


def without_prior(batch: "WindowBatch") -> Answers | None:
    """Answer with No-Traj's class scores, each step by itself; masks are kept."""
    readout = class_readout(batch)
    return None if readout is None else ranked(batch, batch.fallback, replace(readout, weight=0.0))


def by_graph(batch: "WindowBatch") -> Answers | None:
    """Answer with the class scores of Start and Goal and the transitions between; the middles have no scores.

    The transitions have the weight of the recipe, or 1 where it switches them off.
    """
    readout = class_readout(batch)
    if readout is None:
        return None
    ends_BHP = batch.fallback.clone()
    ends_BHP[:, 1:-1] = 0.0
    return ranked(batch, ends_BHP, replace(readout, weight=readout.weight or 1.0))


WITHOUT_PRIOR = Method(
    id="no_traj_no_prior",
    name="No-Traj, no prior",
    knows="as No-Traj; every step by itself, without the transition prior",
    sees="ends",
    ceiling="no_traj",
    role="ablation",
    models=("no_traj",),
    answer=without_prior,
    part_of="no_traj",
    style=RowStyle("circle", "#2a7f9e", "#7fc8e8", dash="2 3"),
)
GRAPH_ONLY = Method(
    id="graph_only",
    name="Graph-only",
    knows="No-Traj's class scores of Start and Goal, and transitions of the training takes in between",
    sees="ends",
    ceiling="no_traj",
    role="control",
    models=("no_traj",),
    answer=by_graph,
    style=RowStyle("square", "#8a6d3b", "#e8d3a8", dash="6 3"),
)
