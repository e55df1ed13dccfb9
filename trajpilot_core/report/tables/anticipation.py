"""The paper's tables of anticipation and of closed vocabularies, filled by one run.

Source of their layouts: arXiv 2605.20388, atomic_anticipation_full, goal_dropout_fullgoal,
goal_dropout_anticipation_full, the tables of closed-vocabulary planning, its figure of planning on atomic actions
(right), and the table of hyperparameters. Its "Future" is M@1, M@5 and MSeq here, its "Full" F@1, F@5 and FSeq; its
overall rows are means over all windows (docs/decisions/anticipation.md). Other rows are in other tables.
"""

from schemas.config import CompletedReport
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.methods import anticipation as rows
from trajpilot_core.methods import method, predictors, with_role
from trajpilot_core.metrics import of_table
from trajpilot_core.paper.published import CLOSED_ROWS, published_settings
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.names import open_metrics
from trajpilot_core.report.tables.results import ResultCell, Results, build_table
from trajpilot_core.report.tables.table import Cell, Table, Value

FUTURE = ("M@1", "M@5", "MSeq")
POOLINGS = ("none", "sample")
GOAL_GIVEN = (
    predictors.ORACLE.id,
    predictors.ORACLE_GOAL_DROPOUT.id,
    predictors.NO_TRAJ.id,
    predictors.NO_TRAJ_GOAL_DROPOUT.id,
)
"""Columns of goal_dropout_fullgoal: without and with goal dropout, the predictor with trajectories before the other."""
GOAL_MASKED = (rows.ORACLE_NO_DROPOUT.id, rows.ORACLE.id, rows.NO_TRAJ_NO_DROPOUT.id, rows.NO_TRAJ.id)
"""Columns of goal_dropout_anticipation_full, in the same order."""
OVERALL = ("SR", "Mid mAcc", "mIoU")
"""Columns of the means over the horizons."""
FULL = (*OVERALL, "ED")
"""Columns of each horizon."""
PANEL = ("M@1", "M@5", "MSeq")
"""Metrics of the figure for classes of atomic descriptions, as means over all windows."""
SETTINGS = ("Benchmark", "|V|", "λ bridge", "transition weight w", "smoothing / temperature", "masks", "candidates K")


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


def closed_tables(results: Results, cfg: CompletedReport, n_labels: int) -> list[GroupedTable[ResultCell]]:
    """Return the paper's tables of a closed vocabulary; none for an open one.

    Args:
        cfg: whether labels are ranked by class heads, or answers are classes.
    """
    tables = []
    if cfg.heads is not None:
        title = f"Closed-vocabulary planning, {n_labels:,} labels"
        tables += [
            build_table(
                "closed-overall", f"{title}: mean of the horizons", results, CLOSED_ROWS, OVERALL, poolings=("plain",)
            ),
            build_table("closed-full", f"{title}: each horizon", results, CLOSED_ROWS, FULL, poolings=("none",)),
        ]
    if cfg.is_closed:
        title = "Classes of atomic descriptions: means over all windows"
        tables.append(build_table("closed-panel", title, results, CLOSED_ROWS, PANEL, poolings=("sample",)))
    return [table for table in tables if table.groups]


def settings_table(cfg: CompletedReport, n_labels: int, *, is_simulated: bool) -> Table | None:
    """Return the hyperparameters of a run with class heads, with the paper's on a recorded corpus; else None."""
    if cfg.heads is None or cfg.corpus is None:
        return None
    title = spec_of(cfg.corpus).title
    ours: tuple[Cell, ...] = (
        title if not is_simulated else f"simulated world in the layout of {title}",
        Value(n_labels, digits=0),
        f"{cfg.heads.bridge_weight:g}",
        f"{cfg.heads.decoding.weight:g}",
        f"{cfg.heads.decoding.smoothing:g} / {cfg.heads.decoding.temperature:g}",
        "on" if cfg.heads.decoding.is_masked else "off",
        str(cfg.heads.candidates),
    )
    rows = [ours]
    printed = published_settings(cfg.corpus)
    if printed and not is_simulated and cfg.released is None:
        rows.append(
            (
                f"{title}, published",
                f"{printed['labels']:g}",
                f"{printed['lambda_bridge']:g}",
                f"{printed['transition_weight']:g}",
                f"{printed['smoothing']:g} / {printed['temperature']:g}",
                "",
                "",
            )
        )
    return Table("Settings of the class heads", SETTINGS, tuple(rows))
