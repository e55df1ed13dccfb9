"""Time our cross-entropy search against that of V-JEPA 2-AC in this process, one thread; exit 1 where they disagree.

The original searches one window at a time, copies its context for every sample and asks the model again for every step
of a rollout; both sides ask the same predictor of ours, with random weights, under the same noise. The original's
clipping is taken out and its gripper held at zero, so that both refine the same three numbers a step; its
result is the last mean. Source: notebooks/utils/mpc_utils.py of github.com/facebookresearch/vjepa2.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from schemas.latent import LatentConfig, SearchConfig
from trajpilot_core.models.latent import LatentPredictor, LatentShape, StepInputs, l1_between, normalised
from trajpilot_core.models.latent_search import cross_entropy_search

FREE, ACTION, MOTION = 3, 7, 96
"""Numbers of an action that move freely, of an action of the original, of a step's head motion."""
WANTED = 20.0
AGREE = 1e-3


class Unclipped(ModuleType):
    """torch, whose `clip` changes nothing."""

    def __getattr__(self, name: str) -> Any:
        return (lambda tensor, **_: tensor) if name == "clip" else getattr(torch, name)


class Case(NamedTuple):
    """One size."""

    name: str
    windows: int
    """Of ours at once; the original is given `originals` of them."""
    originals: int
    horizon: int
    width: int
    layers: int
    heads: int
    features: int
    search: SearchConfig


CLAIMS = Case("claims", 16, 2, 8, 96, 2, 4, 128, SearchConfig())
PAPER = Case("paper's width", 1, 1, 8, 768, 10, 12, 1664, SearchConfig(samples=32, iterations=1, elites=4))


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
    found: Callable[..., Tensor] = module.cem
    return found


@torch.inference_mode()
def measure(case: Case, cem: Callable[..., Tensor]) -> tuple[float, float, float]:
    """Return seconds per window of ours and of the original, and the largest difference of their means."""
    torch.manual_seed(0)
    cfg = LatentConfig(width=case.width, layers=case.layers, heads=case.heads, hidden=2 * case.width, dropout=0.0)
    shape = LatentShape(case.features, 1, MOTION, 8, case.horizon, 4)
    model, mids = LatentPredictor(cfg, shape).eval(), case.horizon - 2
    to_motion = torch.randn(FREE, MOTION) / FREE
    start, goal = normalised(torch.randn(2, case.windows, 1, case.features))

    def energy(controls_BSMP: Tensor) -> Tensor:
        context = contexts[len(controls_BSMP)]
        out = model(context, StepInputs(controls_BSMP @ to_motion), mids, case.horizon, last_alone=True)
        return l1_between(out[:, :, -1], goal[: len(controls_BSMP), None])

    torch.manual_seed(1)
    cells = case.search.iterations * mids
    drawn = torch.stack([torch.randn(case.search.samples, FREE + 1) for _ in range(cells)])
    noise = drawn.view(case.search.iterations, mids, case.search.samples, -1)[..., :FREE].transpose(1, 2)
    began = time.perf_counter()
    contexts = {case.windows: model.encode(start, goal, case.horizon)}
    ours = cross_entropy_search(energy, case.windows, noise, case.search)
    ours_s = (time.perf_counter() - began) / case.windows

    def world(frames: Tensor, actions: Tensor, poses: Tensor) -> tuple[Tensor, Tensor]:
        motion = actions[:, :, :FREE] @ to_motion
        context = model.encode(frames[:, 0], window_goal.expand(len(frames), -1, -1), case.horizon)
        out = model(context, StepInputs(motion[:, None]), actions.shape[1], case.horizon)
        return out[:, 0, -1:], poses[:, -1:]

    off, began = 0.0, time.perf_counter()
    for row in range(case.originals):
        window_goal = goal[row : row + 1]
        torch.manual_seed(1)
        mean = cem(
            start[row : row + 1, None],
            torch.zeros(1, 1, ACTION),
            window_goal[:, None],
            world,
            rollout=mids,
            cem_steps=case.search.iterations,
            momentum_mean=case.search.momentum,
            momentum_std=case.search.momentum,
            samples=case.search.samples,
            topk=case.search.elites,
            maxnorm=1.0,
            axis={FREE: 0.0},
        )
        off = max(off, float((mean[0, :, :FREE] - ours.mean[row]).abs().max()))
    return ours_s, (time.perf_counter() - began) / case.originals, off


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cem", description=__doc__)
    parser.add_argument("--original", type=Path, required=True, help="checkout of github.com/facebookresearch/vjepa2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cem, faults = original_cem(options.original), 0
    for case in (CLAIMS, PAPER):
        ours_s, theirs_s, off = measure(case, cem)
        s = case.search
        print(
            f"{case.name}: B={case.windows}, S={s.samples} x {s.iterations}, H={case.horizon}, width {case.width}, "
            f"{case.layers} layers: ours {ours_s:.3f} s a window, the original {theirs_s:.3f} s, "
            f"{theirs_s / ours_s:.1f} times (wanted {WANTED:g}); means differ by {off:.1e}"
        )
        faults += off > AGREE or (case is CLAIMS and theirs_s / ours_s < WANTED)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
