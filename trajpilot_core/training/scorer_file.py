"""How scorers lie in their entry: keys `final/s<seed>/<variant>`, and what dev decided in what holds for all."""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from schemas.results import CurvePoint
from schemas.training import Ablation, ScorerConfig, ScorerPlusConfig
from trajpilot_core.data.chains import Chain, frozen, model_key
from trajpilot_core.engine.stage import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.models.scorer_plus import ScorerPlus
from trajpilot_core.store.files import naming_failures
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.checkpoint import is_there, read_tensors, tensors_digest, write_atomically
from trajpilot_core.training.scorer_fit import QUERIES, SCORER, FittedScorer, FittedSeed, ScorerDecision, variant_of
from trajpilot_core.training.scorer_plus_fit import FittedPlus, PlusDecision

FINAL = Chain("final", None)
ENTRY = "scorers"
SCORER_PLUS = "scorer_plus"
FITTED = "fitted.safetensors"
"""Name of the file of a seed's scorers in scratch, while the others are fitted."""
log = logging.getLogger("trajpilot")


def write_scorers(sink: Sink, fitted: Mapping[int, FittedSeed], config: ScorerConfig) -> None:
    """Write the entry `scorers`: their weights, and for all the configuration, the shape, one decision per scorer.

    Args:
        sink: of the stage.
        fitted: seed -> its scorers.
        config: that they were fitted with.
    """
    about = {"config": config.model_dump_json()}
    for seed, of_seed in sorted(fitted.items()):
        for variant, scorer in scorers_of(of_seed).items():
            key = model_key(FINAL, seed, variant)
            sink.model(ENTRY, key, {name: value.numpy() for name, value in scorer.state.items()})
            about[key] = scorer.decision.model_dump_json()
        about["shape"] = json.dumps(of_seed.scorers[SCORER].shape._asdict(), sort_keys=True)
    sink.models(ENTRY, about)


def scorers_of(fitted: FittedSeed) -> dict[str, FittedScorer | FittedPlus]:
    """Return the scorers of one seed by variant, Scorer+ last."""
    plus = {} if fitted.plus is None else {SCORER_PLUS: fitted.plus}
    return {**fitted.scorers, **plus}


def fit_once(folder: Path, seed: int, config: ScorerConfig, fit: Callable[[Path], FittedSeed]) -> FittedSeed:
    """Fit the scorers of one seed in a folder, or read what an earlier call has left there.

    Once they are fitted their queries are removed: those of the next seed need the room.

    Args:
        folder: private to the seed.
        seed: of the scorers.
        config: that they are fitted with.
        fit: called with the folder.
    """
    found = _kept(folder, config)
    if found is not None:
        log.info("the scorers of seed %d were fitted before; nothing of theirs is computed again", seed)
    else:
        found = fit(folder)
        _keep(folder, config, found)
    with naming_failures("remove the queries below", folder):
        if (folder / QUERIES).exists():
            shutil.rmtree(folder / QUERIES)
    return found


def _keep(folder: Path, config: ScorerConfig, found: FittedSeed) -> None:
    """Write the scorers of a seed to its folder."""
    tensors: dict[str, Tensor] = {}
    facts = {"config": config.model_dump_json()}
    for variant, scorer in scorers_of(found).items():
        tensors |= {f"{variant}/{name}": value.contiguous() for name, value in scorer.state.items()}
        facts[variant] = scorer.decision.model_dump_json()
    facts["shape"] = json.dumps(found.scorers[SCORER].shape._asdict(), sort_keys=True)
    facts["curves"] = json.dumps([row.content() for row in found.curves()])
    write_atomically(folder / FITTED, tensors, {**facts, "digest": tensors_digest(tensors)})


def _kept(folder: Path, config: ScorerConfig) -> FittedSeed | None:
    """Read the scorers that a folder holds; None where there are none, or they are damaged or of other settings."""
    if not is_there(folder / FITTED):
        return None
    try:
        tensors, facts = read_tensors(folder / FITTED, "cpu")
        if tensors_digest(tensors) != facts["digest"]:
            raise ValueError("its digest does not match its tensors")
    except (SafetensorError, ValueError, KeyError) as error:
        log.warning("%s is damaged (%s); its scorers are fitted again", folder / FITTED, error)
        return None
    if facts["config"] != config.model_dump_json():
        return None
    curves = [CurvePoint.model_validate(row) for row in json.loads(facts["curves"])]
    shape = ScorerShape(**json.loads(facts["shape"]))

    def of(variant: str) -> tuple[str, dict[str, Tensor], list[CurvePoint]]:
        """Return the decision, the parameters in the shapes that were saved, and the curve of a variant."""
        state = {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith(f"{variant}/")}
        return facts[variant], state, [row for row in curves if row.model == f"{FINAL.name}/{variant}"]

    scorers = {}
    for variant in map(variant_of, (None, *config.ablations)):
        decision, state, curve = of(variant)
        scorers[variant] = FittedScorer(state, shape, ScorerDecision.model_validate_json(decision), curve)
    if config.plus is None:
        return FittedSeed(scorers, None)
    decision, state, curve = of(SCORER_PLUS)
    return FittedSeed(scorers, FittedPlus(state, PlusDecision.model_validate_json(decision), curve))


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
