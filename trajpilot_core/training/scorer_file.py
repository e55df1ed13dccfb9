"""How scorers lie in their entry: keys `final/s<seed>/<variant>`, and what dev decided in what holds for all."""

import json
from collections.abc import Mapping

from schemas.training import Ablation, ScorerConfig, ScorerPlusConfig
from trajpilot_core.data.chains import Chain, frozen, model_key
from trajpilot_core.engine.stage import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.models.scorer_plus import ScorerPlus
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.scorer_fit import SCORER, FittedScorer, FittedSeed, ScorerDecision, variant_of
from trajpilot_core.training.scorer_plus_fit import FittedPlus, PlusDecision

FINAL = Chain("final", None)
ENTRY = "scorers"
SCORER_PLUS = "scorer_plus"


def write_scorers(sink: Sink, fitted: Mapping[int, FittedSeed], config: ScorerConfig) -> None:
    """Write the entry `scorers`: their weights, and for all the configuration, the shape, one decision per scorer.

    Args:
        sink: of the stage.
        fitted: seed -> its scorers.
        config: that they were fitted with.
    """
    about = {"config": config.model_dump_json()}
    for seed, of_seed in sorted(fitted.items()):
        found: dict[str, FittedScorer | FittedPlus] = dict(of_seed.scorers)
        if of_seed.plus is not None:
            found[SCORER_PLUS] = of_seed.plus
        for variant, scorer in found.items():
            key = model_key(FINAL, seed, variant)
            sink.model(ENTRY, key, {name: value.numpy() for name, value in scorer.state.items()})
            about[key] = scorer.decision.model_dump_json()
        about["shape"] = json.dumps(of_seed.scorers[SCORER].shape._asdict(), sort_keys=True)
    sink.models(ENTRY, about)


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
