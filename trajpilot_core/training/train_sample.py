"""Which of the fitted windows, segments or queries are scored next to dev: the same ones after every epoch."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

SampledGroup = TypeVar("SampledGroup")


def train_sample(
    n_fitted: Mapping[SampledGroup, int], n_dev: Mapping[SampledGroup, int], seed: int
) -> dict[SampledGroup, Tensor]:
    """Draw what is scored on the training side: per group at most as many as dev has, so that it costs no more.

    A generator of its own draws, so no random state is touched and the training goes as it would without the measure.
    What is kept are row numbers, 8 bytes each: at any scale the sample needs a share of what dev needs.

    Args:
        n_fitted: group, such as a horizon -> how many were fitted.
        n_dev: group -> how many dev has. A group that dev lacks is left out.
        seed: of the training; what differs in nothing but the variant is scored on the same sample.

    Returns:
        Group -> (n,) long, ascending rows among the fitted ones of that group, on the CPU; groups without any left out.
    """
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for group, n in n_fitted.items():
        rows = torch.randperm(n, generator=generator)[: n_dev.get(group, 0)]
        if len(rows):
            found[group] = rows.sort().values
    return found
