"""The HTML page of a corpus with plans: one offline file with its style, script, charts and pictures inside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.config import CompletedReport
from schemas.results import Judgement
from trajpilot_core.methods import examined, method
from trajpilot_core.report import health
from trajpilot_core.report.figures import report_charts
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.figures.rows import main_legend
from trajpilot_core.report.gallery.classes import CLASSES, GalleryWindows
from trajpilot_core.report.gallery.pictures import Thumbnail, path_data, three_views
from trajpilot_core.report.gallery.windows import Example, best_example
from trajpilot_core.report.loaded import (
    Loaded,
    capture_note,
    mask_sentence,
    sampling_sentence,
    shuffle_sentence,
)
from trajpilot_core.report.offline import render_offline
from trajpilot_core.report.tables import published
from trajpilot_core.report.tables.ceilings import Ceilings
from trajpilot_core.report.tables.diagnostics import answer_tables, diagnostics_tables
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.names import LEGEND, descriptions
from trajpilot_core.report.tables.published import pool_comparisons
from trajpilot_core.report.tables.results import ResultCell, Results, absent_rows
from trajpilot_core.report.tables.table import Table, number
from trajpilot_core.report.verdict import DerivedVerdict, story_of

SIGNS = {
    "holds": "✓",
    "fails": "✗",
    "undecided": "~",
    "undertrained": "!",
    "not run": "–",
}
CEILING_SIGNS = {"below": "✓", "level": "~", "open": "–", "warn": "!", "broken": "✗"}
GATE_IDENTITY = "identity: overall gain = open rate"
OTHER = "Other checks"
GROUPS = {
    "demo": "What the demo must show",
    "trained": "Do models and rows count as trained?",
    "leak": "No test data was seen in training",
    "ceiling": "No row knows more than it can",
    "identity": "Identities that hold by definition",
}


@dataclass(frozen=True)
class Page:
    """The data of all documents of a report."""

    loaded: Loaded
    results: Results
    cfg: CompletedReport
    title: str
    facts: Sequence[tuple[str, str]]
    verdict: DerivedVerdict
    tables: Sequence[GroupedTable[ResultCell]]
    settings: Table | None
    """Hyperparameters of class heads."""
    ceilings: Ceilings
    limits: Sequence[str]
    drawn: GalleryWindows
    examples: Sequence[Example]
    thumbnails: Mapping[tuple[str, float], Thumbnail]


def render(page: Page) -> bytes:
    """Render the page; every text from the data is escaped, and only our own script may run."""
    loaded, results = page.loaded, page.results
    printed = published.published_for(results, page.cfg)
    ahead = published.anticipation_for(results, page.cfg)
    material = Material(results, loaded.ceilings, loaded.gate, loaded.headroom, loaded.curves)
    return render_offline(
        "report.html.j2",
        "report.js",
        page=page,
        question=story_of(results.variants()).question,
        has_retrieval=any(method(row).follows for row in results.variants()),
        charts=report_charts(material),
        legend_of_mark=LEGEND if results.undertrained else "",
        main_legend=main_legend(material),
        shuffles=shuffle_sentence(loaded.shuffles),
        samplings=sampling_sentence(loaded.samplings),
        masks=mask_sentence(loaded.mask_coverage),
        capture_note=capture_note(loaded.metrics),
        counts=health.counts(loaded.takes, loaded.segments, loaded.windows),
        flows=health.flows(loaded.outputs, loaded.rejects),
        problems=health.problems(loaded.rejects),
        published=[
            *published.comparisons(results, printed),
            *published.comparisons(results, ahead),
            *pool_comparisons(loaded.gate, loaded.headroom, page.cfg, is_recorded=printed is not None),
        ],
        published_source="; ".join(table.source for table in (printed, ahead) if table),
        diagnostics=diagnostics_tables(
            loaded.pair_distances, loaded.progress_shares, page.cfg, is_recorded=printed is not None
        ),
        answers=answer_tables(loaded.vlm_counts, loaded.endpoint_scores),
        absent_rows=absent_rows(results),
        data=path_data([example.paths for example in page.examples]),
        groups=judgement_groups(loaded.judgements),
        signs=SIGNS,
        rows=[method(variant) for variant in results.variants()],
        descriptions=descriptions(),
        classes=CLASSES,
        gallery_row=method(page.drawn.row) if page.drawn.row else None,
        examined_name=examined().name,
        best=best_example(page.examples),
        number=number,
        tables={table.id: table for table in page.tables},
        views=three_views,
        count=_count,
        ceiling_signs=CEILING_SIGNS,
        identity=next((j for j in loaded.judgements if j.check.startswith(GATE_IDENTITY)), None),
    )


def _count(value: int) -> str:
    """Print a count with thin spaces."""
    return f"{value:,}".replace(",", "\u202f")


def judgement_groups(judgements: Sequence[Judgement]) -> list[tuple[str, list[tuple[str, Judgement]]]]:
    """Return (title, [(text, judgement)]) per group of checks, in the order of the page."""
    grouped = []
    for prefix, title in GROUPS.items():
        inside = [(j.check.split(": ", 1)[1], j) for j in judgements if j.check.startswith(f"{prefix}: ")]
        if inside:
            grouped.append((title, inside))
    rest = [(j.check, j) for j in judgements if j.check.split(": ")[0] not in GROUPS]
    return grouped + ([(OTHER, rest)] if rest else [])
