"""The paper's own numbers next to ours, on a real corpus only.

Source: arXiv 2605.20388 (`trajpilot_core/paper/tables`); no intervals, one seed.
"""

from collections.abc import Sequence
from statistics import mean

from schemas.config import CompletedReport
from schemas.results import GateRow, Headroom
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.methods import examined, method
from trajpilot_core.paper import published
from trajpilot_core.report.tables.results import Results
from trajpilot_core.report.tables.table import POOLED, Cell, Table, Value, number, row_name


def published_for(results: Results, cfg: CompletedReport) -> published.PublishedTable | None:
    """Return what the paper prints of the corpus and vocabulary of a run.

    None for a simulated corpus, another one, another vocabulary, or released features, which are not the paper's.
    """
    corpus = _recorded(results, cfg)
    return None if corpus is None else published.published_of(corpus, is_closed=cfg.is_closed)


def anticipation_for(results: Results, cfg: CompletedReport) -> published.PublishedTable | None:
    """Return what the paper prints of anticipation and goal dropout.

    None where no row of the run anticipates, and as in `published_for`.
    """
    corpus = _recorded(results, cfg)
    if corpus is None or not any(method(variant).anticipates for variant in results.variants()):
        return None
    return published.published_anticipation(corpus, is_closed=cfg.is_closed)


def _recorded(results: Results, cfg: CompletedReport) -> str | None:
    """Return the corpus of the run if all takes are its recordings and videos were encoded; else None."""
    if cfg.corpus is None or cfg.released is not None:
        return None
    return cfg.corpus if {m.corpus for m in results.metrics} == {spec_of(cfg.corpus).ids} else None


def comparisons(results: Results, table: published.PublishedTable | None) -> list[tuple[Cell, ...]]:
    """Return a line for every published value that the run has, too; `outside`: our interval excludes it."""
    values = {} if table is None else table.values
    found = [(key, value, results.get(key[1], None, key[0], key[2])) for key, value in values.items()]
    return [
        (
            POOLED[place] if isinstance(place, str) else str(place),
            results.name(variant),
            metric,
            Value(ours.value, ours.low, ours.high),
            f"{value:.2f}",
            number(ours.value - value, is_signed=True) + (" (outside)" if not ours.low <= value <= ours.high else ""),
        )
        for (place, variant, metric), value, ours in found
        if ours is not None
    ]


def published_table(rows: Sequence[tuple[Cell, ...]]) -> Table | None:
    """Return the table of all comparisons; None without any."""
    header = ("H", "Method", "Metric", "ours", "published", "difference")
    return Table("Published value next to ours", header, tuple(rows)) if rows else None


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
) -> list[tuple[Cell, ...]]:
    """Compare the published numbers of gate, pools and best candidate with the means over our seeds, if any."""
    if not is_recorded or cfg.corpus != published.ATOMIC_CORPUS or cfg.is_closed:
        return []

    def of_pool(size: int, horizon: str, field: str) -> list[float]:
        return [getattr(row, field) for row in headroom if (row.pool, row.horizon) == (size, int(horizon))]

    compared: list[tuple[dict[str, str], str, str, list[float], int]] = []
    texts = published.table_rows("text")
    for row in texts:
        if row["metric"] == "fallback_share":
            shares = [100 - ours.open_rate for ours in gate if ours.horizon == int(row["horizon"])]
            compared.append((row, f"gate of the {row_name(examined().id)}", "fallback, %", shares, 1))
    for row in published.table_rows("retrieval_headroom"):
        size, (name, digits) = int(row["row"].removeprefix("top_")), QUANTITIES[row["metric"]]
        values = of_pool(size, row["horizon"], published.HEADROOM_FIELDS[row["metric"]])
        compared.append((row, f"pool of {size}", name, values, digits))
    largest = max((ours.pool for ours in headroom), default=0)
    for row in texts:
        if row["row"] == "pool_oracle":
            values = of_pool(largest, row["horizon"], ORACLE[row["metric"]])
            compared.append((row, f"best of a pool of {largest}", row["metric"], values, 1))
    return [
        (
            row["horizon"],
            name,
            metric,
            f"{number(mean(ours), digits)} (no interval; seeds: {len(ours)})",
            f"{float(row['value']):g}",
            number(mean(ours) - float(row["value"]), digits, is_signed=True),
        )
        for row, name, metric, ours, digits in compared
        if ours
    ]
