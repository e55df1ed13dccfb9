"""Switches of the predictor's training: hidden goals, and features that are not standardised."""

from dataclasses import replace

import torch
from torch.testing import assert_close
from trainings_fixture import PREDICTOR, clear_task, drawn, units

from trajpilot_core.training.fit_predictor import new_predictor
from trajpilot_core.training.loop import seeded
from trajpilot_core.training.losses import PredictedWindows, pooled_prediction_loss


def test_a_hidden_goal_is_not_in_the_pool() -> None:
    bank, ids = units(6, 8, seed=3), torch.randint(6, (3, 4), generator=drawn(1))
    seen = PredictedWindows(units(3, 4, 8, seed=1), bank[ids], ids, None)
    other = seen.predicted.clone()
    other[1, -1] = units(8, seed=9)
    hidden = seen._replace(goal_seen=torch.tensor([True, False, True]))
    for windows, is_equal in ((hidden, True), (seen, False)):  # planted: a goal that is seen counts
        losses = [
            pooled_prediction_loss(windows._replace(predicted=predicted), torch.tensor(1.0), 0.5)
            for predicted in (windows.predicted, other)
        ]
        assert torch.allclose(*losses) == is_equal


def test_raw_features_reach_a_predictor_that_does_not_standardise() -> None:
    task = clear_task(20, 4)
    far = replace(task, features=(task.features.float() * 4 + 3).half())
    with seeded(0):
        plain = new_predictor(far, PREDICTOR)
    with seeded(0):
        raw = new_predictor(far, PREDICTOR.replace(standardise=False))
    assert torch.equal(raw.standardise(far.features), far.features.float())
    assert_close(plain.standardise(far.features).mean((0, 1)), torch.zeros(10), atol=0.2, rtol=0)
    assert torch.equal(raw.feature_mean, plain.feature_mean), "both say what the takes' mean was"
