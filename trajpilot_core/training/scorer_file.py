"""How scorers lie in their model file: `final/s<seed>/<variant>/<parameter>`, decisions in the metadata."""

import json
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.config import Ablation, ScorerConfig
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.training.chains import Chain, ModelFile, model_key
from trajpilot_core.training.scorer_fit import Decision, FittedScorer, variant_of

FINAL = Chain("final", None)


def pack_scorers(
    fitted: Mapping[int, Mapping[str, FittedScorer]], config: ScorerConfig
) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Return the tensors and metadata of the `scorers` entry: configuration, shape, and one decision per scorer.

    Args:
        fitted: seed -> variant -> scorer.
        config: that they were fitted with.
    """
    tensors: dict[str, NDArray[np.generic]] = {}
    metadata = {"config": config.model_dump_json()}
    for seed, scorers in sorted(fitted.items()):
        for variant, scorer in scorers.items():
            key = model_key(FINAL, seed, variant)
            tensors |= {f"{key}/{name}": value.numpy() for name, value in scorer.state.items()}
            metadata[key] = scorer.decision.model_dump_json()
            metadata["shape"] = json.dumps(scorer.shape._asdict(), sort_keys=True)
    return tensors, metadata


def scorer_config(file: ModelFile) -> ScorerConfig:
    """Return the configuration that the scorers were fitted with."""
    return ScorerConfig.model_validate_json(file.metadata["config"])


def load_scorer(
    file: ModelFile, seed: int, device: str, ablation: Ablation | None = None
) -> tuple[GateThenRankScorer, Decision]:
    """Build the frozen scorer of one seed, or an ablated one, and read its decision.

    Raises:
        StoreError: the file holds no such scorer.
    """
    key = model_key(FINAL, seed, variant_of(ablation))
    if key not in file.metadata:
        raise StoreError(f"no scorer {key!r} in the file, which knows {', '.join(file.metadata)}; run the stage scorer")
    model = GateThenRankScorer(scorer_config(file), ScorerShape(**json.loads(file.metadata["shape"])), ablation)
    start = len(key) + 1
    state = {name[start:]: torch.tensor(value) for name, value in file.tensors.items() if name.startswith(key + "/")}
    model.load_state_dict(state, strict=True)
    return model.to(device).eval().requires_grad_(False), Decision.model_validate_json(file.metadata[key])
