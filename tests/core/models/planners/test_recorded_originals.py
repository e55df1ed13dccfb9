"""What is recorded of the originals is small and names repository and commit; weights of the formula compare well."""

import re

import torch
from checkout import DATA
from formula import fill, numbers
from torch import nn

LARGEST = 60_000
RECORDED = sorted([*(DATA / "planners").glob("*.json"), *(DATA / "epic_probe").glob("*.json")])


def test_recorded_answers_are_small_and_say_where_they_come_from() -> None:
    for path in RECORDED:
        text = path.read_text()
        assert len(text) < LARGEST, path
        assert re.search(r'"origin": "github.com/\S+/\S+ at [0-9a-f]{40};', text), path


def test_the_formula_gives_full_rank_and_leaves_norms_near_one() -> None:
    assert torch.linalg.matrix_rank(numbers(12, 12)) == 12
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    fill(module, scale=0.3)
    assert module[0].weight.abs().max() <= 0.3
    assert (module[1].weight - 1).abs().max() <= 0.3
