"""Scorers in their entry: keys `final/s<seed>/<variant>`, and what dev decided in what holds for all."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from schemas.training import Ablation, ScorerConfig
from trajpilot_core.data.chains import frozen
from trajpilot_core.data.cross_fitting import FINAL, SCORER_NO_GOAL, model_key
from trajpilot_core.engine.stage import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer_fit import FittedScorer, ScorerDecision, variant_of

ENTRY = "scorers"
SHAPE_NO_GOAL = "shape_no_goal"
"""Note of the shape of scorers without a goal; `shape` is that of the others. The number of ends is not noted."""


class ReadyScorer(NamedTuple):
    """A frozen scorer and what dev decided for it."""

    scorer: GateThenRankScorer
    decision: ScorerDecision


def write_scorers(share: Sink, seed: int, fitted: Mapping[str, FittedScorer]) -> None:
    """Write the scorers of one training into the entry `scorers`: their shape, weights, and one decision per scorer."""
    shape = next(iter(fitted.values())).shape._asdict()
    shape_json = json.dumps({name: size for name, size in shape.items() if name != "ends"}, sort_keys=True)
    about = {SHAPE_NO_GOAL if SCORER_NO_GOAL in fitted else "shape": shape_json}
    for variant, scorer in fitted.items():
        key = model_key(FINAL, seed, variant)
        share.model(ENTRY, key, {name: value.numpy() for name, value in scorer.state.items()})
        about[key] = scorer.decision.model_dump_json()
    share.models(ENTRY, about)


def scorer_config(scorers: Models) -> ScorerConfig:
    """Return the configuration that the scorers were fitted with."""
    return ScorerConfig.model_validate_json(scorers.about["config"])


def load_scorer(
    scorers: Models, seed: int, device: str, ablation: Ablation | None = None, *, sees_goal: bool = True
) -> ReadyScorer:
    """Build the frozen scorer of one seed, or an ablated one, or the one that sees no goal, and read its decision.

    Raises StoreError: there is no such scorer, or it has other parameters.
    """
    key = model_key(FINAL, seed, variant_of(ablation) if sees_goal else SCORER_NO_GOAL)
    if key not in scorers.about:
        known = ", ".join(scorers.about)
        raise StoreError(f"no scorer {key!r} in the entry, which knows {known}; run the stage scorer")
    sizes = json.loads(scorers.about["shape" if sees_goal else SHAPE_NO_GOAL])
    model = GateThenRankScorer(scorer_config(scorers), ScorerShape(**sizes, ends=2 if sees_goal else 1), ablation)
    return ReadyScorer(frozen(model, scorers, key, device), ScorerDecision.model_validate_json(scorers.about[key]))


def load_scorer_without_goal(scorers: Models, seed: int, device: str) -> ReadyScorer | None:
    """Build the scorer of one seed that sees no goal; None where none was fitted."""
    is_fitted = model_key(FINAL, seed, SCORER_NO_GOAL) in scorers.about
    return load_scorer(scorers, seed, device, sees_goal=False) if is_fitted else None
