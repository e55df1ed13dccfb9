"""The small planners and inputs that the fixtures and the tests share; every number comes from the formula."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.planners.formula import fill, numbers
from schemas.planners import SchemaConfig, ViterbiPlanNetConfig
from trajpilot_core.models.planners.planner import PlannerShape
from trajpilot_core.models.planners.schema import SchemaPlanner
from trajpilot_core.models.planners.viterbi_plan_net import ViterbiPlanNet

SHAPE = PlannerShape(feature_width=10, text_width=6, actions=7, tasks=3)
WINDOWS, SENTENCES = 3, 6
SCHEMA_CASES = {"with_task_h4": (True, 4), "without_task_h3": (False, 3)}
"""Name -> whether the state decoder reads the task, and H."""
VITERBI_HORIZONS = (3, 5)


class Batch(NamedTuple):
    """What a planner's loss reads: B windows of H steps, A actions with S sentences each."""

    features: Tensor
    """(B, 2, D)."""
    descriptions: Tensor
    """(A, S, E)."""
    transition: Tensor
    """(A, A) counts."""
    labels: Tensor
    """(B, H) long."""
    tasks: Tensor
    """(B,) long."""


def batch(horizon: int) -> Batch:
    """Return B windows; action 2 is never followed by anything."""
    transition = (4 * numbers(SHAPE.actions, SHAPE.actions, phase=0.4)).round().clamp(min=0)
    transition[2] = 0
    return Batch(
        numbers(WINDOWS, 2, SHAPE.feature_width, phase=0.1),
        numbers(SHAPE.actions, SENTENCES, SHAPE.text_width, phase=0.2),
        transition,
        torch.arange(WINDOWS * horizon).reshape(WINDOWS, horizon) * 3 % SHAPE.actions,
        torch.arange(WINDOWS) % SHAPE.tasks,
    )


def schema(has_task_input: bool, horizon: int) -> SchemaPlanner:
    """Return a small SCHEMA in evaluation mode."""
    cfg = SchemaConfig(width=16, heads=4, layers=2, has_task_input=has_task_input)
    planner = SchemaPlanner(cfg, SHAPE, horizon).eval()
    fill(planner)
    return planner


def viterbi_plan_net(horizon: int) -> ViterbiPlanNet:
    """Return a small ViterbiPlanNet in evaluation mode."""
    planner = ViterbiPlanNet(ViterbiPlanNetConfig(width=16), SHAPE, horizon).eval()
    fill(planner)
    return planner


def query(horizon: int, width: int) -> Tensor:
    """Return (B, H + 1, W) tokens for a single decoder layer."""
    return numbers(WINDOWS, horizon + 1, width, phase=0.3)


def soft_viterbi_case() -> tuple[Tensor, Tensor, Tensor]:
    """Return log emissions (B, H, A), transitions (A, A) and the direction (B, H, A) of the gradient."""
    emission, direction = numbers(WINDOWS, 5, SHAPE.actions, scale=4.0), numbers(WINDOWS, 5, SHAPE.actions, phase=1.0)
    return emission, batch(5).transition, direction


@contextmanager
def marked_dropout() -> Iterator[None]:
    """Let every `nn.Dropout` in training mode return x (1 + p sin x) while this lasts.

    So outputs show where each dropout stands and its probability, without a random generator.
    """

    def marked(layer: nn.Dropout, x: Tensor) -> Tensor:
        return x * (1 + layer.p * x.sin()) if layer.training else x

    dropout: Any = nn.Dropout
    before = dropout.forward
    dropout.forward = marked
    try:
        yield
    finally:
        dropout.forward = before


def without_attention_dropout(planner: nn.Module) -> nn.Module:
    """Switch off the dropout that torch's own attention draws by itself, which `marked_dropout` cannot reach."""
    for part in planner.modules():
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    return planner
