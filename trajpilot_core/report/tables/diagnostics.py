"""The two tables of the stage `diagnostics`, and the printed names of kinds of pairs.

The notes have the paper's numbers on recorded atomic descriptions only. Source: docs/decisions/diagnostics.md.
"""

from collections.abc import Mapping, Sequence
from math import isfinite

from schemas.config import ReportConfig
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.evaluation.feature_distances import ADJACENT, FAR, RANDOM, SAME_ACTION
from trajpilot_core.paper.published import ATOMIC_CORPUS, table_rows
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value

PAIRS: Mapping[str, str] = {
    ADJACENT: "adjacent, same recording",
    FAR: "far, same recording",
    SAME_ACTION: "same action, other recording",
    RANDOM: "random, other recording",
}
"""Kind of pairs -> its printed name."""
QUANTITIES: Mapping[str, str] = {"mean_l1": "l1, raw", "standardised_l1": "l1, standardised", "mean_cosine": "cosine"}
SPLITS: Mapping[str, str] = {"test": "test takes", "train": "training takes"}
SPACES: Mapping[str, str] = {"raw": "raw", "standardised": "standardised"}


def diagnostics_tables(
    pairs: Sequence[PairDistance], shares: Sequence[ProgressShare], cfg: ReportConfig, *, is_recorded: bool
) -> list[Table]:
    """Return the tables of geometry and goal progress; none where the stage measured nothing.

    Args:
        is_recorded: takes are recordings of that corpus; published numbers are shown only then.
    """
    is_theirs = is_recorded and cfg.corpus == ATOMIC_CORPUS
    tables = []
    if pairs:
        tables.append(_geometry(pairs, published_geometry() if is_theirs else ""))
    if shares:
        tables.append(_progress(shares, published_progress() if is_theirs else ""))
    return tables


def _geometry(rows: Sequence[PairDistance], published: str) -> Table:
    """Return a line for each kind of pairs, and three quantities for each split."""
    found: dict[tuple[str, ...], PairDistance] = {(row.pairs, row.split, row.quantity): row for row in rows}
    header = ("pairs of segments", *(name for _ in SPLITS for name in QUANTITIES.values()))
    lines = [
        (name, *(_value(found.get((kind, split, quantity)), 3) for split in SPLITS for quantity in QUANTITIES))
        for kind, name in PAIRS.items()
    ]
    over = (("", 1), *((title, len(QUANTITIES)) for title in SPLITS.values()))
    note = "l1 is the mean over the components; standardised: each divided by its deviation over the training takes."
    return Table("Distances of segments in the features", header, tuple(lines), note + published, over)


def _progress(rows: Sequence[ProgressShare], published: str) -> Table:
    """Return a line for each horizon: both distances for each split, and the share of random orders."""
    found: dict[tuple[int | str, ...], ProgressShare] = {(row.horizon, row.split, row.space): row for row in rows}
    header = ("H", *(name for _ in SPLITS for name in SPACES.values()), "random order")
    lines = []
    for horizon, chance in sorted({row.horizon: row.chance for row in rows}.items()):
        shares = (_value(found.get((horizon, split, space)), 1) for split in SPLITS for space in SPACES)
        lines.append((str(horizon), *shares, Value(chance, digits=2)))
    over = (("", 1), *((title, len(SPACES)) for title in SPLITS.values()), ("", 1))
    title = "True plans that come closer to the goal with every middle step, %"
    note = "Three steps have one middle step, so H = 3 is always 100 %. Training windows are sampled with the seed."
    return Table(title, header, tuple(lines), note + published, over)


def _value(row: PairDistance | ProgressShare | None, digits: int) -> Cell:
    """Return a number with its interval, where there are enough takes for one."""
    if row is None:
        return NOTHING
    value = row.value if isinstance(row, PairDistance) else row.share
    return Value(value, row.low, row.high, digits) if isfinite(row.low) else Value(value, digits=digits)


def published_geometry() -> str:
    """Return the paper's distances in a sentence."""
    by_name = {name: [r["value"] for r in table_rows("vjepa_geometry") if r["metric"] == name] for name in QUANTITIES}
    text = "; ".join(f"{QUANTITIES[name]} {', '.join(values)}" for name, values in by_name.items() if values)
    return f" Published, in this order, of unnamed takes: {text} (arXiv 2605.20388, appendix)."


def published_progress() -> str:
    """Return the paper's shares in a sentence."""
    rows = table_rows("monotonicity")
    text = ", ".join(f"H={row['horizon']} {row['value']}" for row in rows)
    return f" Published, of 2,000 training windows each: {text} (arXiv 2605.20388, appendix)."
