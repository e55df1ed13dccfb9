"""The weights that a training begins with: all of the other run's but a class head, of equal shapes and meaning."""

import numpy as np
import pytest
import torch
from other_run import other_root, started

from schemas.training import PredictorConfig
from trajpilot_core.data.other_runs import OtherOutput, open_other
from trajpilot_core.errors import InputError
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.fit_predictor import places_for, start_weights


@pytest.fixture(scope="module")
def cfg(tmp_path_factory: pytest.TempPathFactory) -> PredictorConfig:
    """Settings of a predictor that begins with a run's."""
    return started(other_root(tmp_path_factory)).predictor


def built(cfg: PredictorConfig, width: int = 32) -> CausalPredictor:
    return CausalPredictor(cfg, PredictorShape(width, 1, 32, 4))


def test_parameters_and_the_scale_of_features_are_those_of_the_other_model(cfg: PredictorConfig) -> None:
    alone = cfg.replace(pretrained=None)
    model, there = built(cfg), open_other(cfg.pretrained, "predictor").models("predictors").read("final/s0/traj")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not start_weights(model, alone, "final/s0/traj")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (places_for(3, alone), places_for(3, cfg), places_for(9, cfg)) == (3, 4, 9)
    assert not start_weights(model, cfg, "final/s0/traj")
    state = model.state_dict()
    assert state.keys() == there.keys()
    assert all(np.array_equal(state[name].numpy(), there[name]) for name in there)
    assert not torch.equal(model.feature_scale, torch.ones(32))


def test_only_a_class_head_may_be_absent_there(cfg: PredictorConfig) -> None:
    model = CausalPredictor(cfg, PredictorShape(32, 1, 32, 4, classes=5))
    assert model.class_head is not None
    before = model.class_head.weight.clone()
    assert start_weights(model, cfg, "final/s0/traj")
    assert torch.equal(model.class_head.weight, before)
    model.register_buffer("more", torch.zeros(1))
    with pytest.raises(InputError, match=r"(?s)does not fit .*Missing key\(s\) in state_dict: \"more\""):
        start_weights(model, cfg, "final/s0/traj")


def test_shapes_and_settings_that_no_shape_shows_are_compared(
    cfg: PredictorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = r"(?s)^predictor.pretrained: final/s0/traj of .*feature_mean: .*\[32\].*\[48\]"
    with pytest.raises(InputError, match=named):
        start_weights(built(cfg, 48), cfg, "final/s0/traj")
    for name, value in (("heads", 4), ("standardise", False)):
        other = cfg.replace(**{name: value})
        with pytest.raises(InputError, match=f"predictor.{name} is {value} here and {getattr(cfg, name)} there"):
            start_weights(built(other), other, "final/s0/traj")

    newer = Models({"config": '{"of_tomorrow": 1}'}, (), lambda key: {})
    monkeypatch.setattr(OtherOutput, "models", lambda self, entry: newer)
    with pytest.raises(InputError, match="another version of this project wrote the settings"):
        start_weights(built(cfg), cfg, "final/s0/traj")
