"""Numbers from a formula, so that weights and inputs of a comparison are neither stored nor drawn by a generator."""

import torch
from torch import Tensor, nn

FREQUENCY, BETWEEN = 0.37, 1.7


def numbers(*shape: int, phase: float = 0.0, scale: float = 1.0) -> Tensor:
    """Return numbers of `shape` in [-scale, scale], of the default dtype.

    The k-th is scale * sin(0.37 * (k + 1) ** 1.5 + phase): the power keeps matrices of full rank, which a plain sine
    would not. It is a product with a square root, which all processors round alike: of a power that reaches 1e7, the
    last digit would be 1e-9 of the sine's argument.
    """
    k = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64)
    return (scale * torch.sin(FREQUENCY * (k * k.sqrt()) + phase)).to(torch.get_default_dtype()).reshape(shape)


def fill(module: nn.Module, scale: float = 0.3) -> None:
    """Set every parameter by the formula, with a phase of its own in the order of the sorted names.

    Those of LayerNorm and the learned scalars are left where they start, plus the formula's numbers.
    """
    around_start = {
        f"{name}.{own}" if name else own
        for name, part in module.named_modules()
        for own, _ in part.named_parameters(recurse=False)
        if isinstance(part, nn.LayerNorm)
    }
    with torch.no_grad():
        for place, (name, parameter) in enumerate(sorted(module.named_parameters())):
            values = numbers(*parameter.shape, phase=BETWEEN * place, scale=scale)
            parameter.copy_(parameter + values if name in around_start or parameter.ndim == 0 else values)
