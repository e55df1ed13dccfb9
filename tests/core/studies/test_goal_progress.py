"""Goal progress: the count against plain loops, random order, and plans that approach the goal on purpose."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from claims_fixture import CFG, write_claims_table
from test_geometry import corpus

from schemas.claims import BASE
from schemas.results import GoalProgress
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.report.tables.table import Value
from trajpilot_core.studies.claims.evidence.tables import Origin, read_evidence
from trajpilot_core.studies.claims.worlds.geometry import approaches, goal_progress
from trajpilot_core.studies.paper_audit.ours import our_tables


def test_plans_in_random_order_approach_the_goal_as_often_as_chance_says() -> None:
    steps = torch.randn(20_000, 5, 4, generator=torch.Generator().manual_seed(0))
    assert approaches(steps).mean() == pytest.approx(1 / math.factorial(3), abs=0.01)


def test_a_straight_way_to_the_goal_always_counts_and_the_way_back_never() -> None:
    line = torch.linspace(0, 1, 6)[None, :, None].expand(3, 6, 2)
    assert approaches(line).all()
    away = torch.cat([line[:, :1], line[:, 1:-1].flip(1), line[:, -1:]], dim=1)
    assert not approaches(away).any()


def test_a_single_middle_step_always_counts() -> None:
    assert approaches(torch.randn(7, 3, 2)).all()


def test_a_step_that_stays_where_it_is_does_not_approach() -> None:
    steps = torch.tensor([3.0, 2.0, 2.0, 0.0])[None, :, None]
    assert not approaches(steps).any()


def test_windows_are_counted_per_take_as_by_plain_loops() -> None:
    memory = corpus()
    data = load_planning_data(memory, "test")
    train = data.take_split[data.segment_take] == 0
    looks = data.features.float().mean(1)
    looks = ((looks - looks[train].mean(0)) / looks[train].std(0, correction=0).clamp_min(1e-6)).numpy()
    wanted: dict[tuple[str, int], list[bool]] = {}
    for horizon, windows in data.windows.items():
        for segments, take in zip(windows.segments.tolist(), windows.take.tolist(), strict=True):
            if data.take_split[take] != 2:
                continue
            far = [float(np.abs(looks[s] - looks[segments[-1]]).mean()) for s in segments[1:-1]]
            falls = all(a > b for a, b in pairwise(far))
            wanted.setdefault((data.take_ids[take], horizon), []).append(falls)
    found = {(row.take_id, row.horizon): (row.n_windows, row.monotone) for row in goal_progress(memory)}
    assert found == {key: (len(values), sum(values)) for key, values in wanted.items()}


@pytest.mark.parametrize(("share", "held"), [(6, True), (1, False)])
def test_the_page_shows_whether_the_fraction_is_that_of_random_order(tmp_path: Path, share: int, held: bool) -> None:
    rows = [
        (Origin(BASE, 3), GoalProgress(take_id=f"t{t:02}", horizon=h, n_windows=36, monotone=share + off))
        for t, off in enumerate((-1, 1) * 15)
        for h in CFG.horizons
    ]
    write_claims_table(tmp_path, "goal_progress", rows)
    shares, chances = our_tables(read_evidence(tmp_path, CFG.horizons), CFG)[11].rows
    share_5, chance_5 = shares[3], chances[3]
    assert isinstance(share_5, Value)
    assert isinstance(chance_5, Value)
    assert share_5.low is not None
    assert share_5.high is not None
    assert (share_5.low <= chance_5.value <= share_5.high) == held
