"""The temporal U-Net of PDPP: convolutions over the steps of a plan, with a shift by the time of the diffusion.

Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), model/temporal.py.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS = 32
"""Groups of every group norm; every width is a multiple. Source: PDPP, model/helpers.py."""


class PlanChannels(NamedTuple):
    """Channels of one row of a plan, in this order."""

    tasks: int
    """K, one-hot, the same in every row."""
    actions: int
    """A, one-hot."""
    features: int
    """D, features: zero except in the first and last row."""

    @property
    def total(self) -> int:
        """C = K + A + D."""
        return self.tasks + self.actions + self.features

    @property
    def of_actions(self) -> slice:
        """The channels of the actions."""
        return slice(self.tasks, self.tasks + self.actions)


class ResidualBlock(nn.Module):
    """Two convolutions over the steps around a skip, the time's shift between them; the second one starts at zero.

    Shapes: B windows, C channels in, O channels out, L length of the level, W width of the time's embedding. With
    `is_entry` the skip is a convolution even where C equals O (the original drops it there).
    """

    def __init__(self, channels: int, out: int, time_width: int, *, is_entry: bool = False) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv1d(channels, out, 3, padding=1), nn.GroupNorm(GROUPS, out)
        self.second, self.second_norm = zero_convolution(out), nn.GroupNorm(GROUPS, out)
        self.shift = nn.Linear(time_width, out)
        self.skip = nn.Conv1d(channels, out, 1) if is_entry or channels != out else nn.Identity()

    def forward(self, x_BCL: Tensor, shift_BO1: Tensor) -> Tensor:
        """Return (B, O, L)."""
        return self.finish(self.first(x_BCL), self.skip(x_BCL), shift_BO1)

    def finish(self, first_BOL: Tensor, skip_BOL: Tensor, shift_BO1: Tensor) -> Tensor:
        """Return (B, O, L) from the outputs of the first convolution and the skip."""
        hidden_BOL = F.mish(self.first_norm(first_BOL)) + shift_BO1
        return F.mish(self.second_norm(self.second(hidden_BOL))) + skip_BOL


class UnetLevel(nn.Module):
    """Two residual blocks of one length. Shapes: as in `ResidualBlock`, N times of the diffusion."""

    def __init__(self, channels: int, out: int, time_width: int, *, is_entry: bool = False) -> None:
        super().__init__()
        self.first = ResidualBlock(channels, out, time_width, is_entry=is_entry)
        self.second = ResidualBlock(out, out, time_width)

    def forward(self, x_BCL: Tensor, shifts: Iterator[Tensor]) -> Tensor:
        """Return (B, O, L); consumes the next two of `shifts`."""
        x_BOL: Tensor = self.first(x_BCL, next(shifts))
        x_BOL = self.second(x_BOL, next(shifts))
        return x_BOL

    def shifts(self, time_NW: Tensor) -> list[Tensor]:
        """Return the shift (N, O, 1) of each block."""
        return [block.shift(time_NW)[:, :, None] for block in (self.first, self.second)]


class TemporalUnet(nn.Module):
    """Estimate the clean plan from a noisy one.

    Shapes: B windows, H steps, A action channels, C all channels of a row, W width, N times, O channels of a block.
    The length of a level is one less than that of the level above it, so H is at least the number of levels.
    """

    def __init__(self, shape: PlanChannels, width: int, multiples: Sequence[int]) -> None:
        super().__init__()
        self.shape, self.width = shape, width
        widths = [width * multiple for multiple in multiples]
        deeper = list(pairwise(widths))
        self.time_in, self.time_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.entry = UnetLevel(shape.total, widths[0], width, is_entry=True)
        self.shorten = nn.ModuleList(nn.Conv1d(narrow, narrow, 2) for narrow, _ in deeper)
        self.down = nn.ModuleList(UnetLevel(narrow, wide, width) for narrow, wide in deeper)
        self.middle = UnetLevel(widths[-1], widths[-1], width)
        self.up = nn.ModuleList(UnetLevel(2 * wide, narrow, width) for narrow, wide in reversed(deeper))
        self.lengthen = nn.ModuleList(nn.ConvTranspose1d(narrow, narrow, 2) for narrow, _ in reversed(deeper))
        self.last, self.last_norm = zero_convolution(widths[0]), nn.GroupNorm(GROUPS, widths[0])
        self.readout = nn.Conv1d(widths[0], shape.total, 1)

    def forward(self, x_BHC: Tensor, t_B: Tensor) -> Tensor:
        """Return (B, H, C): the clean plans of noisy ones at times `t_B` (long). This form defines `predict`."""
        clean_BCH: Tensor = self.readout(self.body(*self.fixed_terms(x_BHC), self.shifts(t_B)))
        return clean_BCH.transpose(1, 2)

    def fixed_terms(self, x_BHC: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs of the first convolution and of the skip, each (B, W, H), for plans.

        `predict` needs those of plans without actions, which do not change during sampling.

        Raises ValueError: the plans are shorter than the network is deep.
        """
        shortest = len(self.down) + 1
        if x_BHC.shape[1] < shortest:
            raise ValueError(f"{x_BHC.shape[1]} steps; the U-Net needs at least {shortest}, one per level")
        x_BCH, entry = x_BHC.transpose(1, 2), self.entry.first
        return entry.first(x_BCH), entry.skip(x_BCH)

    def predict(self, actions_BHA: Tensor, fixed: tuple[Tensor, Tensor], shifts: Sequence[Tensor]) -> Tensor:
        """Return (B, H, A), the clean actions of `forward`, without recomputing the constant channels.

        The shifts of a block are (B, O, 1), or (1, O, 1) for one time of all windows.
        """
        x_BAH, columns, entry = actions_BHA.transpose(1, 2), self.shape.of_actions, self.entry.first
        first_BWH, skip_BWH = fixed  # reused at every step of the sampling, so not changed in place
        first_BWH = first_BWH + F.conv1d(x_BAH, entry.first.weight[:, columns], padding=1)
        skip_BWH = skip_BWH + F.conv1d(x_BAH, entry.skip.get_parameter("weight")[:, columns])
        weight_AW1, bias_A = (parameter[columns] for parameter in self.readout.parameters())
        return F.conv1d(self.body(first_BWH, skip_BWH, shifts), weight_AW1, bias_A).transpose(1, 2)

    def body(self, first_BWH: Tensor, skip_BWH: Tensor, shifts: Sequence[Tensor]) -> Tensor:
        """Return (B, W, H): everything between the first block's convolutions and the readout."""
        rest, deep = iter(shifts), []
        x: Tensor = self.entry.first.finish(first_BWH, skip_BWH, next(rest))
        x = self.entry.second(x, next(rest))
        for shorten, level in zip(self.shorten, self.down, strict=True):
            x = level(shorten(x), rest)
            deep.append(x)
        x = self.middle(x, rest)
        for level, lengthen in zip(self.up, self.lengthen, strict=True):
            x = lengthen(level(torch.cat([x, deep.pop()], dim=1), rest))
        return F.mish(self.last_norm(self.last(x)))

    def shifts(self, t_N: Tensor) -> list[Tensor]:
        """Return the shift (N, O, 1) of every block at times `t_N` (long), in the order of `body`."""
        half = self.width // 2  # sines, then cosines, at frequencies from 1 down to 1 / 10,000
        frequencies = torch.exp(torch.arange(half, device=t_N.device) * (-math.log(10_000) / (half - 1)))
        phases_NF = t_N[:, None] * frequencies
        waves_NW = torch.cat([phases_NF.sin(), phases_NF.cos()], dim=-1)
        time_NW = F.mish(self.time_out(F.mish(self.time_in(waves_NW))))
        levels = (self.entry, *self.down, self.middle, *self.up)
        return [shift for level in levels if isinstance(level, UnetLevel) for shift in level.shifts(time_NW)]


def zero_convolution(width: int) -> nn.Conv1d:
    """Return a convolution of three steps initialised to zero, including the bias: its block starts as the skip."""
    convolution = nn.Conv1d(width, width, 3, padding=1)
    nn.init.zeros_(convolution.weight)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    return convolution
