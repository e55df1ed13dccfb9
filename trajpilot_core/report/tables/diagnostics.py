"""Tables of the stage `diagnostics` and of parsed answers of vision-language models.

The notes have the paper's numbers on recorded atomic descriptions only. Source: docs/decisions/diagnostics.md; paper,
appendix on vision-language baselines; docs/decisions/vlm.md.
"""

from collections.abc import Mapping, Sequence
from math import isfinite

from schemas.config import CompletedReport
from schemas.results import PairDistance, ProgressShare
from schemas.vlm import EndpointScore, VlmCount
from trajpilot_core.evaluation.feature_distances import ADJACENT, FAR, RANDOM, SAME_ACTION
from trajpilot_core.paper.published import ATOMIC_CORPUS, table_rows
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value, row_name

PAIRS: Mapping[str, str] = {
    ADJACENT: "Adjacent segments, same recording",
    FAR: "Far segments, same recording",
    SAME_ACTION: "Same action, different recording",
    RANDOM: "Random cross-recording pair",
}
"""Kind of pairs -> its printed name."""
QUANTITIES: Mapping[str, str] = {"mean_l1": "l1", "mean_cosine": "cosine"}
SPLITS: Mapping[str, str] = {"test": "Test takes", "train": "Training takes"}
ENDPOINTS = {
    "segments": "Endpoint segments",
    "R@1": "Endpoint R@1",
    "R@5": "Endpoint R@5",
    "exact_projection": "Exact projection to the text bank",
    "fallback_projection": "Fallback projection",
}
"""Row of the table `endpoint_cache` -> its printed name."""
SEGMENTS = ": segments"
"""Suffix of the names of counts of single segments."""


def diagnostics_tables(
    pairs: Sequence[PairDistance], shares: Sequence[ProgressShare], cfg: CompletedReport, *, is_recorded: bool
) -> list[Table]:
    """Return the tables of geometry and goal progress; none where the stage measured nothing.

    Args:
        is_recorded: takes are recordings of that corpus; published numbers are shown only then.
    """
    is_theirs = is_recorded and cfg.corpus == ATOMIC_CORPUS
    tables = []
    if pairs:
        theirs = {
            name: [r["value"] for r in table_rows("vjepa_geometry") if r["metric"] == name] for name in QUANTITIES
        }
        text = "; ".join(f"{QUANTITIES[name]} {', '.join(values)}" for name, values in theirs.items() if values)
        published = f" Published, in this order, of unnamed takes: {text} (arXiv 2605.20388, appendix)."
        tables.append(_geometry(pairs, published if is_theirs else ""))
    if shares:
        text = ", ".join(f"H={row['horizon']} {row['value']}" for row in table_rows("monotonicity"))
        published = f" Published, of 2,000 training windows each: {text} (arXiv 2605.20388, appendix)."
        tables.append(_progress(shares, published if is_theirs else ""))
    return tables


def _geometry(rows: Sequence[PairDistance], published: str) -> Table:
    """Return a line for each kind of pairs, and three quantities for each split."""
    by_place: dict[tuple[str, ...], PairDistance] = {(row.pairs, row.split, row.quantity): row for row in rows}
    header = ("pairs of segments", *(name for _ in SPLITS for name in QUANTITIES.values()))
    lines = [
        (name, *(_value(by_place.get((kind, split, quantity)), 3) for split in SPLITS for quantity in QUANTITIES))
        for kind, name in PAIRS.items()
    ]
    over = (("", 1), *((title, len(QUANTITIES)) for title in SPLITS.values()))
    note = "l1 is the mean over the components."
    return Table("Distances of segments in the features", header, tuple(lines), note + published, over)


def _progress(rows: Sequence[ProgressShare], published: str) -> Table:
    """Return a line for each horizon: the share of each split, and that of random orders."""
    by_place: dict[tuple[int | str, ...], ProgressShare] = {(row.horizon, row.split): row for row in rows}
    header = ("H", *SPLITS.values(), "random order")
    lines = []
    for horizon, chance in sorted({row.horizon: row.chance for row in rows}.items()):
        shares = (_value(by_place.get((horizon, split)), 1) for split in SPLITS)
        lines.append((str(horizon), *shares, Value(chance, digits=2)))
    title = "True plans that come closer to the goal with every middle step, %"
    note = "Three steps have one middle step, so H = 3 is always 100 %. Training windows are sampled with the seed."
    return Table(title, header, tuple(lines), note + published)


def _value(row: PairDistance | ProgressShare | None, digits: int) -> Cell:
    """Return a number with its interval, where there are enough takes for one."""
    if row is None:
        return NOTHING
    value = row.value if isinstance(row, PairDistance) else row.share
    return Value(value, row.low, row.high, digits) if isfinite(row.low) else Value(value, digits=digits)


def answer_tables(counts: Sequence[VlmCount], endpoints: Sequence[EndpointScore]) -> list[Table]:
    """Return the tables of answers and of recognised endpoints (the paper's layout); empty without a queried model."""
    tables = []
    if counts:
        lines = tuple(
            (
                _name(count),
                str(count.horizon),
                f"{count.n_answers:,}",
                _share(count.n_failed, count.n_answers),
                _share(count.n_repaired, count.n_answers),
                f"{count.n_labels:,}",
                _share(count.n_exact, count.n_labels),
                _share(count.n_projected, count.n_labels),
                _share(count.n_blank, count.n_labels),
            )
            for count in counts
        )
        header = ("row", "H", "answers", "failed", "repaired", "labels", "in the bank", "projected", "left open")
        note = (
            "Percent of the answers and of their labels. Failed: no JSON was found; counted as wrong at every step, "
            "never left out. Repaired: too long or too short, cut or filled. Projected: not in the bank, replaced by "
            "the nearest."
        )
        tables.append(Table("How the answers of vision-language models were parsed", header, lines, note))
    if endpoints:
        recognised = tuple(
            (ENDPOINTS.get(row.row, "Not parsed"), f"{row.count:,}", Value(row.percentage)) for row in endpoints
        )
        note = (
            "Over the unique segments at the ends of the queried windows; answers that were not parsed count as wrong. "
            "Fallback: the nearest label by the text encoder."
        )
        adapters = {row.adapter for row in endpoints if row.adapter}
        by = f"the tuned model {', '.join(adapters)}" if adapters else "an UNTUNED model"
        tables.append(Table(f"Endpoints as recognised by {by}", ("", "count", "percent"), recognised, note))
    return tables


def _name(count: VlmCount) -> str:
    """Return the printed name of a row, or of its queries about single segments."""
    row = count.variant.removesuffix(SEGMENTS)
    name = row_name(row)
    return f"{name}, single segments" if row != count.variant else name


def _share(part: int, whole: int) -> Value | str:
    """Return a percentage; a dash where the total is zero."""
    return Value(100 * part / whole) if whole else "–"
