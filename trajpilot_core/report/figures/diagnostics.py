"""Diagnostics in the UI: distances between kinds of pairs of segments, and how often true plans approach the goal.

The caption has published values for a recorded corpus of the paper, never for a simulated one.
"""

from collections.abc import Sequence

from schemas.arrow import rows_of
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.paper.published import ATOMIC_CORPUS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Axes, Point, Series, keys_of, line_chart, measured
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.tables.diagnostics import PAIRS, QUANTITIES, published_geometry, published_progress

STYLES = {"test": "scorer", "train": "no_traj", "chance": "previous"}
"""Rows whose colours and dashes the lines use: any that differ clearly would do."""


def diagnostics(committed: Committed) -> Drawn:
    """Draw what the stage measured; a simulated corpus is named in the picture."""
    pairs = rows_of(PairDistance, committed.table("diagnostics", "pair_distances"))
    shares = rows_of(ProgressShare, committed.table("diagnostics", "progress_shares"))
    if not pairs and not shares:
        raise NothingToDraw("no pair of segments and no window of three steps or more")
    drawn = [(title, _distances(pairs, name)) for name, title in QUANTITIES.items()]
    kinds = [kind for kind in PAIRS if any(row.pairs == kind for row in pairs)]
    ticks, names = tuple(map(float, range(len(kinds)))), tuple(PAIRS[kind].partition(",")[0] for kind in kinds)
    axes = [Axes(title, "pairs of segments", title, ticks, x_names=names) for title in QUANTITIES.values()]
    panels = [Panel(axis.title, line_chart(axis, lines)) for axis, (_, lines) in zip(axes, drawn, strict=True)]
    progress = _progress([row for row in shares if row.space == "raw"])
    title = "true plans that approach the goal, %"
    ticks = tuple(sorted({float(row.horizon) for row in shares}))
    panels.append(
        Panel("Approach to the goal, raw l1", line_chart(Axes(title, "horizon H (steps)", title, ticks), progress))
    )
    warning = committed.warning()
    content = sheet(panels, keys_of(progress or drawn[0][1]), warning)
    is_theirs = not warning and committed.config.ingest.corpus == ATOMIC_CORPUS
    return Drawn(content, _caption(pairs, shares) + (published_geometry() + published_progress() if is_theirs else ""))


def _distances(rows: Sequence[PairDistance], quantity: str) -> list[Series]:
    """One line per split over the four kinds, in the paper's order."""
    kinds = [kind for kind in PAIRS if any(row.pairs == kind for row in rows)]
    return [
        Series(
            f"{split} takes",
            STYLES[split],
            tuple(
                measured(float(kinds.index(r.pairs)), r.value, r.low, r.high, PAIRS[r.pairs])
                for r in rows
                if r.split == split and r.quantity == quantity
            ),
            "circle",
        )
        for split in ("test", "train")
    ]


def _progress(rows: Sequence[ProgressShare]) -> list[Series]:
    """One line per split over the horizon, and that of random orders."""
    lines = [
        Series(
            f"{split} takes",
            STYLES[split],
            tuple(measured(float(r.horizon), r.share, r.low, r.high) for r in rows if r.split == split),
            "circle",
        )
        for split in ("test", "train")
    ]
    chance = tuple(Point(float(h), *[c] * 3) for h, c in sorted({row.horizon: row.chance for row in rows}.items()))
    return [*lines, Series("random order", STYLES["chance"], chance, "none")] if rows else []


def _caption(pairs: Sequence[PairDistance], shares: Sequence[ProgressShare]) -> str:
    """Return how many pairs and windows are shown."""
    counts = {
        split: (
            max((row.n_pairs for row in pairs if row.split == split), default=0),
            max((row.n_windows for row in shares if row.split == split), default=0),
        )
        for split in ("test", "train")
    }
    text = "; ".join(
        f"{split}: up to {n:,} pairs of a kind, {w:,} windows of a horizon" for split, (n, w) in counts.items()
    )
    return f"{text}. Bands: 95 % intervals over takes (none where there are too few)."


FIGURE = Figure("diagnostics", "Distances between features", stages=("diagnostics",), draw=diagnostics)
