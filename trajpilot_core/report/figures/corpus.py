"""Counts of ingest: takes by scenario and split, windows by horizon and split, what was left out and why."""

from collections import Counter

import pyarrow as pa

from schemas.rejects import RejectCode
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.bars import Bar, bar_chart
from trajpilot_core.report.drawing.charts import Key, legend_mark
from trajpilot_core.report.drawing.svg_grid import Drawn, Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.health import SPLITS


def corpus(committed: Committed) -> Drawn:
    """Draw the counts of an ingested corpus."""
    takes = committed.table("ingest", "takes", ("scenario", "split"))
    windows = committed.table("ingest", "windows", ("horizon", "split"))
    rejects = committed.table("ingest", "ingest.rejects", ("code", "n_units"))
    by_scenario = sorted(_counted(takes, "scenario"), key=lambda bar: (-bar.total, bar.name))
    rising = sorted(_counted(windows, "horizon"), key=lambda bar: int(bar.name))
    by_horizon = [bar._replace(name=f"H = {bar.name}") for bar in rising]
    lost: Counter[str] = Counter()
    for row in rejects.to_pylist():
        lost[row["code"]] += row["n_units"] if RejectCode(row["code"]).severity == "drop" else 0
    left_out = [Bar(code, (("lost", n),)) for code, n in lost.most_common() if n]
    panels = [
        Panel("Takes by scenario", bar_chart("Takes by scenario", "takes", by_scenario)),
        Panel("Planning windows by horizon", bar_chart("Planning windows by horizon", "windows", by_horizon)),
        Panel("Left out, by reason", bar_chart("Left out, by reason", "descriptions", left_out)),
    ]
    keys = [Key(split, legend_mark(split, "square")) for split in SPLITS]
    counts = Counter(takes["split"].to_pylist())
    split_counts = ", ".join(f"{counts[split]:,} {split}" for split in SPLITS)
    advice = " The table of this stage explains each reason." if left_out else ""
    return Drawn(sheet(panels, keys, committed.warning()), f"{takes.num_rows:,} takes: {split_counts}.{advice}")


def _counted(table: pa.Table, column: str) -> list[Bar]:
    """Count rows by a column, split by split."""
    found = Counter(zip(map(str, table[column].to_pylist()), table["split"].to_pylist(), strict=True))
    return [
        Bar(name, tuple((split, found[name, split]) for split in SPLITS))
        for name in sorted({name for name, _ in found})
    ]


FIGURE = Figure("corpus", "What the corpus contains", stages=("ingest",), draw=corpus)
