"""The windows that a row of the tables answers, and everything that rows are made from.

Axes: B windows of one horizon H, M middle steps, P width of a plan (models/readout.py).
Source: docs/decisions/scorer.md; of windows without a goal: docs/decisions/anticipation.md, D 33 and 42.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from torch import Tensor

from schemas.training import Ablation, ScorerConfig
from trajpilot_core.data.chains import ModelFiles, predictor_config
from trajpilot_core.errors import MethodError, StoreError
from trajpilot_core.methods import plans
from trajpilot_core.methods.planner_models import PlannerRows
from trajpilot_core.methods.sequences import SequenceModels
from trajpilot_core.retrieval import candidates
from trajpilot_core.retrieval.bank import Bank, ChainView, build_bank, without_goal
from trajpilot_core.retrieval.candidates import Candidates, find_candidates, permuted
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer import Queries, queries_of
from trajpilot_core.training.scorer_fit import ReadyScorer, load_scorer, load_scorer_without_goal, scorer_config

T = TypeVar("T")


@dataclass(frozen=True)
class Scorers:
    """The scorers of one seed."""

    config: ScorerConfig
    paper: ReadyScorer
    ablated: Mapping[Ablation, ReadyScorer]


class Retrieved(NamedTuple):
    """What was retrieved from the bank for the windows."""

    found: Candidates
    """Candidate plans."""
    queries: Queries
    """The same windows as the scorers read them."""
    strangers: Candidates
    """The candidates with the trajectories of other bank windows."""


@dataclass(frozen=True)
class Anticipation:
    """Models of one seed that are given no goal; for windows of one horizon with what was retrieved for them."""

    view: ChainView
    """The final chain with its goal-dropout twins, no goal given."""
    config: ScorerConfig
    """How candidates are retrieved."""
    scorer: ReadyScorer | None = None
    """The scorer that sees no goal; None: none was fitted."""
    bank: Bank | None = None
    """Bank of one horizon, keyed by Start alone; None where there is no scorer."""
    found: Candidates | None = None
    queries: Queries | None = None
    """The windows as the scorer reads them; the truth is in none of them."""


@dataclass(frozen=True)
class WindowBatch:
    """B windows of one horizon."""

    view: ChainView
    """The final chain."""
    segments: Tensor
    """(B, H) long."""
    scorers: Scorers | None = None
    retrieved: Retrieved | None = None
    """None where the windows have no head motion to retrieve by."""
    donors: Tensor | None = None
    """(B, M) long, segments whose trajectories replace the middles in the row `shuffled`, -1 for none."""
    sequences: SequenceModels | None = None
    """Models of rows that decode steps together."""
    planners: PlannerRows | None = None
    """Planners of other papers; None: the run has trained none, or they do not answer here."""
    goal_dropout: ChainView | None = None
    """The final chain with the goal-dropout twins of its predictors; None: likewise."""
    anticipation: Anticipation | None = None
    """None: the run has no twins that anticipate."""

    @cached_property
    def fallback(self) -> Tensor:
        """Return (B, H, P): the plan of no_traj."""
        if self.retrieved is not None:
            return self.retrieved.found.fallback
        return candidates.fallback_plans(self.view, self.segments)

    @cached_property
    def endpoint_plan(self) -> Tensor:
        """Return (B, H, P): the plan under the windows' own endpoint motion alone.

        Raises:
            StoreError: the chain has no such checkpoint; only the final one has it.
        """
        model = self.view.models.endpoint_traj
        if model is None:
            name = self.view.chain.name
            raise StoreError(f"chain {name} has no endpoint_traj checkpoint; rows are made with the final chain")
        return plans.own_plan(self.view, model, self.segments, with_mids=False)

    @cached_property
    def true_plan(self) -> Tensor:
        """Return (B, H, P): the plan under the windows' own motion, middle included."""
        return plans.own_plan(self.view, self.view.models.traj, self.segments, with_mids=True)

    def under(self, view: ChainView) -> "WindowBatch":
        """Return the same windows for the models of a view; of another view than the batch's, without candidates."""
        return self if view is self.view else WindowBatch(view, self.segments)

    def candidates(self) -> Retrieved:
        """Return what was retrieved. Raises MethodError if nothing was."""
        return present(self.retrieved, "candidates")

    def ready(self) -> Scorers:
        """Return the scorers. Raises MethodError if there are none."""
        return present(self.scorers, "scorers")

    def joint(self) -> SequenceModels:
        """Return what decoding steps together needs. Raises MethodError if nothing was fitted."""
        return present(self.sequences, "moves between labels")


def present(value: T | None, what: str) -> T:
    """Return what a row needs. Raises MethodError: the windows have none."""
    if value is None:
        raise MethodError(f"these windows have no {what}; a row that needs them cannot answer")
    return value


def load_scorers(models: Models, seed: int, device: str) -> Scorers:
    """Read the scorers of one seed from the entry `scorers`."""
    config = scorer_config(models)
    ablated = {name: load_scorer(models, seed, device, name) for name in config.ablations}
    return Scorers(config, load_scorer(models, seed, device), ablated)


def retrieve(
    view: ChainView,
    bank: Bank,
    rows: Tensor,
    scorers: Scorers,
    strangers: Tensor,
    donors: Tensor | None = None,
    sequences: SequenceModels | None = None,
) -> WindowBatch:
    """Retrieve and roll out for some windows `rows`, (B,) long, of the bank's horizon.

    `strangers`: (N,) long, for every bank window another one; `donors` and `sequences` as in `WindowBatch`.
    """
    candidates = find_candidates(view, bank, rows, scorers.config)
    queries = queries_of(view, candidates, scorers.config)
    retrieved = Retrieved(candidates, queries, permuted(view, bank, candidates, strangers))
    return WindowBatch(view, candidates.segments, scorers, retrieved, donors, sequences)


def load_anticipation(
    files: ModelFiles, scorers: Models, twins: ChainView | None, seed: int, device: str
) -> Anticipation | None:
    """Read the models of one seed that answer without a goal; None where no twins were selected for it."""
    if twins is None or not predictor_config(files.predictors).anticipates:
        return None
    return Anticipation(without_goal(twins), scorer_config(scorers), load_scorer_without_goal(scorers, seed, device))


def at_horizon(models: Anticipation | None, horizon: int) -> Anticipation | None:
    """Return the models with the bank of a horizon."""
    if models is None or models.scorer is None:
        return models
    return replace(models, bank=build_bank(models.view, horizon, models.config.key))


def retrieved_by_start(models: Anticipation | None, rows: Tensor) -> Anticipation | None:
    """Return the models with what is retrieved for windows (B,), long, of the bank's horizon."""
    if models is None or models.scorer is None or models.bank is None:
        return models
    candidates = find_candidates(models.view, models.bank, rows, models.config)
    queries = queries_of(models.view, candidates, models.config, with_truth=False)
    return replace(models, found=candidates, queries=queries)
