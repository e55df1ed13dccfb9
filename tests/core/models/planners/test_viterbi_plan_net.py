"""ViterbiPlanNet: the original's numbers, both readouts, and that it learns through the Viterbi layer."""

import pytest
import torch
from planners_fixture import (
    KEYSTEP,
    SMALL,
    VITERBI_HORIZONS,
    batch,
    check_close,
    check_loss,
    golden,
    parameters,
    random_windows,
    recorded,
    share_memorised,
    viterbi_plan_net,
    without_attention_dropout,
)
from torch import Tensor
from torch.testing import assert_close

from schemas.planners import ViterbiPlanNetConfig
from trajpilot_core.models.planners import viterbi_plan_net as module
from trajpilot_core.models.planners.decoding import PlannerShape
from trajpilot_core.models.planners.viterbi_plan_net import ViterbiPlanNet


def check_original(planner: ViterbiPlanNet) -> None:
    """Compare the soft path, the losses and their gradients with what the original answered."""
    given, want = batch(planner.horizon), recorded("viterbi_plan_net.json")[f"network_h{planner.horizon}"]
    features = given.features
    check_close(planner.plan(features, given.descriptions, given.transition).exp(), want["path"])
    check_loss(planner, given, want["evaluation"])
    check_loss(without_attention_dropout(planner.train()), given, want["training"])


@pytest.mark.usefixtures("double")
def test_path_loss_and_gradient_are_the_original_s(subtests: pytest.Subtests) -> None:
    """Recorded from github.com/Gigi-G/ViterbiPlanNet at 47a698b8 (benchmarks/planners of commit ca04742); 1e-9."""
    for horizon in VITERBI_HORIZONS:
        with subtests.test(str(horizon)):
            check_original(viterbi_plan_net(horizon))


@pytest.mark.usefixtures("double")
def test_a_softmax_in_place_of_the_viterbi_layer_and_a_missing_dropout_are_seen(monkeypatch) -> None:
    planner = viterbi_plan_net(VITERBI_HORIZONS[0])
    planner.emission[3] = torch.nn.Identity()
    with pytest.raises(AssertionError, match="not close"):
        check_original(planner)
    monkeypatch.setattr(module, "soft_viterbi", lambda log_emission_BHA, _: log_emission_BHA.softmax(dim=-1))
    with pytest.raises(AssertionError, match="not close"):
        check_original(viterbi_plan_net(VITERBI_HORIZONS[0]))


def test_attention_weights_are_dropped_as_in_the_original() -> None:
    assert viterbi_plan_net(3).ends.layers[0].self_attn.dropout == ViterbiPlanNetConfig().dropout == 0.2


def small(**changes: object) -> ViterbiPlanNet:
    """A small ViterbiPlanNet in training mode without dropout."""
    torch.manual_seed(0)
    cfg = ViterbiPlanNetConfig(width=32, dropout=0.0, input_dropout=0.0).replace(**changes)
    return ViterbiPlanNet(cfg, SMALL, horizon=4).train()


def test_the_total_weighs_the_terms_as_configured() -> None:
    def total(state: float, task: float) -> Tensor:
        return small(state_weight=state, task_weight=task).loss(*random_windows())

    alone = total(0, 0)
    terms = [total(*weights) - alone for weights in ((1, 0), (0, 1))]
    assert all(bool(term > 0.01) for term in terms)
    assert_close(total(2, 5), alone + 2 * terms[0] + 5 * terms[1], atol=1e-4, rtol=1e-4)


def test_parameters_are_as_many_as_the_original_s() -> None:
    for name, sizes in (("crosstask_1536_133_18_T3", (1536, 768, 133, 18)), ("keystep_1664_375_16_T8", KEYSTEP)):
        with torch.device("meta"):
            planner = ViterbiPlanNet(ViterbiPlanNetConfig(), PlannerShape(*sizes), int(name[-1]))
        assert parameters(planner) == golden("viterbiplannet")["params"][name]


def test_it_memorises_64_windows() -> None:
    """Measured: .988 to .996 with seeds 0, 1, 2 on three kernels. At a rate that stays, a step in a hundred throws the
    planner back to .6 to .9, another one on each processor."""
    assert share_memorised(small(), random_windows(), steps=150, lr=1e-2, last_lr=0.0) > 0.95
