"""The paper's own numbers next to ours, on a real corpus only.

Source: arXiv 2605.20388 (`trajpilot_core/paper/tables`); no intervals, one seed.
"""

import math
from dataclasses import dataclass

from schemas.config import ReportConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.methods import METHODS, method
from trajpilot_core.paper.published import PublishedTable, TablePlace, published_anticipation, published_of
from trajpilot_core.report.tables.groups import POOLED
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


def published_for(results: Results, cfg: ReportConfig) -> PublishedTable | None:
    """Return what the paper prints of the corpus and vocabulary of a run, of the rows that this project has too.

    None for a simulated corpus, another one, another vocabulary, or released features, which are not the paper's.
    """
    corpus = _recorded(results, cfg)
    return None if corpus is None else _of_rows(published_of(corpus, is_closed=cfg.is_closed))


def anticipation_for(results: Results, cfg: ReportConfig) -> PublishedTable | None:
    """Return what the paper prints of anticipation and goal dropout.

    None where no row of the run anticipates, and as in `published_for`.
    """
    corpus = _recorded(results, cfg)
    if corpus is None or not any(method(variant).anticipates for variant in results.variants()):
        return None
    return _of_rows(published_anticipation(corpus, is_closed=cfg.is_closed))


def _recorded(results: Results, cfg: ReportConfig) -> str | None:
    """Return the corpus that the run names where all takes are recordings of it, with encoded videos; else None."""
    if cfg.corpus is None or cfg.released is not None:
        return None
    return cfg.corpus if {m.corpus for m in results.metrics} == {spec_of(cfg.corpus).ids} else None


def _of_rows(found: PublishedTable | None) -> PublishedTable | None:
    """Leave out rows that this project lacks."""
    if found is None:
        return None
    ours = {one.id for one in METHODS}
    return found._replace(values={key: value for key, value in found.values.items() if key[1] in ours})


def comparisons(results: Results, published: PublishedTable | None) -> list[PublishedComparison]:
    """Set every published value next to ours, where the run has one."""
    values = {} if published is None else published.values
    found = [_comparison(results, *key, value) for key, value in values.items()]
    return [row for row in found if row is not None]


def _comparison(
    results: Results, place: TablePlace, variant: str, metric: str, value: float
) -> PublishedComparison | None:
    """Set one published value next to ours; None where the run has none."""
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
