"""What the scorers of actions and of shots share: queries with one middle step. Shapes: B queries, K candidates, E text
width."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from trajpilot_core.training.scorer import Queries


def in_blocks(rows: Tensor, most: int, part: Callable[[Tensor], Tensor], empty: Tensor) -> Tensor:
    """Return `part` of the numbers of `rows` (B,), at most `most` at a time, put together: (B, ...).

    Args:
        rows: long.
        most: of one call.
        part: of numbers of rows, long.
        empty: (0, ...) what is returned where there are no rows.
    """
    numbers = torch.arange(len(rows), device=rows.device)
    parts = [part(at) for at in torch.split(numbers, most) if len(at)]
    return torch.cat(parts) if parts else empty


def joined(parts: Sequence[Queries]) -> Queries | None:
    """Put queries of several chains together; None where there are none."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return None
    moved, first = [], 0
    for part in parts:
        moved.append(replace(part, middle=torch.where(part.middle > 0, part.middle + first, 0)))
        first += len(part.latents)
    columns = {one.name: torch.cat([getattr(part, one.name) for part in moved]) for one in fields(Queries)}
    return Queries(**{**columns, "texts": parts[0].texts})
