"""How scorers lie in their model file: `final/s<seed>/<variant>/<parameter>`, decisions in the metadata."""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from schemas.results import CurvePoint
from schemas.training import Ablation, ScorerConfig, ScorerPlusConfig
from trajpilot_core.data.chains import Chain, ModelFile, model_key
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.models.scorer_plus import ScorerPlus
from trajpilot_core.store.files import naming_failures
from trajpilot_core.training.checkpoint import is_there, read_tensors, tensors_digest, write_atomically
from trajpilot_core.training.scorer_fit import QUERIES, SCORER, FittedScorer, FittedSeed, ScorerDecision, variant_of
from trajpilot_core.training.scorer_plus_fit import FittedPlus, PlusDecision

FINAL = Chain("final", None)
SCORER_PLUS = "scorer_plus"
FITTED = "fitted.safetensors"
"""Name of the file of a seed's scorers in scratch, while the others are fitted."""
log = logging.getLogger("trajpilot")


def pack_scorers(
    fitted: Mapping[int, FittedSeed], config: ScorerConfig
) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Return the tensors and metadata of the `scorers` entry: configuration, shape, and one decision per scorer.

    Args:
        fitted: seed -> its scorers.
        config: that they were fitted with.
    """
    tensors: dict[str, NDArray[np.generic]] = {}
    metadata = {"config": config.model_dump_json()}
    for seed, of_seed in sorted(fitted.items()):
        found: dict[str, FittedScorer | FittedPlus] = dict(of_seed.scorers)
        if of_seed.plus is not None:
            found[SCORER_PLUS] = of_seed.plus
        for variant, scorer in found.items():
            key = model_key(FINAL, seed, variant)
            tensors |= {f"{key}/{name}": value.numpy() for name, value in scorer.state.items()}
            metadata[key] = scorer.decision.model_dump_json()
        metadata["shape"] = json.dumps(of_seed.scorers[SCORER].shape._asdict(), sort_keys=True)
    return tensors, metadata


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
        packed, metadata = pack_scorers({seed: found}, config)
        tensors = {name: torch.from_numpy(value).contiguous() for name, value in packed.items()}
        metadata |= {"digest": tensors_digest(tensors), "curves": json.dumps([row.content() for row in found.curves()])}
        write_atomically(folder / FITTED, tensors, {**metadata, "seed": str(seed)})
    with naming_failures("remove the queries below", folder):
        if (folder / QUERIES).exists():
            shutil.rmtree(folder / QUERIES)
    return found


def _kept(folder: Path, config: ScorerConfig) -> FittedSeed | None:
    """Read the scorers that a folder holds; None where there are none, or they are damaged or of other settings."""
    if not is_there(folder / FITTED):
        return None
    try:
        tensors, metadata = read_tensors(folder / FITTED, "cpu")
        if tensors_digest(tensors) != metadata["digest"]:
            raise ValueError("its digest does not match its tensors")
    except (SafetensorError, ValueError, KeyError) as error:
        log.warning("%s is damaged (%s); its scorers are fitted again", folder / FITTED, error)
        return None
    if metadata["config"] != config.model_dump_json():
        return None
    curves = [CurvePoint.model_validate(row) for row in json.loads(metadata["curves"])]
    shape = ScorerShape(**json.loads(metadata["shape"]))
    file = ModelFile({name: value.numpy() for name, value in tensors.items()}, metadata)

    def of(variant: str) -> tuple[str, dict[str, Tensor], list[CurvePoint]]:
        key = model_key(FINAL, int(metadata["seed"]), variant)
        return metadata[key], _state(file, key), [row for row in curves if row.model == f"{FINAL.name}/{variant}"]

    scorers = {}
    for variant in map(variant_of, (None, *config.ablations)):
        decision, state, curve = of(variant)
        scorers[variant] = FittedScorer(state, shape, ScorerDecision.model_validate_json(decision), curve)
    if config.plus is None:
        return FittedSeed(scorers, None)
    decision, state, curve = of(SCORER_PLUS)
    return FittedSeed(scorers, FittedPlus(state, PlusDecision.model_validate_json(decision), curve))


def scorer_config(file: ModelFile) -> ScorerConfig:
    """Return the configuration that the scorers were fitted with."""
    return ScorerConfig.model_validate_json(file.metadata["config"])


def load_scorer(
    file: ModelFile, seed: int, device: str, ablation: Ablation | None = None
) -> tuple[GateThenRankScorer, ScorerDecision]:
    """Build the frozen scorer of one seed, or an ablated one, and read its decision.

    Raises:
        StoreError: the file holds no such scorer.
    """
    key = _known(file, model_key(FINAL, seed, variant_of(ablation)))
    model = GateThenRankScorer(scorer_config(file), ScorerShape(**json.loads(file.metadata["shape"])), ablation)
    model.load_state_dict(_state(file, key), strict=True)
    return model.to(device).eval().requires_grad_(False), ScorerDecision.model_validate_json(file.metadata[key])


def load_plus(file: ModelFile, config: ScorerPlusConfig, seed: int, device: str) -> tuple[ScorerPlus, PlusDecision]:
    """Build the frozen Scorer+ of one seed and read its decision.

    Raises:
        StoreError: the file holds none, or one of other parameters.
    """
    key = _known(file, model_key(FINAL, seed, SCORER_PLUS))
    decision = PlusDecision.model_validate_json(file.metadata[key])
    model = ScorerPlus(config)
    model.load_state_dict(_fitting(_state(file, key), model, key), strict=True)
    return model.to(device).eval().requires_grad_(False), decision


def _known(file: ModelFile, key: str) -> str:
    """Return `key`, which must be in the file."""
    if key not in file.metadata:
        raise StoreError(f"no scorer {key!r} in the file, which knows {', '.join(file.metadata)}; run the stage scorer")
    return key


def _fitting(state: dict[str, Tensor], model: ScorerPlus, key: str) -> dict[str, Tensor]:
    """Return `state`, whose names and shapes must be the model's (torch would read a vector as a scalar)."""
    have, allowed = ({name: tuple(v.shape) for name, v in s.items()} for s in (state, model.state_dict()))
    wrong = sorted(name for name in have | allowed if have.get(name) != allowed.get(name))
    if wrong:
        found = "; ".join(f"{name} is {have.get(name, 'absent')}, not {allowed.get(name, 'known')}" for name in wrong)
        raise StoreError(f"{key}: {found} (shapes of parameters); it is of another version: run the stage scorer again")
    return state


def _state(file: ModelFile, key: str) -> dict[str, Tensor]:
    """Return the parameters below `key`."""
    start = len(key) + 1
    return {name[start:]: torch.tensor(value) for name, value in file.tensors.items() if name.startswith(key + "/")}
