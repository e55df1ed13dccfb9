"""What Scorer+ multiplies: a training step never three times the labels."""

import torch
from plus_fixture import T, network
from torch.utils.flop_counter import FlopCounterMode

from trajpilot_core.models.role_chain import marginals, sparse
from trajpilot_core.models.scorer_plus import PlusInputs, TrainingStatistics
from trajpilot_core.training.scorer_plus import PlusQueries, plus_loss, queries_at


def many_labels(n: int) -> tuple[PlusQueries, TrainingStatistics]:
    """Two queries over n labels of which a few follow each other."""
    g = torch.Generator().manual_seed(0)
    follows = torch.zeros(n, n)
    follows[torch.randint(n, (n,), generator=g), torch.randint(n, (n,), generator=g)] = 1.0
    look, bank = torch.rand(n, n, generator=g), torch.nn.functional.normalize(torch.randn(n, 8, generator=g), dim=1)
    counts = (torch.rand(T, n, generator=g) < 0.05).float()
    statistics = TrainingStatistics(bank, counts, sparse(follows), look, look.T, torch.zeros(n, T))
    inputs = PlusInputs(torch.zeros(2, 2, 4, 8), torch.zeros(2, 2, n), torch.zeros(2, T))
    return PlusQueries(inputs, torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long)), statistics


def test_no_training_step_multiplies_three_times_the_labels_and_answers_do_so_once() -> None:
    """Counted by torch; the answers' product of V x V matrices is the planted fault of the same bound."""
    queries, statistics = many_labels(300)
    scorer, rows = network(), torch.arange(2)
    with FlopCounterMode(display=False) as step:
        plus_loss(scorer, queries, rows, statistics).backward()
    assert 0 < step.get_total_flops() < 300**3
    with FlopCounterMode(display=False) as once, torch.no_grad():
        known = scorer.answering(statistics)
    assert once.get_total_flops() > 300**3
    with FlopCounterMode(display=False) as marginal, torch.no_grad():
        marginals(scorer.read(queries_at(queries, rows, torch.device("cpu")).inputs, known.roles).chain)
    assert 0 < marginal.get_total_flops() < 300**3
