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
from trajpilot_core.training.scorer_fit import SCORER, FittedScorer, ScorerDecision, variant_of

ENTRY = "scorers"
SHAPE_NO_GOAL = "shape_no_goal"
"""What holds for all scorers without a goal: their shape; `shape` is that of the others."""


class ReadyScorer(NamedTuple):
    """A frozen scorer and what dev decided for it."""

    scorer: GateThenRankScorer
    decision: ScorerDecision


def write_scorers(share: Sink, seed: int, fitted: Mapping[str, FittedScorer]) -> None:
    """Write the scorers of one seed into the entry `scorers`: their weights, one decision per scorer, and the shape."""
    about = {"shape": shape_json(fitted[SCORER].shape)}
    for variant, scorer in fitted.items():
        key = model_key(FINAL, seed, variant)
        share.model(ENTRY, key, {name: value.numpy() for name, value in scorer.state.items()})
        about[key] = scorer.decision.model_dump_json()
    share.models(ENTRY, about)


def write_scorer_without_goal(share: Sink, seed: int, fitted: FittedScorer) -> None:
    """Write the scorer of one seed that sees no goal into the entry `scorers`, with its decision and its shape."""
    key = model_key(FINAL, seed, SCORER_NO_GOAL)
    share.model(ENTRY, key, {name: value.numpy() for name, value in fitted.state.items()})
    share.models(ENTRY, {SHAPE_NO_GOAL: shape_json(fitted.shape), key: fitted.decision.model_dump_json()})


def shape_json(shape: ScorerShape) -> str:
    """Return sizes as JSON; the number of ends follows from whose they are, and is not written."""
    return json.dumps({name: size for name, size in shape._asdict().items() if name != "ends"}, sort_keys=True)


def scorer_config(scorers: Models) -> ScorerConfig:
    """Return the configuration that the scorers were fitted with."""
    return ScorerConfig.model_validate_json(scorers.about["config"])


def load_scorer(
    scorers: Models, seed: int, device: str, ablation: Ablation | None = None
) -> tuple[GateThenRankScorer, ScorerDecision]:
    """Build the frozen scorer of one seed, or an ablated one, and read its decision.

    Raises:
        StoreError: there is no such scorer, or it has other parameters.
    """
    key = model_key(FINAL, seed, variant_of(ablation))
    if key not in scorers.about:
        known = ", ".join(scorers.about)
        raise StoreError(f"no scorer {key!r} in the entry, which knows {known}; run the stage scorer")
    model = GateThenRankScorer(scorer_config(scorers), ScorerShape(**json.loads(scorers.about["shape"])), ablation)
    return frozen(model, scorers, key, device), ScorerDecision.model_validate_json(scorers.about[key])


def load_scorer_without_goal(scorers: Models, seed: int, device: str) -> ReadyScorer | None:
    """Build the frozen scorer of one seed that sees no goal, and read its decision; None where none was fitted."""
    key = model_key(FINAL, seed, SCORER_NO_GOAL)
    if key not in scorers.about:
        return None
    shape = ScorerShape(**json.loads(scorers.about[SHAPE_NO_GOAL]), ends=1)
    model = GateThenRankScorer(scorer_config(scorers), shape, None)
    return ReadyScorer(frozen(model, scorers, key, device), ScorerDecision.model_validate_json(scorers.about[key]))
