"""The windows that a row of the tables is asked about, and everything that rows are made from.

Axes: B windows of one horizon H, M middle steps, P width of a plan (models/readout.py).
Source: docs/decisions/scorer.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from schemas.training import Ablation, ScorerConfig
from trajpilot_core.errors import MethodError, StoreError
from trajpilot_core.methods.anticipation_models import Anticipation
from trajpilot_core.methods.planner_models import PlannerRows
from trajpilot_core.methods.plans import own_plan
from trajpilot_core.methods.sequences import SequenceModels
from trajpilot_core.retrieval.bank import Bank, ChainView
from trajpilot_core.retrieval.candidates import Candidates, fallback_plans, find_candidates, permuted
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer import Queries, queries_of
from trajpilot_core.training.scorer_file import ReadyScorer, load_scorer, scorer_config


@dataclass(frozen=True)
class Scorers:
    """The scorers of one seed."""

    config: ScorerConfig
    paper: ReadyScorer
    ablated: Mapping[Ablation, ReadyScorer]


class Retrieved(NamedTuple):
    """What the bank gave for the windows."""

    found: Candidates
    """Candidate plans."""
    queries: Queries
    """The same windows as the scorers read them."""
    strangers: Candidates
    """The candidates with the trajectories of other bank windows."""


@dataclass(frozen=True)
class WindowBatch:
    """B windows of one horizon."""

    view: ChainView
    """The final chain."""
    segments: Tensor
    """(B, H) long."""
    fallback: Tensor
    """(B, H, P), what no_traj predicts."""
    scorers: Scorers | None = None
    retrieved: Retrieved | None = None
    """None where the windows have no head motion to retrieve by."""
    donors: Tensor | None = None
    """(B, M) long, segments whose trajectories stand in for the middles in the row `shuffled`, -1 for none."""
    sequences: SequenceModels | None = None
    """What rows need that decode steps together."""
    planners: PlannerRows | None = None
    """Planners of other papers; None: the run has trained none, or they are not asked."""
    goal_dropout: ChainView | None = None
    """The final chain with the goal-dropout twins of its predictors; None: likewise."""
    anticipation: Anticipation | None = None
    """None: the run has no twins that anticipate."""

    @cached_property
    def endpoint_plan(self) -> Tensor:
        """Return (B, H, P): what is predicted under the windows' own endpoint motion alone.

        Raises:
            StoreError: the chain has no such checkpoint; only the final one has it.
        """
        model = self.view.models.endpoint_traj
        if model is None:
            name = self.view.chain.name
            raise StoreError(f"chain {name} has no endpoint_traj checkpoint; rows are made with the final chain")
        return own_plan(self.view, model, self.segments, with_mids=False)

    @cached_property
    def true_plan(self) -> Tensor:
        """Return (B, H, P): what is predicted under the windows' own motion, middle included."""
        return own_plan(self.view, self.view.models.traj, self.segments, with_mids=True)

    def candidates(self) -> Retrieved:
        """Return what was retrieved. Raises MethodError if nothing was."""
        if self.retrieved is None:
            raise MethodError("these windows came without candidates; a row that needs them cannot answer")
        return self.retrieved

    def ready(self) -> Scorers:
        """Return the scorers. Raises MethodError if there are none."""
        if self.scorers is None:
            raise MethodError("these windows came without scorers; a row that needs them cannot answer")
        return self.scorers

    def joint(self) -> SequenceModels:
        """Return what decoding steps together needs. Raises MethodError if nothing was fitted."""
        if self.sequences is None:
            raise MethodError("these windows came without moves between labels; a row that needs them cannot answer")
        return self.sequences


def load_scorers(models: Models, seed: int, device: str) -> Scorers:
    """Read the scorers of one seed from the entry `scorers`."""
    config = scorer_config(models)
    ablated = {name: ReadyScorer(*load_scorer(models, seed, device, name)) for name in config.ablations}
    return Scorers(config, ReadyScorer(*load_scorer(models, seed, device)), ablated)


def retrieve(
    view: ChainView,
    bank: Bank,
    rows: Tensor,
    scorers: Scorers,
    strangers: Tensor,
    donors: Tensor | None = None,
    sequences: SequenceModels | None = None,
) -> WindowBatch:
    """Retrieve and roll out for some windows of the bank's horizon.

    Args:
        rows: (B,) long, rows of the horizon's windows.
        strangers: (N,) long, for every bank window another one.
        donors: (B, M) long, see `WindowBatch`.
        sequences: of the chain, the view's seed and the horizon; None: no row that needs them is asked.
    """
    found = find_candidates(view, bank, rows, scorers.config)
    queries = queries_of(view, found, scorers.config)
    retrieved = Retrieved(found, queries, permuted(view, bank, found, strangers))
    return WindowBatch(view, found.segments, found.fallback, scorers, retrieved, donors, sequences)


def without_motion(view: ChainView, segments_BH: Tensor) -> WindowBatch:
    """Return windows that have no head motion: nothing can be retrieved for them."""
    return WindowBatch(view, segments_BH, fallback_plans(view, segments_BH))
