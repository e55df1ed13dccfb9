"""Comparisons in float64: originals and ours alike call float32 by name, here and there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def in_double() -> Iterator[None]:
    """Let float32 be float64 while this lasts: new tensors, `torch.float32`, `torch.float` and `Tensor.float`.

    So both sides round at 1e-16 and agree to 1e-9 whatever the processor, if they compute the same formula.
    """
    module: Any = torch
    names: Any = {"float32": torch.float64, "float": torch.float64}
    before, dtype, cast = {name: getattr(torch, name) for name in names}, torch.get_default_dtype(), Tensor.float
    torch.set_default_dtype(torch.float64)
    for name, value in names.items():
        setattr(module, name, value)
    Tensor.float = Tensor.double  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Tensor.float = cast  # type: ignore[method-assign]
        for name, value in before.items():
            setattr(module, name, value)
        torch.set_default_dtype(dtype)
