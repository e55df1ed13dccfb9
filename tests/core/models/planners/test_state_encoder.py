"""The state encoder that SCHEMA and ViterbiPlanNet share; their agreement with the originals says the rest of it."""

import torch
from formula import fill
from planner_cases import SHAPE, WINDOWS, batch
from torch.testing import assert_close

from schemas.planners import SchemaConfig
from trajpilot_core.models.planners.state_encoder import StateEncoder


def encoder(input_dropout: float = 0.4) -> StateEncoder:
    module = StateEncoder(SchemaConfig(width=16, heads=4, input_dropout=input_dropout), SHAPE).eval()
    fill(module)
    return module


def test_the_temperature_starts_at_the_configured_one_and_is_not_clamped() -> None:
    module, given = StateEncoder(SchemaConfig(width=16), SHAPE).eval(), batch(3)
    assert_close(module.log_temperature.exp().item(), 1 / 0.07)
    cold = module(given.features, given.descriptions).logits
    with torch.no_grad():
        module.log_temperature += 5.0
    assert_close(module(given.features, given.descriptions).logits, cold * torch.tensor(5.0).exp())


def test_all_windows_of_a_step_share_one_mask_of_the_descriptions() -> None:
    module, given = encoder().train(), batch(3)
    alike = given.features[:1].expand(WINDOWS, -1, -1)
    module.features[0].register_forward_pre_hook(lambda _, inputs: (alike,))
    logits = module(alike, given.descriptions).logits
    assert_close(logits, logits[:1].expand_as(logits))
