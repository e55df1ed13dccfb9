"""Rows without a goal in whole simulated worlds: below their ceilings, and equal where motion is uninformative."""

from pathlib import Path

import pytest
from ceiling_fixture import PREDICTOR, SCORER, STAGES, corpus, small_world, train_and_evaluate
from planning_world import Memory

from schemas.arrow import rows_of
from schemas.results import Judgement, Metric
from schemas.training import GOAL_DROPOUT
from trajpilot_core.methods.anticipation import NO_TRAJ, ORACLE, ROWS

EQUIVALENT = 3.0
"""Points of M@1 within which the whole interval of a difference must lie."""
AHEAD = {
    "predictor": PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT, anticipates=True),
    "scorer": SCORER.replace(anticipates=True),
}


def evaluated(folder: Path, **knobs: float) -> Memory:
    """A world with such knobs, everything trained in it, rows without a goal next to the others."""
    config = small_world(test_takes=96, **knobs)
    memory = corpus(config)[1]
    stages = [(stage, AHEAD.get(stage.name, cfg)) for stage, cfg in STAGES]
    train_and_evaluate(config, memory, folder, stages)
    return memory


def gain(memory: Memory) -> Metric:
    """Gain of motion without a goal: M@1, mean of the horizons, paired over takes."""
    rows = rows_of(Metric, memory.tables["metrics"])
    asked = (ORACLE.id, NO_TRAJ.id, "plain", "M@1", "take")
    (row,) = [r for r in rows if (r.variant, r.reference, r.pooling, r.metric, r.cluster) == asked]
    return row


def is_equivalent(difference: Metric) -> bool:
    return difference.low > -EQUIVALENT and difference.high < EQUIVALENT


@pytest.mark.slow
@pytest.mark.campaign
def test_where_motion_is_uninformative_traj_and_no_traj_are_equivalent_without_a_goal(tmp_path: Path) -> None:
    """In a world with informative motion the same test fails: Oracle is above."""
    silent, telling = evaluated(tmp_path / "silent", kappa=0.0, style=0.0), evaluated(tmp_path / "telling")
    assert is_equivalent(gain(silent)), gain(silent)
    assert not is_equivalent(gain(telling))
    assert gain(telling).low > EQUIVALENT
    for memory in (silent, telling):
        verdicts = {row.check: row.verdict for row in rows_of(Judgement, memory.tables["judgements"])}
        assert {verdicts[f"ceiling: {row.id} is below what can be known"] for row in ROWS} == {"holds"}
        assert verdicts["ceiling: what can be known is right as often as predicted"] == "holds"
