"""The weights of another run's predictor, from which a training starts (docs/decisions/pretrained.md)."""

import json
from collections.abc import Mapping

import torch
from torch import Tensor

from schemas.training import PredictorConfig
from trajpilot_core.data.imported_fits import first_weights
from trajpilot_core.data.other_runs import OtherOutput, open_other
from trajpilot_core.errors import InputError
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.store.tensors import Tensors

ENTRY = "predictors"
NEW = "class_head."
"""Prefix of parameters that the other run may lack: a head over the labels of this run."""
UNSEEN = ("heads", "standardise")
"""Settings that change the meaning of weights but not their shapes."""


def places_for(horizon: int, cfg: PredictorConfig) -> int:
    """Return the longest horizon that a model has positions for: that of the data, or of its initial weights.

    With shorter windows positions stay unused; with longer windows weights are missing, which `start_weights` refuses.
    """
    if cfg.pretrained is None:
        return horizon
    max_horizon = int(json.loads(open_other(cfg.pretrained, "predictor").models(ENTRY).about["shape"])["max_horizon"])
    return max(horizon, max_horizon)


def start_weights(model: CausalPredictor, cfg: PredictorConfig, key: str) -> frozenset[str]:
    """Load the other run's weights of this key into a new model; nothing is loaded if no other run is set.

    All parameters and buffers are loaded, including the scale of the features. A goal-dropout twin that the other run
    lacks gets the weights of its original there (`first_weights`); a class head that it lacks stays as it is.

    Returns:
        Names of the parameters of a class head that the other run lacks; empty if no other run is set.

    Raises InputError: the other model has other sizes, or is damaged.
    """
    if cfg.pretrained is None:
        return frozenset()
    output = open_other(cfg.pretrained, "predictor")
    refuse_other_settings(output, cfg)
    models = output.models(ENTRY)
    first = first_weights(key, models.keys)
    return put_weights(model.state_dict(), models.read(first), f"{output.setting}: {first} of {output.named}")


def refuse_other_settings(output: OtherOutput, cfg: PredictorConfig) -> None:
    """Refuse weights that have another meaning under the settings of this run.

    Raises InputError: settings differ; names them with both values.
    """
    settings = output.settings(PredictorConfig, ENTRY)
    both = {name: (getattr(cfg, name), getattr(settings, name)) for name in UNSEEN}
    differ = [
        f"predictor.{name} is {ours} here and {theirs} there" for name, (ours, theirs) in both.items() if ours != theirs
    ]
    if differ:
        raise InputError(f"{output.setting}: {'; '.join(differ)} ({output.named}); set the values of that run")


@torch.no_grad()
def put_weights(state: Mapping[str, Tensor], weights: Tensors, named: str) -> frozenset[str]:
    """Copy weights into the parameters and buffers of a model; shapes must be equal.

    Args:
        state: name -> parameter or buffer, of any shape.
        weights: name -> array of that shape; names that start with NEW may be missing.
        named: origin of the weights, for the message.

    Returns:
        Names of the parameters without weights, which stay as they are.

    Raises InputError: parameters are missing on one side or differ in shape; names them with both shapes.
    """
    here = {name: tuple(value.shape) for name, value in state.items()}
    shapes = {name: value.shape for name, value in weights.items()}
    optional = frozenset(name for name in here if name.startswith(NEW) and name not in shapes)
    wrong = sorted(name for name in here | shapes if here.get(name) != shapes.get(name) and name not in optional)
    if wrong:
        sides = [(name, shapes.get(name, "absent"), here.get(name, "absent")) for name in wrong]
        faults = "; ".join(f"{name} {theirs} there, {ours} here" for name, theirs, ours in sides)
        raise InputError(
            f"{named} does not fit: {faults} (shapes); set the sizes of that run, and no longer horizon than it has "
            "(predictor.*, features.tokens, ingest.max_horizon)"
        )
    for name, value in weights.items():
        state[name].copy_(torch.tensor(value))
    return optional
