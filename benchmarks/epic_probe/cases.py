"""The small networks and inputs that the fixtures and the tests share; every number comes from the formula."""

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.planners.formula import fill, numbers
from trajpilot_core.encoders.video.vjepa_predictor import VjepaPredictor, VjepaPredictorShape
from trajpilot_core.models.attentive_probe import AttentiveProbe, ProbeShape

CLIPS, TOKENS = 2, 7
PROBE = ProbeShape(width=16, verbs=5, nouns=6, actions=9, heads=4, blocks=3)
PREDICTOR = VjepaPredictorShape(embed=10, width=32, depth=2, heads=2, hidden=128, mask_tokens=3)
PREDICTOR_2_1 = VjepaPredictorShape(
    embed=10, width=32, depth=4, heads=2, hidden=128, mask_tokens=3, release="2.1", levels=4
)
GRID, TUBELETS, RATE_HZ = 3, 4, 8.0
AHEAD_S = (1.0, 1.75)
"""One for each clip: 4 and 7 tubelets are skipped."""


def probe() -> AttentiveProbe:
    """Return a small probe in evaluation mode."""
    network = AttentiveProbe(PROBE).eval()
    fill(network)
    return network


def probe_tokens() -> Tensor:
    """Return tokens (B, N, D)."""
    return numbers(CLIPS, TOKENS, PROBE.width, phase=0.2)


def classes() -> Tensor:
    """Return (B, 3) true columns of verb, noun and action."""
    return torch.tensor([[1, 5, 0], [4, 2, 8]])


def predictor() -> VjepaPredictor:
    """Return a small predictor in evaluation mode."""
    network = VjepaPredictor(PREDICTOR).eval()
    fill(network)
    return network


def predictor_2_1(*, interpolate_rope: bool) -> VjepaPredictor:
    """Return a small predictor of release 2.1 in evaluation mode."""
    network = VjepaPredictor(replace(PREDICTOR_2_1, interpolate_rope=interpolate_rope)).eval()
    fill(network)
    return network


def context(levels: int = 1) -> Tensor:
    """Return the context tokens (B, N, D) of all tubelets, of so many levels next to each other."""
    return numbers(CLIPS, TUBELETS * GRID**2, levels * PREDICTOR.embed, phase=0.3)
