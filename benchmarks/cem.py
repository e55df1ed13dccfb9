"""Time our cross-entropy search against that of V-JEPA 2-AC in this process, one thread; exit 1 where they disagree.

The original searches one window at a time, copies its context for every sample and asks the model again for every step
of a rollout; it asks our predictor, with random weights, as training calls it. Ours asks the same weights as the stage
`latent_plans` does, under the same noise. The original's clipping is taken out and its gripper held at zero, so that
both refine the same three numbers a step; its result is the last mean. Both sides take turns; seconds are CPU seconds
of this process, medians of the repeats. Operations are those of matrix products, two to a multiplication; what other
operations cost is in the seconds alone. Source: notebooks/utils/mpc_utils.py of github.com/facebookresearch/vjepa2.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from schemas.latent import LatentConfig, SearchConfig
from trajpilot_core.models.latent import LatentPredictor, LatentShape, StepInputs, l1_between, normalised
from trajpilot_core.models.latent_candidates import Moves, StepsAsked, folded, values_of
from trajpilot_core.models.latent_search import cross_entropy_search

T = TypeVar("T")
FREE, ACTION, MOTION = 3, 7, 96
"""Numbers of an action that move freely, of an action of the original, of a step's head motion."""
WANTED = 20.0
AGREE = 1e-3
REPEATS = 5
ROWS = 1536
"""Of the plain matrix product that the rates are held against: a window's candidates times their steps."""


def product(_: torch.Size, left: torch.Size, right: torch.Size, **__: object) -> int:
    """Return the operations of a product of (..., m, k) and (..., k, n) that is added in place."""
    return 2 * left.numel() * right[-1]


IN_PLACE = {torch.ops.aten.addmm_: product, torch.ops.aten.baddbmm_: product}
"""Products that torch does not count by itself."""


def operations(work: Callable[[], object]) -> float:
    """Return the operations of the matrix products in some work."""
    with FlopCounterMode(display=False, custom_mapping=IN_PLACE) as counter:
        work()
    return float(counter.get_total_flops())


class Unclipped(ModuleType):
    """torch, whose `clip` changes nothing."""

    def __getattr__(self, name: str) -> Any:
        return (lambda tensor, **_: tensor) if name == "clip" else getattr(torch, name)


class Case(NamedTuple):
    """One size."""

    name: str
    windows: int
    """B, of ours at once; the original searches one."""
    horizon: int
    tokens: int
    """G, predicted tokens of a step, of which Start and Goal have as many each."""
    width: int
    layers: int
    heads: int
    features: int
    search: SearchConfig


FEW = SearchConfig(samples=32, iterations=1, elites=4)
CASES = (
    Case("claims", 16, 8, 1, 96, 2, 4, 128, SearchConfig()),
    Case("claims, temporal tokens", 16, 8, 8, 96, 2, 4, 128, SearchConfig()),
    Case("paper's width", 1, 8, 1, 768, 10, 12, 1664, FEW),
    Case("paper's width, temporal tokens", 1, 8, 8, 768, 10, 12, 1664, FEW),
)
"""The first one must reach what is wanted."""


class Found(NamedTuple):
    """What was measured of one case."""

    ours_s: float
    """CPU seconds a window."""
    theirs_s: float
    ours: float
    """Operations of matrix products a window."""
    theirs: float
    off: float
    """Largest difference of the two means."""
    rate: float
    """Operations a second of a plain matrix product of that width."""

    def told(self, case: Case) -> str:
        """Return two lines: the ratio, and how much of it is operations."""
        s, ratio = case.search, self.theirs_s / self.ours_s
        rates = [n / s / 1e9 for n, s in ((self.theirs, self.theirs_s), (self.ours, self.ours_s))]
        return (
            f"{case.name}: B={case.windows}, S={s.samples} x {s.iterations}, H={case.horizon}, width {case.width}, "
            f"{case.layers} layers, {case.tokens} tokens: ours {self.ours_s:.4f} CPU s a window, the original "
            f"{self.theirs_s:.3f}, {ratio:.1f} times (wanted {WANTED:g}); means differ by {self.off:.1e}\n"
            f"  products: {self.theirs / 1e9:.2f} GFLOP a window against {self.ours / 1e9:.2f}, "
            f"{self.theirs / self.ours:.1f} times; at {rates[0]:.0f} and {rates[1]:.0f} GFLOP/s, a plain product of "
            f"that width at {self.rate / 1e9:.0f}: at that rate, and with nothing but products, ours could reach "
            f"{self.theirs_s * self.rate / self.ours:.1f} times"
        )


