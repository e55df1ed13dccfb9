"""What rows without a goal answer with: twins that are shown none, and a scorer with a bank and a threshold of its own.

Axes: B windows of one horizon. Source: docs/decisions/anticipation.md, D 33 and 42.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from schemas.training import ScorerConfig
from trajpilot_core.data.chains import ModelFiles, predictor_config
from trajpilot_core.retrieval.bank import Bank, ChainView, build_bank, without_goal
from trajpilot_core.retrieval.candidates import Candidates, find_candidates
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer import Queries, queries_of
from trajpilot_core.training.scorer_file import ReadyScorer, load_scorer_without_goal, scorer_config


@dataclass(frozen=True)
class Anticipation:
    """Models of one seed; for windows of one horizon with what was retrieved for them."""

    view: ChainView
    """The final chain with its goal-dropout twins, no goal given."""
    config: ScorerConfig
    """How candidates are retrieved."""
    scorer: ReadyScorer | None = None
    """That sees no goal; None: none was fitted."""
    bank: Bank | None = None
    """Of one horizon, known by Start alone; None where there is no scorer."""
    found: Candidates | None = None
    queries: Queries | None = None
    """Of the windows that are answered, as the scorer reads them; the truth stands in none of them."""


def load_anticipation(
    files: ModelFiles, scorers: Models, twins: ChainView | None, seed: int, device: str
) -> Anticipation | None:
    """Read what one seed anticipates with; None where no twins were selected for it."""
    if twins is None or not predictor_config(files.predictors).anticipates:
        return None
    return Anticipation(without_goal(twins), scorer_config(scorers), load_scorer_without_goal(scorers, seed, device))


def at_horizon(models: Anticipation | None, horizon: int) -> Anticipation | None:
    """Return the models with the bank of a horizon."""
    if models is None or models.scorer is None:
        return models
    return replace(models, bank=build_bank(models.view, horizon, models.config.key))


def retrieved(models: Anticipation | None, rows: Tensor) -> Anticipation | None:
    """Return the models with what is retrieved for windows (B,), long, of the bank's horizon."""
    if models is None or models.scorer is None or models.bank is None:
        return models
    found = find_candidates(models.view, models.bank, rows, models.config)
    queries = queries_of(models.view, found, models.config, with_truth=False)
    return replace(models, found=found, queries=queries)
