"""The differentiable Viterbi layer, forward and backward, against the original's `StructuredDecoding.DVL`."""

from pathlib import Path

import torch
from torch import Tensor

from benchmarks.planners.formula import numbers
from benchmarks.planners.originals import module_of
from benchmarks.planners.ratio import Ratio, compare
from schemas.planners import ViterbiPlanNetConfig
from trajpilot_core.models.planners.soft_viterbi import normalised_rows, soft_viterbi

ACTIONS, WINDOWS, HORIZON = 375, 32, 5
WANTED, CLOSE = 50.0, 1e-5


def measure(original: Path) -> list[Ratio]:
    """Time both from emissions to their gradient, after both gave the same path and gradient."""
    layer = module_of(original, "ViterbiPlanNet", "modules").StructuredDecoding()
    counts = numbers(ACTIONS, ACTIONS).clamp(min=0)
    emission = numbers(WINDOWS, HORIZON, ACTIONS, scale=4.0)
    towards = numbers(WINDOWS, HORIZON, ACTIONS, phase=1.0)
    floor = ViterbiPlanNetConfig().floor

    def ours() -> tuple[Tensor, Tensor]:
        leaf = emission.clone().requires_grad_()
        path = soft_viterbi(leaf, normalised_rows(counts, floor))
        return path.detach(), torch.autograd.grad((path * towards).sum(), leaf)[0]

    def theirs() -> tuple[Tensor, Tensor]:
        leaf = emission.clone().requires_grad_()
        path = layer.DVL(counts, leaf)
        return path.detach(), torch.autograd.grad((path * towards).sum(), leaf)[0]

    torch.testing.assert_close(ours(), theirs(), atol=CLOSE, rtol=CLOSE)
    name = f"soft Viterbi forward + backward, {ACTIONS} actions, {WINDOWS} windows, H={HORIZON}"
    return [compare(name, ours, theirs, WANTED)]
