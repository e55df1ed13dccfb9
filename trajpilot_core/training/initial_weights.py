"""The weights of another run's predictor, with which a training begins (docs/decisions/pretrained.md)."""

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
"""Begins the names of what the other run may lack: a head over the labels of this one."""
UNSEEN = ("heads", "standardise")
"""Settings that decide what weights mean and show in no shape."""


def places_for(horizon: int, cfg: PredictorConfig) -> int:
    """Return the longest horizon that a model has a place for: that of the data, or of the weights that it begins with.

    A corpus with shorter windows leaves places unused; one with longer windows has no weights for them, which
    `start_weights` refuses.
    """
    if cfg.pretrained is None:
        return horizon
    there = int(json.loads(open_other(cfg.pretrained, "predictor").models(ENTRY).about["shape"])["max_horizon"])
    return max(horizon, there)


def start_weights(model: CausalPredictor, cfg: PredictorConfig, key: str) -> frozenset[str]:
    """Put the weights of the other run's model of this key into a model that was just built; none where none is set.

    A goal-dropout twin that the other run lacks gets those of its original there (`first_weights`).

    Parameters and buffers alike, the scale of the features among them; a class head that the other run lacks stays as
    it was built.

    Args:
        model: of the training.
        cfg: its settings.
        key: chain, seed and variant of the training.

    Returns:
        Names of the parameters of a class head that the other run lacks; none where no other run is set.

    Raises:
        InputError: the model there is of other sizes, or damaged.
    """
    if cfg.pretrained is None:
        return frozenset()
    output = open_other(cfg.pretrained, "predictor")
    refuse_other_settings(output, cfg)
    models = output.models(ENTRY)
    first = first_weights(key, models.keys)
    return put_weights(model.state_dict(), models.read(first), f"{output.setting}: {first} of {output.named}")


def refuse_other_settings(output: OtherOutput, cfg: PredictorConfig) -> None:
    """Refuse weights that mean something else under the settings of this run.

    Raises:
        InputError: names the settings and both values.
    """
    there = output.settings(PredictorConfig, ENTRY)
    both = {name: (getattr(cfg, name), getattr(there, name)) for name in UNSEEN}
    differ = [
        f"predictor.{name} is {ours} here and {theirs} there" for name, (ours, theirs) in both.items() if ours != theirs
    ]
    if differ:
        raise InputError(f"{output.setting}: {'; '.join(differ)} ({output.named}); set what that run has")


@torch.no_grad()
def put_weights(state: Mapping[str, Tensor], weights: Tensors, named: str) -> frozenset[str]:
    """Copy weights into the parameters and buffers of a model, of equal shapes.

    Args:
        state: name -> parameter or buffer, of any shape.
        weights: name -> array of that shape; names that begin with NEW may be absent.
        named: whose they are, for the message.

    Returns:
        Names of the parameters that weights are absent for, which stay as they are.

    Raises:
        InputError: names what is absent on one side or of another shape, with both shapes.
    """
    here = {name: tuple(value.shape) for name, value in state.items()}
    there = {name: value.shape for name, value in weights.items()}
    optional = frozenset(name for name in here if name.startswith(NEW) and name not in there)
    wrong = sorted(name for name in here | there if here.get(name) != there.get(name) and name not in optional)
    if wrong:
        sides = [(name, there.get(name, "absent"), here.get(name, "absent")) for name in wrong]
        found = "; ".join(f"{name} {theirs} there, {ours} here" for name, theirs, ours in sides)
        raise InputError(
            f"{named} cannot be begun with: {found} (shapes); give the predictor the sizes of that run, and no horizon "
            "that it does not know (predictor.*, features.tokens, ingest.max_horizon)"
        )
    for name, value in weights.items():
        state[name].copy_(torch.tensor(value))
    return optional
