"""SCHEMA's forward pass at the size of Keystep against the original's `forward_once`."""

from pathlib import Path

import torch

from benchmarks.planners.formula import numbers
from benchmarks.planners.originals import schema_original
from benchmarks.planners.ratio import Ratio, compare
from schemas.planners import SchemaConfig
from trajpilot_core.models.planners.planner import PlannerShape
from trajpilot_core.models.planners.schema import SchemaPlanner

SHAPE, WINDOWS, HORIZON, SENTENCES = PlannerShape(1664, 768, 375, 16), 32, 3, 6
WANTED, CLOSE = 3.0, 1e-5


def measure(original: Path) -> list[Ratio]:
    """Time both in evaluation mode, after both gave the same logits."""
    torch.manual_seed(0)
    ours = SchemaPlanner(SchemaConfig(), SHAPE, HORIZON).eval()
    theirs = schema_original(original, ours.cfg, SHAPE, HORIZON, ours)
    features = numbers(WINDOWS, 2, SHAPE.feature_width)
    descriptions = numbers(SHAPE.actions, SENTENCES, SHAPE.text_width)
    tasks = torch.zeros(WINDOWS, dtype=torch.long)  # not read in evaluation mode
    with torch.no_grad():
        expected = theirs.forward_once(features, descriptions, tasks)["action"].view(WINDOWS, HORIZON, -1)
        torch.testing.assert_close(ours(features, descriptions).logits, expected, atol=CLOSE, rtol=CLOSE)
        name = f"SCHEMA forward, {SHAPE.actions} actions, {WINDOWS} windows, H={HORIZON}"
        return [
            compare(
                name,
                lambda: ours(features, descriptions),
                lambda: theirs.forward_once(features, descriptions, tasks),
                WANTED,
            )
        ]
