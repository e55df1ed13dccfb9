"""PDPP's sampling against `GaussianDiffusion.p_sample_loop` at equal steps: the same network, 256 windows at once."""

from pathlib import Path

import torch

from benchmarks.planners.pdpp_original import PdppModules, condition_of, diffusion, modules
from benchmarks.planners.ratio import Ratio, compare
from schemas.planners import PdppConfig
from trajpilot_core.models.planners.pdpp import Pdpp
from trajpilot_core.models.planners.temporal_unet import PlanChannels

SHAPE, WIDTH, WINDOWS, WANTED = PlanChannels(tasks=16, actions=375, features=1664), 64, 256, 1.2
CASES = (("DDIM-10", 5, 200, 10), ("DDIM-10", 8, 200, 10), ("DDPM-10", 5, 10, None), ("DDPM-10", 8, 10, None))
"""Name, H, times of the diffusion, steps. DDPM over 10 times stands for 200: each step costs the same."""


def measure(original: Path) -> list[Ratio]:
    """Time whole samplings of random weights, the noise included."""
    found = modules(original)
    return [case(found, *settings) for settings in CASES]


def case(found: PdppModules, name: str, horizon: int, n_times: int, n_steps: int | None) -> Ratio:
    torch.manual_seed(0)
    planner = Pdpp(PdppConfig(width=WIDTH, times=n_times), SHAPE).eval()
    theirs = diffusion(found, planner.average.module, horizon, n_times)
    ends, tasks, windows = torch.randn(WINDOWS, 2, SHAPE.features), torch.arange(WINDOWS) % 16, torch.arange(WINDOWS)
    known = condition_of(ends, tasks, SHAPE, horizon)
    return compare(
        f"PDPP sampling, {name}, H={horizon}, B={WINDOWS}, width {WIDTH}",
        lambda: planner.plan(ends, tasks, horizon, n_steps, 0, windows),
        lambda: theirs.p_sample_loop(known, if_jump=n_steps is not None),
        WANTED,
        repeats=3,
    )
