"""The paper's own numbers next to ours, on a real corpus only.

Source: arXiv 2605.20388 (`trajpilot_core/paper/tables`); no intervals, one seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from schemas.config import CompletedReport
from schemas.results import GateRow, Headroom
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.methods import METHODS, examined, method
from trajpilot_core.paper.published import (
    ATOMIC_CORPUS,
    HEADROOM_FIELDS,
    PublishedTable,
    TablePlace,
    published_anticipation,
    published_of,
    table_rows,
)
from trajpilot_core.report.tables.groups import POOLED
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import TOO_FEW, Results
from trajpilot_core.report.tables.table import number


@dataclass(frozen=True)
class PublishedComparison:
    """One number of ours next to the published one."""

    place: str
    """The horizon, or which mean of them."""
    name: str
    metric: str
    ours: str
    interval: str
    published: str
    difference: str
    is_outside: bool
    """Our interval excludes the published value."""


def published_for(results: Results, cfg: CompletedReport) -> PublishedTable | None:
    """Return what the paper prints of the corpus and vocabulary of a run, of the rows that this project has too.

    None for a simulated corpus, another one, another vocabulary, or released features, which are not the paper's.
    """
    corpus = _recorded(results, cfg)
    return None if corpus is None else _of_rows(published_of(corpus, is_closed=cfg.is_closed))


def anticipation_for(results: Results, cfg: CompletedReport) -> PublishedTable | None:
    """Return what the paper prints of anticipation and goal dropout.

    None where no row of the run anticipates, and as in `published_for`.
    """
    corpus = _recorded(results, cfg)
    if corpus is None or not any(method(variant).anticipates for variant in results.variants()):
        return None
    return _of_rows(published_anticipation(corpus, is_closed=cfg.is_closed))


def _recorded(results: Results, cfg: CompletedReport) -> str | None:
    """Return the corpus of the run if all takes are its recordings and videos were encoded; else None."""
    if cfg.corpus is None or cfg.released is not None:
        return None
    return cfg.corpus if {m.corpus for m in results.metrics} == {spec_of(cfg.corpus).ids} else None


def _of_rows(table: PublishedTable | None) -> PublishedTable | None:
    """Leave out rows that this project lacks."""
    if table is None:
        return None
    ours = {row.id for row in METHODS}
    return table._replace(values={key: value for key, value in table.values.items() if key[1] in ours})


def comparisons(results: Results, published: PublishedTable | None) -> list[PublishedComparison]:
    """Compare every published value with ours, where the run has one."""
    values = {} if published is None else published.values
    rows = [_comparison(results, *key, value) for key, value in values.items()]
    return [row for row in rows if row is not None]


def _comparison(
    results: Results, place: TablePlace, variant: str, metric: str, value: float
) -> PublishedComparison | None:
    """Compare one published value with ours; None where the run has none."""
    ours = results.get(variant, None, place, metric)
    if ours is None:
        return None
    return PublishedComparison(
        POOLED[place] if isinstance(place, str) else str(place),
        results.name(variant),
        metric,
        number(ours.value),
        f"[{number(ours.low)}, {number(ours.high)}]" if math.isfinite(ours.high) else TOO_FEW,
        f"{value:.2f}",
        number(ours.value - value, is_signed=True),
        not ours.low <= value <= ours.high,
    )


QUANTITIES = {
    "same_step_recall": ("mid same-step recall, %", 1),
    "any_step_recall": ("mid any-step recall, %", 1),
    "cosine_local": ("endpoint cosine, local", 3),
    "cosine_random": ("endpoint cosine, random", 3),
}
"""Quantity of the paper's data -> printed name, digits."""
ORACLE = {"M@1": "oracle_m1", "MSeq": "oracle_mseq"}


def pool_comparisons(
    gate: Sequence[GateRow], headroom: Sequence[Headroom], cfg: CompletedReport, *, is_recorded: bool
) -> list[PublishedComparison]:
    """Compare the published numbers of gate and pool with the means over our seeds, where the run has them."""
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
    """Compare the contents of pools of the paper's sizes."""
    compared = []
    for row in table_rows("retrieval_headroom"):
        pool, (name, digits) = int(row["row"].removeprefix("top_")), QUANTITIES[row["metric"]]
        field = HEADROOM_FIELDS[row["metric"]]
        ours = [getattr(r, field) for r in rows if (r.pool, r.horizon) == (pool, int(row["horizon"]))]
        if ours:
            compared.append(_compared(row["horizon"], f"pool of {pool}", name, ours, float(row["value"]), digits))
    return compared


def _oracle(rows: Sequence[Headroom]) -> list[PublishedComparison]:
    """Compare the best candidate of the largest pool."""
    printed = [row for row in table_rows("text") if row["row"] == "pool_oracle"]
    pool = max((row.pool for row in rows), default=0)
    compared = []
    for row in printed:
        mine = [r for r in rows if (r.pool, r.horizon) == (pool, int(row["horizon"]))]
        if mine:
            ours = [getattr(r, ORACLE[row["metric"]]) for r in mine]
            name = f"best of a pool of {pool}"
            compared.append(_compared(row["horizon"], name, row["metric"], ours, float(row["value"]), 1))
    return compared


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
