"""Switches of the predictor's training: what each changes, and that the defaults change nothing."""

from dataclasses import replace

import torch
from torch.testing import assert_close
from trainings_fixture import PREDICTOR, clear_task, drawn, memory_task, units

from trajpilot_core.training.fit_predictor import mixed_batches, new_predictor, window_batches, window_loss
from trajpilot_core.training.loop import seeded
from trajpilot_core.training.losses import PredictedWindows, alignment_loss, cosine_loss, pooled_prediction_loss

FIT = {3: torch.arange(3 * 50).view(-1, 3), 4: torch.arange(4 * 30).view(-1, 4), 6: torch.arange(6 * 7).view(-1, 6)}
TAU = torch.tensor(1.0)


def test_mixed_batches_hold_every_window_once_and_most_hold_every_horizon() -> None:
    batches = mixed_batches(FIT, 16, drawn())
    seen = {h: torch.cat([rows for batch in batches for horizon, rows in batch if horizon == h]) for h in FIT}
    assert {h: sorted(rows.tolist()) for h, rows in seen.items()} == {h: [*range(len(w))] for h, w in FIT.items()}
    sizes = [sum(len(rows) for _, rows in batch) for batch in batches]
    assert sizes == [16] * 5 + [7]
    assert sum(len(batch) >= 2 for batch in batches) >= 5
    assert len(mixed_batches(FIT, 16, drawn(1))) == len(batches), "as many in every epoch"
    assert all(len(batch) == 1 for batch in window_batches(FIT, 16, drawn()))


def parts() -> list[PredictedWindows]:
    """Windows of two horizons that share labels."""
    bank = units(6, 8, seed=3)
    ids = [torch.randint(6, (n, h), generator=drawn(h)) for n, h in ((5, 3), (3, 4))]
    return [PredictedWindows(units(*each.shape, 8, seed=n), bank[each], each, None) for n, each in enumerate(ids)]


def test_the_pool_of_a_mixed_batch_holds_the_tokens_of_all_horizons() -> None:
    both = parts()
    alone = [pooled_prediction_loss([part], TAU, 0.5) for part in both]
    cosine = [cosine_loss(part.predicted, part.target) for part in both]
    assert_close(pooled_prediction_loss(both, TAU, 0.0), (5 * cosine[0] + 3 * cosine[1]) / 8)
    tokens, targets = (torch.cat([part[i].flatten(0, 1) for part in both]) for i in (0, 1))
    pool = alignment_loss(tokens, targets, torch.cat([part.ids.flatten() for part in both]), TAU)
    assert_close(pooled_prediction_loss(both, TAU, 0.5), (5 * cosine[0] + 3 * cosine[1]) / 8 + 0.5 * pool)
    apart = (5 * alone[0] + 3 * alone[1]) / 8
    assert not torch.allclose(pooled_prediction_loss(both, TAU, 0.5), apart), "planted: a pool for each horizon"


def test_a_goal_that_one_horizon_hides_is_not_in_the_pool_of_all() -> None:
    first, second = parts()
    hidden = second._replace(goal_seen=torch.tensor([True, False, True]))
    other = second.predicted.clone()
    other[1, -1] = units(8, seed=9)
    losses = [
        pooled_prediction_loss([first, hidden._replace(predicted=p)], TAU, 0.5) for p in (hidden.predicted, other)
    ]
    assert_close(losses[0], losses[1])
    seen = [pooled_prediction_loss([first, second._replace(predicted=p)], TAU, 0.5) for p in (second.predicted, other)]
    assert not torch.allclose(seen[0], seen[1]), "planted: a goal that is seen counts"


def test_a_mixed_batch_of_one_horizon_is_a_batch_of_that_horizon() -> None:
    task = clear_task(20, 4)
    with seeded(0):
        model = new_predictor(task, PREDICTOR)
    rows = torch.arange(8)
    one = window_loss(model, task, PREDICTOR, "traj", [(3, rows)])
    assert_close(one, window_loss(model, task, PREDICTOR.replace(mixed_horizons=True), "traj", [(3, rows)]))


def test_a_role_of_weight_zero_teaches_nothing_in_the_cosine_term() -> None:
    predicted, target = units(4, 5, 8, seed=1), units(4, 5, 8, seed=2)
    for place, role in enumerate(([0], [1, 2, 3], [4])):
        other = predicted.clone()
        other[:, role] = units(4, len(role), 8, seed=3)
        weights = tuple(0.0 if i == place else 1.0 for i in range(3))
        assert_close(cosine_loss(predicted, target, None, weights), cosine_loss(other, target, None, weights))
        assert not torch.allclose(cosine_loss(predicted, target), cosine_loss(other, target))
    tripled = cosine_loss(predicted, target, None, (3.0, 3.0, 3.0))
    assert_close(tripled, 3 * cosine_loss(predicted, target))


def test_the_weights_of_the_configuration_reach_the_loss() -> None:
    task = memory_task()
    with seeded(0):
        model = new_predictor(task, PREDICTOR)
    plain = PREDICTOR.replace(infonce_weight=0.0)
    batch = [(3, torch.arange(8)), (4, torch.arange(8))]
    one, three = (
        window_loss(model, task, cfg, "traj", batch) for cfg in (plain, plain.replace(cosine_weights=(3, 3, 3)))
    )
    assert_close(three, 3 * one)


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
