"""Loading the models of a chain (data/cross_fitting.py), and its takes as tensors."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from schemas.training import AlignmentConfig, PredictorConfig
from trajpilot_core.data.cross_fitting import E_TAU, Chain, chains, model_key, variants_of
from trajpilot_core.data.events import Events
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.errors import StoreError
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape, TrajectoryEncoder
from trajpilot_core.store.reading import Inputs
from trajpilot_core.store.tensors import Models

M = TypeVar("M", bound=nn.Module)
SEGMENTS_PER_CALL = 8192


def chains_of(data: PlanningData | Events) -> tuple[Chain, ...]:
    """Return the chains for the folds of `data`."""
    return chains(int(data.fold.max()) + 1)


def fit_takes(data: PlanningData | Events, chain: Chain) -> Tensor:
    """Return the takes, long, shape (n,), of the chain's fits and bank: training without its fold."""
    return fitting_takes(data.take_split, data.fold, chain)


def query_takes(data: PlanningData | Events, chain: Chain) -> Tensor:
    """Return the training takes, long of shape (n,), that the chain has not seen: the scorer's training queries."""
    is_held_out = torch.zeros_like(data.fold, dtype=torch.bool) if chain.fold is None else data.fold == chain.fold
    return ((data.take_split == 0) & is_held_out).nonzero().squeeze(1)


def fitting_takes(take_split: Tensor, fold: Tensor, chain: Chain) -> Tensor:
    """As `fit_takes`, from indices of splits and folds, both of shape (takes,)."""
    fitted = take_split == 0
    if chain.fold is not None:
        fitted = fitted & (fold != chain.fold)
    return fitted.nonzero().squeeze(1)


class ModelFiles(NamedTuple):
    """The frozen models of all chains, each read on access."""

    e_tau: Models
    predictors: Models

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of every chain."""
        return alignment_config(self.e_tau).seeds


@dataclass(frozen=True)
class ChainModels:
    """The frozen models of one chain and seed, in evaluation mode."""

    e_tau: TrajectoryEncoder
    traj: CausalPredictor
    no_traj: CausalPredictor
    endpoint_traj: CausalPredictor | None
    """None except in the final chain."""


def open_model_files(inputs: Inputs) -> ModelFiles:
    """Open the entries `e_tau` and `predictors` without reading models."""
    return ModelFiles(inputs.models("e_tau"), inputs.models("predictors"))


def alignment_config(encoders: Models) -> AlignmentConfig:
    """Return the configuration that the alignment encoders were fitted with."""
    return AlignmentConfig.model_validate_json(encoders.about["config"])


def predictor_config(predictors: Models) -> PredictorConfig:
    """Return the configuration that the predictors were fitted with."""
    return PredictorConfig.model_validate_json(predictors.about["config"])


def load_chain_models(files: ModelFiles, chain: Chain, seed: int, device: str) -> ChainModels:
    """Build the frozen models of one chain and seed; no others are read.

    Raises StoreError: the chain or seed has no models.
    """
    e_tau = load_e_tau(files.e_tau, chain, seed, device)
    models = {variant: load_predictor(files.predictors, chain, seed, variant, device) for variant in variants_of(chain)}
    return ChainModels(e_tau, models["traj"], models["no_traj"], models.get("endpoint_traj"))


def load_e_tau(encoders: Models, chain: Chain, seed: int, device: str) -> TrajectoryEncoder:
    """Build the frozen trajectory encoder of one chain and seed."""
    model = TrajectoryEncoder(alignment_config(encoders), int(encoders.about["text_width"]))
    return frozen(model, encoders, model_key(chain, seed, E_TAU), device)


def load_predictor(predictors: Models, chain: Chain, seed: int, variant: str, device: str) -> CausalPredictor:
    """Build one frozen predictor of one chain and seed."""
    model = CausalPredictor(predictor_config(predictors), PredictorShape.from_json(predictors.about["shape"]))
    return frozen(model, predictors, model_key(chain, seed, variant), device)


@torch.no_grad()
def frozen(model: M, models: Models, key: str, device: str) -> M:
    """Read the weights of one model into `model`; evaluation mode, no gradients.

    Raises StoreError: the entry has no such model, or its parameters differ.
    """
    state, weights = model.state_dict(), models.read(key)
    have = {name: value.shape for name, value in weights.items()}
    allowed = {name: tuple(value.shape) for name, value in state.items()}
    wrong = sorted(name for name in have | allowed if have.get(name) != allowed.get(name))
    if wrong:  # shapes must be equal, because `copy_` broadcasts
        faults = "; ".join(f"{name} is {have.get(name, 'missing')}, not {allowed.get(name, 'known')}" for name in wrong)
        raise StoreError(f"{key}: {faults} (shapes of parameters); another version wrote it: run its stage again")
    for name, value in weights.items():
        state[name].copy_(torch.tensor(value))
    return model.to(device).eval().requires_grad_(False)


@torch.no_grad()
def trajectory_latents(e_tau: TrajectoryEncoder, motions: Tensor) -> Tensor:
    """Encode raw (S, 16, 6) motions (metres, radians), scaled as the chain was; returns (S, E) float32, unit norm."""
    parts = [e_tau(part / e_tau.scale) for part in torch.split(motions, SEGMENTS_PER_CALL)]
    return torch.cat(parts) if parts else motions.new_zeros(0, e_tau.text_width)


@torch.no_grad()
def trajectory_states(e_tau: TrajectoryEncoder, motions: Tensor) -> Tensor:
    """Return inputs (S, D) float32 of E_tau's head for raw (S, 16, 6) motions, scaled as in `trajectory_latents`."""
    parts = [e_tau.states(part / e_tau.scale) for part in torch.split(motions, SEGMENTS_PER_CALL)]
    return torch.cat(parts) if parts else motions.new_zeros(0, e_tau.head.in_features)
