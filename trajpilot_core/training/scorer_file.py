"""How scorers lie in their entry: keys `final/s<seed>/<variant>`, and what dev decided in what holds for all."""

import json
from typing import NamedTuple

from schemas.training import Ablation, ScorerConfig, ScorerPlusConfig
from trajpilot_core.data.chains import frozen
from trajpilot_core.data.cross_fitting import FINAL, SCORER_NO_GOAL, model_key
from trajpilot_core.engine.stage import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.models.scorer_plus import ScorerPlus
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer_fit import (
    SCORER,
    FittedScorer,
    FittedSeed,
    ScorerDecision,
    variant_of,
)
from trajpilot_core.training.scorer_plus_fit import FittedPlus, PlusDecision

ENTRY = "scorers"
SCORER_PLUS = "scorer_plus"
SHAPE_NO_GOAL = "shape_no_goal"
"""What holds for all scorers without a goal: their shape; `shape` is that of the others."""


class ReadyScorer(NamedTuple):
    """A frozen scorer and what dev decided for it."""

    scorer: GateThenRankScorer
    decision: ScorerDecision


def write_scorers(share: Sink, seed: int, fitted: FittedSeed) -> None:
    """Write the scorers of one seed into the entry `scorers`: their weights, one decision per scorer, and the shape."""
    about = {"shape": shape_json(fitted.scorers[SCORER].shape)}
    for variant, scorer in scorers_of(fitted).items():
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


def scorers_of(fitted: FittedSeed) -> dict[str, FittedScorer | FittedPlus]:
    """Return the scorers of one seed by variant, Scorer+ last."""
    plus = {} if fitted.plus is None else {SCORER_PLUS: fitted.plus}
    return {**fitted.scorers, **plus}


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
    key = _known(scorers, model_key(FINAL, seed, variant_of(ablation)))
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


def load_plus(scorers: Models, config: ScorerPlusConfig, seed: int, device: str) -> tuple[ScorerPlus, PlusDecision]:
    """Build the frozen Scorer+ of one seed and read its decision.

    Raises:
        StoreError: there is none, or one of other parameters.
    """
    key = _known(scorers, model_key(FINAL, seed, SCORER_PLUS))
    decision = PlusDecision.model_validate_json(scorers.about[key])
    return frozen(ScorerPlus(config), scorers, key, device), decision


def _known(scorers: Models, key: str) -> str:
    """Return `key`, of which a decision must be known."""
    if key not in scorers.about:
        held = ", ".join(scorers.about)
        raise StoreError(f"no scorer {key!r} in the entry, which knows {held}; run the stage scorer")
    return key
