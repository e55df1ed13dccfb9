"""The planners of other papers behind one interface, on the features of our own rows.

The originals read two features of the borders of the first and of the last step; here Start and Goal have one feature
each, its tokens averaged, standardised by the takes that the planner was fitted on. Source: docs/decisions/planners.md.

Axes: B windows of one horizon H, D feature width, A actions, S sentences per action, E text width.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.planners import PlannerName, PlannersConfig
from trajpilot_core.models.blocks import Standardised
from trajpilot_core.models.planners.decoding import (
    PlannerShape,
    TaskClassifier,
    TransitionPrior,
    log_scores,
    marginals,
    viterbi,
)
from trajpilot_core.models.planners.pdpp import Pdpp
from trajpilot_core.models.planners.schema import SchemaPlanner
from trajpilot_core.models.planners.temporal_unet import PlanChannels
from trajpilot_core.models.planners.viterbi_plan_net import ViterbiPlanNet


class PlannerInputs(NamedTuple):
    """Inputs of a planner; only features and windows differ between the windows of a batch."""

    features: Tensor
    """(B, 2, D) raw features of Start and Goal."""
    windows: Tensor
    """(B,) long, numbers of the windows, which PDPP's noise depends on."""
    descriptions: Tensor
    """(A, S, E)."""
    transition: Tensor
    """(A, A) counts of transitions in the fitted takes."""


class MatchedPlanner(Standardised):
    """One planner for one horizon."""

    def __init__(self, method: PlannerName, cfg: PlannersConfig, shape: PlannerShape, horizon: int) -> None:
        super().__init__(shape.feature_width)
        self.cfg, self.method, self.shape, self.horizon = cfg, method, shape, horizon
        self.net: SchemaPlanner | ViterbiPlanNet | Pdpp
        self.task: TaskClassifier | None = None
        if method == "schema":
            self.net = SchemaPlanner(cfg.schema_net, shape, horizon)
        elif method == "viterbi_plan_net":
            self.net = ViterbiPlanNet(cfg.viterbi_plan_net, shape, horizon)
        else:
            self.net = Pdpp(cfg.pdpp, PlanChannels(shape.tasks, shape.actions, shape.feature_width))
            self.task = TaskClassifier(shape.feature_width, shape.tasks)

    def loss(self, inputs: PlannerInputs, labels_BH: Tensor, tasks_B: Tensor) -> Tensor:
        """Return the planner's own loss of a batch, a scalar.

        PDPP's task classifier shares no weight with it and is trained in the same steps.
        """
        ends_B2D = self.standardise(inputs.features)
        if isinstance(self.net, Pdpp):
            assert self.task is not None
            return self.net.loss(ends_B2D, labels_BH, tasks_B) + F.cross_entropy(self.task(ends_B2D), tasks_B)
        return self.net.loss(ends_B2D, inputs.descriptions, inputs.transition, labels_BH, tasks_B)

    def after_step(self) -> None:
        """Update averages of weights after a step of the optimiser."""
        if isinstance(self.net, Pdpp):
            self.net.after_step()

    @torch.no_grad()
    def plan(self, inputs: PlannerInputs, seed: int, *, ddpm: bool = False) -> Tensor:
        """Return (B, H, A), scores of every action at every step, before decoding.

        Log probabilities of SCHEMA, the log of ViterbiPlanNet's soft path, or the raw channels of a PDPP sample; with
        `ddpm` it is sampled with DDPM at all times, regardless of the settings.
        """
        ends_B2D = self.standardise(inputs.features)
        if isinstance(self.net, Pdpp):
            assert self.task is not None
            tasks_B, steps = self.task(ends_B2D).argmax(1), None if ddpm else self.cfg.pdpp.sampling_steps
            return self.net.plan(ends_B2D, tasks_B, self.horizon, steps, seed, inputs.windows)
        return self.net.plan(ends_B2D, inputs.descriptions, inputs.transition)


class DecodedPlan(NamedTuple):
    """The decoded answer of a planner."""

    scores: Tensor
    """(B, H, A) that rank the actions of every step."""
    decoded: Tensor
    """(B, H) long, the sequence."""


def decode(
    method: PlannerName, plan_BHA: Tensor, prior: TransitionPrior, allowed_BA: Tensor | None = None
) -> DecodedPlan:
    """Decode as the original does; a mask of allowed actions (bool) is applied before decoding.

    SCHEMA: Viterbi under the transitions, ranked by the exact posterior under the same scores. ViterbiPlanNet: the soft
    path as emission of a Viterbi under the same transitions, ranked by the soft path. PDPP: the best channel.
    """
    scores_BHA = scores_of(method, plan_BHA, allowed_BA)
    ranked_BHA = marginals(scores_BHA, prior, 1.0) if method == "schema" else scores_BHA
    return DecodedPlan(ranked_BHA, sequence(method, scores_BHA, prior))


def scores_of(method: PlannerName, plan_BHA: Tensor, allowed_BA: Tensor | None = None) -> Tensor:
    """Return (B, H, A): the scores that are decoded, -inf where an action is not allowed."""
    if method == "pdpp":
        return plan_BHA if allowed_BA is None else plan_BHA.masked_fill(~allowed_BA[:, None], -torch.inf)
    return log_scores(plan_BHA, allowed_BA)


def sequence(method: PlannerName, scores_BHA: Tensor, prior: TransitionPrior) -> Tensor:
    """Return (B, H) long: the decoded sequence."""
    return scores_BHA.argmax(dim=2) if method == "pdpp" else viterbi(scores_BHA, prior, 1.0)
