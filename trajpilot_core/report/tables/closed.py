"""The paper's tables of closed vocabularies, filled by one run: means over the horizons, each horizon, settings.

Source of their layouts: arXiv 2605.20388, tables of closed-vocabulary planning, its figure of planning on atomic
actions (right), and the table of hyperparameters in its appendix. Rows that are not in the paper are in the other
tables of the report.
"""

from schemas.config import ReportConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.paper.published import CLOSED_ROWS, published_settings
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.results import ResultCell, Results, build_table
from trajpilot_core.report.tables.table import Cell, Table, Value

OVERALL = ("SR", "Mid mAcc", "mIoU")
"""Columns of the means over the horizons."""
FULL = (*OVERALL, "ED")
"""Columns of each horizon."""
PANEL = ("M@1", "M@5", "MSeq")
"""Metrics of the figure for classes of atomic descriptions, as means over all windows."""
SETTINGS = ("Benchmark", "|V|", "λ bridge", "transition weight w", "smoothing / temperature", "masks", "candidates K")


def closed_tables(results: Results, cfg: ReportConfig, n_labels: int) -> list[GroupedTable[ResultCell]]:
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


def settings_table(cfg: ReportConfig, n_labels: int, *, is_simulated: bool) -> Table | None:
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
