"""The predictor of latents: causal, blind where the goal is hidden, and one context for all candidates."""

import torch
from latent_fixture import CFG, TRAIN, fitted, made_up
from torch import Tensor
from torch.testing import assert_close

from trajpilot_core.models.latent import LatentPredictor, LatentShape, StepInputs, l1_between, targets_of
from trajpilot_core.training.fit_latent import LatentTask

SHAPE = LatentShape(feature_width=8, tokens=2, motion=6, text_width=5, max_horizon=6, labels=3)
CONFIG = CFG.replace(target="temporal", layers=2)


def predictor() -> LatentPredictor:
    torch.manual_seed(0)
    return LatentPredictor(CONFIG, SHAPE).eval()


def clips(n: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    start, goal = torch.randn(2, n, 2, 8, generator=generator)
    return targets_of(start, "temporal"), targets_of(goal, "temporal")


@torch.no_grad()
def test_a_later_motion_does_not_change_an_earlier_step() -> None:
    model, (start, goal) = predictor(), clips()
    motion = torch.randn(3, 4, 5, 6)
    other = torch.cat([motion[:, :, :3], torch.randn(3, 4, 2, 6)], 2)
    context = model.encode(start, goal, 6)
    one, two = (model(context, StepInputs(each), 5, 6) for each in (motion, other))
    assert one.shape == (3, 4, 5, 2, 8)
    assert_close(one[:, :, :3], two[:, :, :3])
    assert not torch.allclose(one[:, :, 3], two[:, :, 3])


@torch.no_grad()
def test_a_hidden_goal_is_not_read_and_a_seen_one_is() -> None:
    model, (start, goal) = predictor(), clips()
    hidden = torch.zeros(3, dtype=torch.bool)
    motion = StepInputs(torch.randn(3, 1, 2, 6))
    blind = model(model.encode(start, None, 4), motion, 2, 4)
    assert_close(model(model.encode(start, goal, 4, hidden), motion, 2, 4), blind)
    assert not torch.allclose(model(model.encode(start, goal, 4, ~hidden), motion, 2, 4), blind)


@torch.no_grad()
def test_a_shared_context_gives_what_each_candidate_gets_alone() -> None:
    model, (start, goal) = predictor(), clips()
    motion = torch.randn(3, 4, 2, 6)
    shared = model(model.encode(start, goal, 4), StepInputs(motion), 2, 4)
    repeated = model.encode(start.repeat_interleave(4, 0), goal.repeat_interleave(4, 0), 4)
    alone = model(repeated, StepInputs(motion.flatten(0, 1)[:, None]), 2, 4)
    assert_close(shared.flatten(0, 1), alone[:, 0])


def test_64_windows_without_any_rule_are_memorised() -> None:
    task = made_up(looks=False, moves=False, n=96)  # 64 of them are fitted
    same = LatentTask(**{**vars(task), "dev": task.fit})
    start = targets_of(task.features[task.fit[3][:, 1]], "pooled")
    spread = float(l1_between(start, start.roll(1, 0)).mean())
    _, l1 = fitted(same, "plan_trajectory", 150, batch=64, lr=1e-2)
    assert TRAIN.epochs < 150
    assert l1 < 0.35 * spread, f"{l1:.3f} after training, {spread:.3f} between strangers"
