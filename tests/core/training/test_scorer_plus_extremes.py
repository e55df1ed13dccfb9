"""Nothing makes Scorer+ other than finite: inputs, statistics and weights at the edge of what can be met."""

from dataclasses import replace

import pytest
import torch
from plus_fixture import T, answer, assert_sound, hiding, network, random_inputs, random_queries, random_statistics

from trajpilot_core.models.role_chain import sparse
from trajpilot_core.models.scorer_plus import PlusInputs, TrainingStatistics
from trajpilot_core.training.scorer_plus import plus_loss
from trajpilot_core.training.scorer_plus_statistics import below_best


def extreme(name: str) -> tuple[PlusInputs, TrainingStatistics]:
    """Inputs and training statistics at the edge of what can be met."""
    inputs, statistics = random_inputs(6, b=8), random_statistics()
    never = statistics.follows.matrix.to_dense()
    never[[1, 4]], never[:, [1, 4]] = 0, 0
    nothing = sparse(never * 0)
    one_take = replace(statistics, counts=statistics.counts[:1], clash=statistics.clash[:, :1])
    cases = {
        "no plan": (inputs._replace(plans=inputs.plans * 0), statistics),
        "no take seen": (hiding(inputs, *range(T)), statistics),
        "nothing recognised": (inputs._replace(recognised=inputs.recognised * 0), statistics),
        "recognised beyond doubt": (inputs._replace(recognised=below_best(inputs.recognised * 1e6)), statistics),
        "moves like one take only": (inputs._replace(manner=below_best(inputs.manner * 1e6)), statistics),
        "labels followed by nothing": (inputs, replace(statistics, follows=sparse(never))),
        "nothing follows anything": (inputs, replace(statistics, follows=nothing, context=statistics.context * 0)),
        "takes without a label": (inputs, replace(statistics, counts=statistics.counts * 0)),
        "one take has all": (inputs, replace(statistics, counts=statistics.counts * torch.eye(T)[0][:, None] * 1e4)),
        "all look the same": (inputs, replace(statistics, look=statistics.look * 0)),
        "looks far apart": (inputs, replace(statistics, look=statistics.look * 1e8)),
        "motions that clash": (inputs, replace(statistics, clash=statistics.clash * 1e3)),
        "a single take": (inputs._replace(manner=inputs.manner[:, :1] * 0), one_take),
    }
    return cases[name]


EXTREMES = (
    "no plan",
    "no take seen",
    "nothing recognised",
    "recognised beyond doubt",
    "moves like one take only",
    "labels followed by nothing",
    "nothing follows anything",
    "takes without a label",
    "one take has all",
    "all look the same",
    "looks far apart",
    "motions that clash",
    "a single take",
)


@pytest.mark.parametrize("name", EXTREMES)
def test_answers_and_gradients_stay_finite(name: str) -> None:
    inputs, statistics = extreme(name)
    scorer = network()
    assert_sound(*answer(scorer, inputs, statistics))
    queries = replace(random_queries(8, 6), inputs=inputs)
    plus_loss(scorer, queries, torch.arange(8), statistics).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in scorer.parameters())


@pytest.mark.parametrize("seed", range(6))
def test_other_weights_stay_finite(seed: int) -> None:
    """Every weight up to 20 times larger or smaller than where learning begins."""
    scorer, g = network(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter += 6 * torch.rand(parameter.shape, generator=g) - 3
    assert_sound(*answer(scorer, random_inputs(6), random_statistics()))
    plus_loss(scorer, random_queries(), torch.arange(20), random_statistics()).backward()
    assert all(p.grad.isfinite().all() for p in scorer.parameters())
