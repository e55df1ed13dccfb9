"""The paper's tables of anticipation, filled by one run: no goal is given, and what goal dropout changes.

Source of their layouts: arXiv 2605.20388, atomic_anticipation_full, goal_dropout_fullgoal and
goal_dropout_anticipation_full in its appendix. Its "Future" is M@1, M@5 and MSeq here, its "Full" F@1, F@5 and FSeq;
its overall rows are means over all windows. Definitions: docs/decisions/anticipation.md.
"""

from collections.abc import Sequence

from schemas.results import Ceiling
from trajpilot_core.evaluation.anticipation_claims import reached_shares
from trajpilot_core.methods import anticipation as rows
from trajpilot_core.methods import goal_dropout, method, predictors, with_role
from trajpilot_core.metrics import of_table
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.names import marked, open_metrics
from trajpilot_core.report.tables.results import ResultCell, Results, build_table
from trajpilot_core.report.tables.table import Table, Value

FUTURE = ("M@1", "M@5", "MSeq")
POOLINGS = ("none", "sample")
GOAL_GIVEN = (predictors.ORACLE.id, goal_dropout.ORACLE.id, predictors.NO_TRAJ.id, goal_dropout.NO_TRAJ.id)
"""Columns of goal_dropout_fullgoal: without and with goal dropout, the predictor with trajectories before the other."""
GOAL_MASKED = (rows.ORACLE_NO_DROPOUT.id, rows.ORACLE.id, rows.NO_TRAJ_NO_DROPOUT.id, rows.NO_TRAJ.id)
"""Columns of goal_dropout_anticipation_full, in the same order."""


def anticipation_tables(results: Results) -> list[GroupedTable[ResultCell]]:
    """Return the tables; empty where no row of the run anticipates."""
    if not any(method(variant).anticipates for variant in results.variants()):
        return []
    shown = [row for row in with_role("anticipation") if row not in (GOAL_MASKED[0], GOAL_MASKED[2])]
    tables = (
        build_table(
            "anticipation",
            "Anticipation, no goal is given: the steps between Start and Goal (M, the paper's Future), all steps (F, "
            "its Full), the steps after Start with the place of the Goal (A)",
            results,
            shown,
            (*open_metrics(), *of_table("anticipation")),
            poolings=POOLINGS,
        ),
        build_table(
            "goal-dropout-fullgoal",
            "Goal dropout, planning with the goal: the paper's Future (M)",
            results,
            GOAL_GIVEN,
            FUTURE,
            poolings=POOLINGS,
        ),
        build_table(
            "goal-dropout-anticipation",
            "Goal dropout, anticipation without the goal: the paper's Future (M)",
            results,
            GOAL_MASKED,
            FUTURE,
            poolings=POOLINGS,
        ),
    )
    return [table for table in tables if table.groups]


def shares_table(ceilings: Sequence[Ceiling], undertrained: frozenset[str] = frozenset()) -> Table | None:
    """Return the share of what can be known that each row without a goal has reached; None without such a row, or
    without an exact ceiling.

    Args:
        undertrained: rows that do not count as trained, which are marked.
    """
    lines = [
        (
            marked(method(one.row).name, one.row, undertrained),
            Value(one.value),
            Value(one.floor),
            Value(one.ceiling),
            Value(100 * one.share, digits=0),
            Value(100 * one.required, digits=0),
        )
        for one in reached_shares(ceilings)
    ]
    header = ("row", "M@1, %", "majority", "can be known", "share, %", "asked")
    note = (
        "M@1, mean over the horizons. Share: of the way from the majority label to the exact ceiling. A claim on a row "
        "below the required share, or on two rows whose shares differ by more than 15 points, is not decided "
        "(docs/decisions/anticipation.md)."
    )
    return (
        Table("No goal is given: share of what can be known that the rows have reached", header, tuple(lines), note)
        if lines
        else None
    )
