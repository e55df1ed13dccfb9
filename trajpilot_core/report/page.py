"""The HTML page: one offline file with its style, script, charts and pictures inside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.results import GateRow, Headroom, Judgement
from trajpilot_core.methods import method
from trajpilot_core.report.drawing.legend import Chart, LegendItem
from trajpilot_core.report.gallery.frames import Thumbnail
from trajpilot_core.report.gallery.paths import path_data, three_views
from trajpilot_core.report.gallery.windows import CLASSES, Example, GalleryWindows
from trajpilot_core.report.health import Count, Flow, Problem
from trajpilot_core.report.offline import render_offline
from trajpilot_core.report.tables.ceilings import Ceilings
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.names import DESCRIPTIONS, NOT_BUILT
from trajpilot_core.report.tables.published import PublishedComparison
from trajpilot_core.report.tables.results import ResultCell
from trajpilot_core.report.tables.table import number

SIGNS = {"holds": "✓", "fails": "✗", "undecided": "~", "undertrained": "!", "not run": "–"}
CEILING_SIGNS = {"below": "✓", "level": "~", "open": "–", "warn": "!", "broken": "✗"}
GATE_IDENTITY = "identity: overall gain = open rate"
OTHER = "Other checks"
GROUPS = {
    "demo": "What the demo must show",
    "claim": "The paper’s claims and our controls, as seen here",
    "trained": "Are the models trained?",
    "leak": "Nothing of the test was seen in training",
    "ceiling": "No row knows more than it can",
    "identity": "What holds by definition",
}


@dataclass(frozen=True)
class Page:
    """Everything that the page shows."""

    title: str
    simulated: bool
    facts: Sequence[tuple[str, str]]
    tables: Sequence[GroupedTable[ResultCell]]
    ceilings: Ceilings
    judgements: Sequence[Judgement]
    variants: Sequence[str]
    undertrained: frozenset[str]
    charts: Mapping[str, Sequence[Chart]]
    """Section -> charts of its figures."""
    main_legend: Sequence[LegendItem]
    gate: Sequence[GateRow]
    headroom: Sequence[Headroom]
    shuffles: str
    counts: Sequence[Count]
    flows: Sequence[Flow]
    problems: Sequence[Problem]
    published: Sequence[PublishedComparison]
    published_source: str
    drawn: GalleryWindows
    examples: Sequence[Example]
    thumbnails: Mapping[tuple[str, float], Thumbnail]
    frames_shown: bool
    gallery_seed: int
    capture_note: str
    limits: Sequence[str]
    absent_rows: str


def render(page: Page) -> bytes:
    """Render the page; every text from the data is escaped, and only our own script may run."""
    return render_offline(
        "report.html.j2",
        "report.js",
        page=page,
        data=path_data([example.paths for example in page.examples]),
        groups=judgement_groups(page.judgements),
        signs=SIGNS,
        rows=[method(variant) for variant in page.variants],
        descriptions=DESCRIPTIONS,
        classes=CLASSES,
        number=number,
        tables={table.id: table for table in page.tables},
        views=three_views,
        count=_count,
        not_built=NOT_BUILT,
        ceiling_signs=CEILING_SIGNS,
        identity=_identity(page.judgements),
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


def _identity(judgements: Sequence[Judgement]) -> Judgement | None:
    """Return the check that the gain of the gate is its open rate times the gain on the opened windows, if it ran."""
    return next((judgement for judgement in judgements if judgement.check.startswith(GATE_IDENTITY)), None)
