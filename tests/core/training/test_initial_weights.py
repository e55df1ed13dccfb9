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
from trajpilot_core.training.fit_predictor import places_for, put_weights, start_weights


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
    assert start_weights(model, alone, "final/s0/traj") == frozenset()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (places_for(3, alone), places_for(3, cfg), places_for(9, cfg)) == (3, 4, 9)
    assert start_weights(model, cfg, "final/s0/traj") == frozenset()
    state = model.state_dict()
    assert state.keys() == there.keys()
    assert all(np.array_equal(state[name].numpy(), there[name]) for name in there)
    assert not torch.equal(model.feature_scale, torch.ones(32))


def test_only_a_class_head_may_be_absent_there() -> None:
    state = {"head.weight": torch.zeros(2, 3), "class_head.weight": torch.ones(5, 3)}
    assert put_weights(state, {"head.weight": np.full((2, 3), 7.0, np.float32)}, "x") == {"class_head.weight"}
    assert torch.equal(state["head.weight"], torch.full((2, 3), 7.0))
    assert torch.equal(state["class_head.weight"], torch.ones(5, 3))
    whole = {"head.weight": np.zeros((2, 3)), "class_head.weight": np.zeros((5, 3))}
    for wrong, named in (
        ({"class_head.weight": np.zeros((4, 3))}, r"class_head.weight \(4, 3\) there, \(5, 3\) here"),
        ({"more": np.zeros(1)}, r"more \(1,\) there, absent here"),
        ({"head.weight": np.zeros(6)}, r"head.weight \(6,\) there, \(2, 3\) here"),
    ):
        with pytest.raises(InputError, match=named):
            put_weights(state, {**whole, **wrong}, "x")
    with pytest.raises(InputError, match=r"head.weight absent there, \(2, 3\) here"):
        put_weights(state, {}, "x")


def test_shapes_and_settings_that_no_shape_shows_are_compared(
    cfg: PredictorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = r"^predictor.pretrained: final/s0/traj of .*feature_mean \(32,\) there, \(48,\) here"
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
