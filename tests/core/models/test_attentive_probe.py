"""The attentive probe next to V-JEPA 2's, weights and inputs from the formula (tests/fixtures/formula.py).

Recorded from github.com/facebookresearch/vjepa2 at c2963a47 in float64 and 12 digits
(benchmarks/epic_probe of our commit ca04742); compared within 1e-9.
"""

import json
from typing import Any

import pytest
import torch
from checkout import DATA
from formula import fill, filled, numbers
from planners_fixture import check_close
from torch import Tensor, nn

from trajpilot_core.metrics.epic_kitchens import PARTS
from trajpilot_core.models.attentive_probe import AttentiveProbe, ProbeShape, focal_loss, probe_loss

THEIRS: dict[str, Any] = json.loads((DATA / "epic_probe" / "vjepa2.json").read_text())["probe"]
PROBE = ProbeShape(width=16, verbs=5, nouns=6, actions=9, heads=4, blocks=3)


def probe_tokens() -> Tensor:
    return numbers(2, 7, PROBE.width, phase=0.2)


@pytest.mark.usefixtures("double")
def test_logits_losses_and_gradients_are_those_of_the_original() -> None:
    tokens, classes = probe_tokens().requires_grad_(), torch.tensor([[1, 5, 0], [4, 2, 8]])
    logits = filled(AttentiveProbe(PROBE))(tokens)
    for place, part in enumerate(PARTS):
        check_close(logits[part], THEIRS["logits"][part])
        check_close(focal_loss(logits[part], classes[:, place]), THEIRS["losses"][part])
    total = probe_loss(logits, classes)
    check_close(total, THEIRS["total"])
    check_close(torch.autograd.grad(total, tokens)[0], THEIRS["gradient"])


@pytest.mark.usefixtures("double")
def test_an_output_projection_in_the_cross_attention_would_be_seen() -> None:
    """Planted: the projection that other pools of this family have."""
    planted = filled(AttentiveProbe(PROBE))
    block = planted.pooler.cross_attention_block
    inner, projection = block.xattn.forward, nn.Linear(PROBE.width, PROBE.width)
    fill(projection)
    block.xattn.forward = lambda queries, x: projection(inner(queries, x))  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        check_close(planted(probe_tokens())["action"], THEIRS["logits"]["action"])


def test_the_published_pooler_has_as_many_parameters_as_was_counted() -> None:
    with torch.device("meta"):
        probe = AttentiveProbe(ProbeShape(1408, 97, 300, 3568))
    assert sum(parameter.numel() for parameter in probe.pooler.parameters()) == 93_251_840
    assert sum(parameter.numel() for parameter in probe.verb_classifier.parameters()) == 97 * 1409


def test_weights_begin_as_in_the_original() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        pooler = AttentiveProbe(ProbeShape(128, 2, 2, 2, heads=4)).pooler
        spread = {name: float(value.std()) for name, value in pooler.named_parameters() if name.endswith(".weight")}
        assert not any(value.any() for name, value in pooler.named_parameters() if name.endswith("fc2.bias"))
    expected = {"blocks.0.attn.qkv": 0.02, "cross_attention_block.mlp.fc1": 0.02}
    for block in range(3):
        expected |= dict.fromkeys(
            [f"blocks.{block}.attn.proj", f"blocks.{block}.mlp.fc2"], 0.02 / (2 + 2 * block) ** 0.5
        )
    expected["cross_attention_block.mlp.fc2"] = 0.02 / 6**0.5
    found = {name: spread[f"{name}.weight"] for name in expected}
    assert found == {name: pytest.approx(value, rel=0.05) for name, value in expected.items()}


def test_the_focal_loss_stays_finite_where_a_sigmoid_saturates() -> None:
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = focal_loss(logits, torch.tensor([1]))
    assert loss.item() == pytest.approx(0.25 * 200 + 0.75 * 200)
    assert torch.isfinite(torch.autograd.grad(loss, logits)[0]).all()


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="not a multiple of 3 heads"):
        AttentiveProbe(ProbeShape(16, 2, 2, 2, heads=3))
