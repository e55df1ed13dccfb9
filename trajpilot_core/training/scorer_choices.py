"""What a trained scorer decides on dev, window by window: whether it ranks and gates better than chance is read off it.

Axes: N queries, K candidates.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from schemas.results import ScorerChoice
from schemas.training import ScorerConfig
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.training.scorer import Queries, decide, gate_targets


@torch.no_grad()
def choices_of(
    scorer: GateThenRankScorer,
    state: Mapping[str, Tensor],
    dev: Queries | None,
    config: ScorerConfig,
    model: str,
    seed: int,
) -> list[ScorerChoice]:
    """Return one record per dev query; none where there is no dev query.

    Args:
        scorer: takes the weights on, and stays so.
        state: weights of the epoch that was kept.
        dev: the queries.
        config: margin and batch.
        model: `final/<variant>`.
        seed: of the training.
    """
    if dev is None:
        return []
    scorer.load_state_dict(state)
    scorer.eval()
    gate_N, choice_N = decide(scorer, dev, config.train.batch)
    best_NK = dev.valid & (dev.utility == dev.utility.amax(dim=1, keepdim=True))
    first_N = best_NK.gather(1, choice_N[:, None])[:, 0]
    chance_N = best_NK.sum(1).double() / dev.valid.sum(1).clamp_min(1)
    opens_N = gate_targets(dev, config.margin)
    columns = (dev.take, dev.n_mids, gate_N, opens_N, dev.valid.any(1), first_N, chance_N)
    return [
        ScorerChoice(
            model=model,
            seed=seed,
            take=take,
            horizon=n_mids + 2,
            gate=gate,
            should_open=opens,
            is_best=first if some else None,
            chance=chance if some else None,
        )
        for take, n_mids, gate, opens, some, first, chance in zip(*(one.tolist() for one in columns), strict=True)
    ]