def original_cem(folder: Path) -> Callable[..., Tensor]:
    """Import the original's function; what it logs goes nowhere.

    Raises:
        FileNotFoundError: the folder is no checkout of vjepa2.
    """
    path = folder / "notebooks/utils/mpc_utils.py"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; give a checkout of github.com/facebookresearch/vjepa2")
    silent = ModuleType("src.utils.logging")
    silent.get_logger = lambda *_, **__: type("Silent", (), {"info": staticmethod(lambda *_: None)})  # type: ignore[attr-defined]
    sys.modules |= {"src": ModuleType("src"), "src.utils": ModuleType("src.utils"), "src.utils.logging": silent}
    spec = importlib.util.spec_from_file_location("original_mpc_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.torch = Unclipped("torch")
    cem: Callable[..., Tensor] = module.cem
    return cem


class Sides(NamedTuple):
    """Both searches of one case, ready to run."""

    ours: Callable[[], Tensor]
    """Returns the last means of all windows."""
    theirs: Callable[[int], Tensor]
    """Returns that of one window."""


def sides(case: Case, cem: Callable[..., Tensor]) -> Sides:
    """Make a predictor, windows and noise, and both searches of them."""
    torch.manual_seed(0)
    target = "temporal" if case.tokens > 1 else "pooled"
    width = {"width": case.width, "layers": case.layers, "heads": case.heads, "hidden": 2 * case.width}
    cfg = LatentConfig(dropout=0.0, target=target, **width)
    shape = LatentShape(case.features, case.tokens, MOTION, 8, case.horizon, 4)
    model, mids = LatentPredictor(cfg, shape).eval(), case.horizon - 2
    to_motion, arranged = torch.randn(FREE, MOTION) / FREE, folded(model)
    start, goal = normalised(torch.randn(2, case.windows, case.tokens, case.features))
    torch.manual_seed(1)
    cells = case.search.iterations * mids
    drawn = torch.stack([torch.randn(case.search.samples, FREE + 1) for _ in range(cells)])
    noise = drawn.view(case.search.iterations, mids, case.search.samples, -1)[..., :FREE].transpose(1, 2)

    def ours() -> Tensor:
        context = model.encode(start, goal, case.horizon)

        def energy(controls_BSMP: Tensor) -> Tensor:
            moves, steps = Moves(controls_BSMP, to_motion), StepsAsked(case.horizon, mids, last_alone=True)
            return values_of(arranged, context, moves, steps, lambda latent, at: l1_between(latent[0], goal[at]))

        return cross_entropy_search(energy, case.windows, noise, case.search).mean

    def theirs(row: int) -> Tensor:
        def world(frames: Tensor, actions: Tensor, poses: Tensor) -> tuple[Tensor, Tensor]:
            motion, goals = actions[:, :, :FREE] @ to_motion, goal[row : row + 1].expand(len(frames), -1, -1)
            context = model.encode(frames[:, 0], goals, case.horizon)
            out = model(context, StepInputs(motion[:, None]), actions.shape[1], case.horizon)
            return out[:, 0, -1:], poses[:, -1:]

        torch.manual_seed(1)
        s = case.search
        momentum = {"momentum_mean": s.momentum, "momentum_std": s.momentum, "maxnorm": 1.0, "axis": {FREE: 0.0}}
        counts = {"rollout": mids, "cem_steps": s.iterations, "samples": s.samples, "topk": s.elites}
        ends = (start[row : row + 1, None], torch.zeros(1, 1, ACTION), goal[row : row + 1, None])
        return cem(*ends, world, **counts, **momentum)[0, :, :FREE]

    return Sides(ours, theirs)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what some work returns, and the CPU seconds of this process in it."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


@torch.no_grad()
def measure(case: Case, cem: Callable[..., Tensor], repeats: int = REPEATS) -> Found:
    """Let both sides take turns after a first turn that is not timed."""
    both, off = sides(case, cem), 0.0
    one, other, into = torch.randn(ROWS, case.width), torch.randn(case.width, case.width), torch.empty(ROWS, case.width)
    ours_s, theirs_s, plain_s = [], [], []
    count = max(1, 1_000_000 // case.width**2)
    both.ours()
    for turn in range(repeats):
        row = turn % case.windows
        means, spent = timed(both.ours)
        ours_s.append(spent / case.windows)
        mean, spent = timed(partial(both.theirs, row))
        theirs_s.append(spent)
        plain_s.append(timed(lambda: [torch.mm(one, other, out=into) for _ in range(count)])[1] / count)
        off = max(off, float((mean - means[row]).abs().max()))
    rate = 2 * ROWS * case.width**2 / statistics.median(plain_s)
    counted = operations(both.ours) / case.windows, operations(lambda: both.theirs(0))
    return Found(statistics.median(ours_s), statistics.median(theirs_s), *counted, off, rate)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cem", description=__doc__)
    parser.add_argument("--original", type=Path, required=True, help="checkout of github.com/facebookresearch/vjepa2")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="turns of each side")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cem, faults = original_cem(options.original), 0
    for case in CASES:
        result = measure(case, cem, options.repeats)
        print(result.told(case), flush=True)
        faults += result.off > AGREE or (case is CASES[0] and result.theirs_s / result.ours_s < WANTED)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
