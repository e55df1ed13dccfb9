"""The paper's numbers of gate and retrieved pool next to ours: on recorded atomic descriptions, open vocabulary, only.

Source: arXiv 2605.20388, section 3 (share of fallbacks) and its appendix on retrieval headroom; no intervals, one seed.
"""

from collections.abc import Sequence
from statistics import mean

from schemas.config import ReportConfig
from schemas.results import GateRow, Headroom
from trajpilot_core.methods import examined
from trajpilot_core.paper.published import ATOMIC_CORPUS, table_rows
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.published import PublishedComparison
from trajpilot_core.report.tables.table import number

QUANTITIES = {
    "same_step_recall": ("same_step_recall", "mid same-step recall, %", 1),
    "any_step_recall": ("any_step_recall", "mid any-step recall, %", 1),
    "cosine_local": ("endpoint_cosine", "endpoint cosine, local", 3),
    "cosine_random": ("endpoint_cosine_random", "endpoint cosine, random", 3),
}
"""Quantity of the paper's data -> field of `Headroom`, printed name, digits."""
ORACLE = {"M@1": "oracle_m1", "MSeq": "oracle_mseq"}


def pool_comparisons(
    gate: Sequence[GateRow], headroom: Sequence[Headroom], cfg: ReportConfig, *, is_recorded: bool
) -> list[PublishedComparison]:
    """Set the published numbers of gate and pool next to the means over our seeds, where the run has them."""
    if not is_recorded or cfg.corpus != ATOMIC_CORPUS or cfg.is_closed:
        return []
    return [*_gate(gate), *_pools(headroom), *_oracle(headroom)]


def _gate(rows: Sequence[GateRow]) -> list[PublishedComparison]:
    """Compare the share of windows whose gate stays closed."""
    printed = [row for row in table_rows("text") if row["metric"] == "fallback_share"]
    ours = {h: [100 - row.open_rate for row in rows if row.horizon == h] for h in {row.horizon for row in rows}}
    name = f"gate of the {row_name(examined().id)}"
    return [
        _compared(horizon, name, "fallback, %", ours[int(horizon)], float(row["value"]), 1)
        for row in printed
        if ours.get(int(horizon := row["horizon"]))
    ]


def _pools(rows: Sequence[Headroom]) -> list[PublishedComparison]:
    """Compare what pools of the paper's sizes hold."""
    found = []
    for row in table_rows("retrieval_headroom"):
        pool, (field, name, digits) = int(row["row"].removeprefix("top_")), QUANTITIES[row["metric"]]
        ours = [getattr(one, field) for one in rows if (one.pool, one.horizon) == (pool, int(row["horizon"]))]
        if ours:
            found.append(_compared(row["horizon"], f"pool of {pool}", name, ours, float(row["value"]), digits))
    return found


def _oracle(rows: Sequence[Headroom]) -> list[PublishedComparison]:
    """Compare the best candidate of the largest pool."""
    printed = [row for row in table_rows("text") if row["row"] == "pool_oracle"]
    pool = max((row.pool for row in rows), default=0)
    found = []
    for row in printed:
        mine = [one for one in rows if (one.pool, one.horizon) == (pool, int(row["horizon"]))]
        if mine:
            ours = [getattr(one, ORACLE[row["metric"]]) for one in mine]
            name = f"best of a pool of {pool}"
            found.append(_compared(row["horizon"], name, row["metric"], ours, float(row["value"]), 1))
    return found


def _compared(
    place: str, name: str, metric: str, ours: Sequence[float], published: float, digits: int
) -> PublishedComparison:
    value = mean(ours)
    return PublishedComparison(
        place,
        name,
        metric,
        number(value, digits),
        f"(no interval; seeds: {len(ours)})",
        f"{published:g}",
        number(value - published, digits, is_signed=True),
        is_outside=False,
    )
