"""The windows that a row of the tables is asked about, and everything that rows are made from.

Axes: B windows of one horizon H, M middle steps, P width of a plan (models/readout.py).
Source: docs/decisions/scorer.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from schemas.training import Ablation, PlusPart, ScorerConfig
from trajpilot_core.errors import MethodError, StoreError
from trajpilot_core.methods.anticipation_models import Anticipation
from trajpilot_core.methods.attention_models import AttentionRows, attention_plans
from trajpilot_core.methods.planner_models import PlannerRows
from trajpilot_core.methods.plans import own_plan
from trajpilot_core.methods.plus_parts import ReadyPlus, ready_plus, without_part
from trajpilot_core.methods.sequences import SequenceModels
from trajpilot_core.retrieval.bank import Bank, ChainView
from trajpilot_core.retrieval.candidates import Candidates, fallback_plans, find_candidates, permuted
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer import Queries, queries_of
from trajpilot_core.training.scorer_file import ReadyScorer, load_plus, load_scorer, scorer_config
from trajpilot_core.training.scorer_plus import PlusQueries, plus_queries
from trajpilot_core.training.scorer_plus_statistics import StatisticsByChain, plus_source


@dataclass(frozen=True)
class Scorers:
    """The scorers of one seed."""

    config: ScorerConfig
    paper: ReadyScorer
    ablated: Mapping[Ablation, ReadyScorer]
    plus: ReadyPlus | None
    plus_without: Mapping[PlusPart, ReadyPlus] = field(default_factory=dict)
    """Scorer+ with a part switched off."""


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
    attention: AttentionRows | None = None
    """Models of retrieval attention; None: the run has trained none, or they are not asked."""
    planners: PlannerRows | None = None
    """Planners of other papers; likewise."""
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

    @cached_property
    def attention_plans(self) -> Mapping[str, Tensor]:
        """Return row -> (B, H, E), what retrieval attention predicts, for every variant that was trained."""
        return {} if self.attention is None else attention_plans(self.attention, self.view, self.segments)

    @cached_property
    def plus_queries(self) -> PlusQueries | None:
        """Return the windows as Scorer+ reads them, the same for every part that it is asked without; None without it.

        Raises:
            MethodError: the windows came without candidates or scorers.
        """
        plus = self.ready().plus
        return None if plus is None else plus_queries(plus.source, self.candidates().found)

    def candidates(self) -> Retrieved:
        """Return what was retrieved.

        Raises:
            MethodError: nothing was.
        """
        if self.retrieved is None:
            raise MethodError("these windows came without candidates; a row that needs them cannot answer")
        return self.retrieved

    def ready(self) -> Scorers:
        """Return the scorers.

        Raises:
            MethodError: there are none.
        """
        if self.scorers is None:
            raise MethodError("these windows came without scorers; a row that needs them cannot answer")
        return self.scorers

    def joint(self) -> SequenceModels:
        """Return what decoding steps together needs.

        Raises:
            MethodError: nothing was fitted.
        """
        if self.sequences is None:
            raise MethodError("these windows came without moves between labels; a row that needs them cannot answer")
        return self.sequences


def load_scorers(
    models: Models,
    view: ChainView,
    seed: int,
    device: str,
    known: StatisticsByChain | None = None,
    parts: Iterable[PlusPart] = (),
) -> Scorers:
    """Read the scorers of one seed, and collect what Scorer+ takes from the training takes of the final chain.

    Args:
        models: the entry `scorers`.
        view: the final chain.
        seed: which scorers.
        device: where they run.
        known: statistics of the view's data, as in `plus_source`.
        parts: without which Scorer+ answers, too.
    """
    config = scorer_config(models)
    ablated = {name: ReadyScorer(*load_scorer(models, seed, device, name)) for name in config.ablations}
    paper = ReadyScorer(*load_scorer(models, seed, device))
    if config.plus is None or view.data.own_labels is not None:  # Scorer+ ranks labels by tables of its own
        return Scorers(config, paper, ablated, None)
    plus = ready_plus(*load_plus(models, config.plus, seed, device), plus_source(view, config, known))
    return Scorers(config, paper, ablated, plus, {part: without_part(plus, part) for part in parts})


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
        view: the final chain.
        bank: of the horizon.
        rows: (B,) long, rows of the horizon's windows.
        scorers: of the view's seed.
        strangers: (N,) long, for every bank window another one.
        donors: (B, M) long, see `WindowBatch`.
        sequences: of the chain, the view's seed and the horizon; None: no row that needs them is asked.
    """
    found = find_candidates(view, bank, rows, scorers.config)
    queries = queries_of(view, found, scorers.config)
    retrieved = Retrieved(found, queries, permuted(view, bank, found, strangers))
    if scorers.plus is not None and scorers.plus.source.view is not view:
        plus = scorers.plus._replace(source=replace(scorers.plus.source, view=view))
        scorers = replace(scorers, plus=plus)
    return WindowBatch(view, found.segments, found.fallback, scorers, retrieved, donors, sequences)


def without_motion(view: ChainView, segments_BH: Tensor) -> WindowBatch:
    """Return windows that have no head motion: nothing can be retrieved for them."""
    return WindowBatch(view, segments_BH, fallback_plans(view, segments_BH))
