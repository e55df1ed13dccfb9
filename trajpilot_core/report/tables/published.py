"""The paper's own numbers next to ours, on a real corpus only.

Source: arXiv 2605.20388 (`trajpilot_core/paper/tables`); no intervals, one seed.
"""

from collections.abc import Sequence

from schemas.config import CompletedReport
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.methods import method
from trajpilot_core.paper import published
from trajpilot_core.report.tables.results import Results
from trajpilot_core.report.tables.table import POOLED, Cell, Table, Value, marked, number, row_name

READING = "“outside” marks rows whose interval excludes the published value. The published numbers have no intervals."


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
            marked(row_name(variant), variant, results.undertrained),
            metric,
            Value(ours.value, ours.low, ours.high),
            f"{value:.2f}",
            number(ours.value - value, is_signed=True) + (" (outside)" if not ours.low <= value <= ours.high else ""),
        )
        for (place, variant, metric), value, ours in found
        if ours is not None
    ]


def published_table(rows: Sequence[tuple[Cell, ...]]) -> list[Table]:
    """Return the table of all comparisons; none without any."""
    header = ("H", "Method", "Metric", "ours", "published", "difference")
    return [Table("Published value next to ours", header, tuple(rows), READING)] if rows else []
