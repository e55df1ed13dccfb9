"""The predictor's structure: its mask by gradients, its five inputs, its null trajectory, its shared roll-out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from schemas.training import PredictorConfig
from trajpilot_core.models import predictor as module
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape, feature_scales, structured_mask

SMALL = PredictorConfig(width=16, layers=2, heads=2, hidden=32, queries=4, dropout=0.1)
SHAPE = PredictorShape(feature_width=10, tokens=2, text_width=8, max_horizon=8)


def small(cfg: PredictorConfig = SMALL, shape: PredictorShape = SHAPE) -> CausalPredictor:
    torch.manual_seed(0)
    model = CausalPredictor(cfg, shape).eval()
    for parameter in model.parameters():  # the tables start small; large ones make a leak visible
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def inputs(batch: int, horizon: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(batch, 2, 10), torch.randn(batch, 2, 10), torch.randn(batch, horizon, 8)


def gradient(model: CausalPredictor, horizon: int) -> Tensor:
    """(H, H): how much output i depends on the trajectory of position j."""
    start, goal, latents = inputs(2, horizon)
    latents.requires_grad_()
    of_each = (model(start, goal, latents, horizon) @ torch.randn(8)).sum(0)
    rows = [torch.autograd.grad(one, latents, retain_graph=True)[0] for one in of_each]
    return torch.stack([row.abs().sum((0, 2)) for row in rows])


def check_mask(model: CausalPredictor, horizon: int) -> None:
    """Mid i depends on the endpoints and the mids <= i, the context on no mid."""
    grad, expected = gradient(model, horizon), torch.ones(horizon, horizon, dtype=torch.bool)
    expected[1:-1, 1:-1] = expected[1:-1, 1:-1].tril()
    expected[[0, -1], 1:-1] = False
    assert torch.equal(grad > 0, expected), grad


def test_no_output_depends_on_a_later_mid_and_the_context_on_none() -> None:
    for horizon in (3, 4, 8):
        check_mask(small(), horizon)


def test_a_leaky_mask_turns_that_check_red(monkeypatch: pytest.MonkeyPatch) -> None:
    one = structured_mask(8, 3)
    leaks = (torch.ones_like(one), one.index_fill(1, torch.tensor([8]), True), torch.ones_like(one).tril())
    for leak in leaks:
        monkeypatch.setattr(module, "structured_mask", lambda *_, leak=leak, **__: leak)
        with pytest.raises(AssertionError):
            check_mask(small(), 5)


def test_outputs_are_unit_vectors_in_the_order_of_the_positions() -> None:
    for horizon in (3, 8):
        out = small()(*inputs(3, horizon), horizon)
        assert out.shape == (3, horizon, 8)
        assert out.dtype == torch.float32
        assert_close(out.norm(dim=-1), torch.ones(3, horizon))


def test_every_one_of_the_five_inputs_of_a_mid_matters() -> None:
    model, (start, goal, latents) = small(), inputs(2, 4)
    before = model(start, goal, latents, 4)
    for name in ("mid_query", "step", "horizon", "kind"):
        changed = small()
        with torch.no_grad():
            getattr(changed, name).add_(torch.randn_like(getattr(changed, name)))
        assert not torch.allclose(before[:, 1:-1], changed(start, goal, latents, 4)[:, 1:-1]), name
    assert not torch.allclose(before[:, 1], model(start, goal, latents + 1, 4)[:, 1])


def test_every_position_has_the_embedding_of_its_own_step() -> None:
    """Step 0 is Start, step j is Mid_j, step H - 1 is Goal; no other step matters."""
    horizon = 5
    model, (start, goal, latents) = small(), inputs(2, horizon)

    def tokens() -> Tensor:
        """(B, H, W): the first token of Start, the mids, the first token of Goal."""
        context = model.context_tokens(start, goal, latents[:, [0, -1]], horizon)
        mids = model.mid_tokens(latents[:, 1:-1], horizon)
        return torch.cat([context[:, :1], mids, context[:, model.context // 2 :][:, :1]], dim=1).detach()

    before = tokens()
    for step in range(SHAPE.max_horizon):
        with torch.no_grad():
            model.step[step] += 1.0
        changed = (tokens() != before).any(2).all(0)
        assert changed.nonzero().flatten().tolist() == [step] * (step < horizon)
        with torch.no_grad():
            model.step[step] -= 1.0
        before = tokens()


def test_zero_is_the_null_trajectory_for_every_position() -> None:
    model, latents = small(), inputs(2, 5)[2]
    assert model.endpoint_in.bias is None
    assert model.mid_in.bias is None
    tokens = model.mid_tokens(torch.zeros(2, 3, 8), 5)
    with torch.no_grad():
        model.mid_in.weight.zero_()
    assert torch.equal(tokens, model.mid_tokens(latents[:, 1:-1], 5))


def test_a_goal_that_is_not_seen_does_not_matter() -> None:
    model, (start, goal, latents) = small(), inputs(2, 5)
    seen = torch.tensor([False, True])
    other = latents.clone()
    other[:, -1] += 1
    first = model(start, goal, latents, 5, seen)
    second = model(start, goal + 1, other, 5, seen)
    assert_close(first[0], second[0])
    assert not torch.allclose(first[1], second[1])


@settings(max_examples=15)
@given(st.integers(3, 8), st.integers(1, 4), st.integers(0, 100))
def test_a_roll_out_of_candidates_equals_one_pass_each(horizon: int, plans: int, seed: int) -> None:
    model, (start, goal, latents) = small(), inputs(2, horizon, seed)
    mids = torch.randn(2, plans, horizon - 2, 8)
    together = model.roll_out(start, goal, latents[:, [0, -1]], mids, horizon)
    for k in range(plans):
        one = torch.cat([latents[:, :1], mids[:, k], latents[:, -1:]], dim=1)
        assert_close(together[:, k], model(start, goal, one, horizon), atol=1e-5, rtol=1e-4)


def test_features_are_standardised_and_a_still_component_stays_finite() -> None:
    features = torch.randn(50, 2, 10).double() * 3 + 7
    features[..., 4] = 7.0
    mean, scale = feature_scales(features.half())
    model = small()
    model.feature_mean.copy_(mean)
    model.feature_scale.copy_(scale)
    out = model.standardise(features.half())
    moving = [i for i in range(10) if i != 4]
    assert out.abs().max() < 10
    assert out[..., 4].abs().max() < 1e-3
    assert_close(out[..., moving].flatten(0, 1).std(0), torch.ones(9), atol=0.02, rtol=0)


def test_the_paper_size_is_the_one_that_was_worked_out() -> None:
    with torch.device("meta"):
        model = CausalPredictor(PredictorConfig(), PredictorShape(1664, 1, 768, 8))
    blocks = sum(p.numel() for p in model.blocks.parameters())
    assert abs(blocks / 70.9e6 - 1) < 0.01


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        CausalPredictor(SMALL.replace(heads=3), SHAPE)
