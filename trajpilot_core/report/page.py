"""The HTML page: one offline file with its style, script, charts and pictures inside."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import JsonValue

from schemas.results import GateRow, Headroom, Judgement
from trajpilot_core.methods import method
from trajpilot_core.methods.base import Method
from trajpilot_core.report.ceilings import Ceilings
from trajpilot_core.report.drawing.legend import Chart, LegendItem
from trajpilot_core.report.drawing.row_styles import page_rules
from trajpilot_core.report.frames import Thumbnail
from trajpilot_core.report.gallery import CLASSES, Example, GalleryWindows
from trajpilot_core.report.health import Count, Flow, Problem
from trajpilot_core.report.json_report import script_json
from trajpilot_core.report.names import DESCRIPTIONS, NOT_BUILT
from trajpilot_core.report.paths import three_views
from trajpilot_core.report.published import PublishedComparison
from trajpilot_core.report.tables import ResultTable, number

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
    tables: Sequence[ResultTable]
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
    files = resources.files("trajpilot_core.report").joinpath("templates")
    style, script = (files.joinpath(name).read_text() for name in ("report.css", "report.js"))
    style += page_rules()
    environment = Environment(
        loader=PackageLoader("trajpilot_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("report.html.j2").render(
        page=page,
        policy=policy(script),
        style=Markup(style),
        script=Markup(script),
        data=Markup(script_json(_path_data(page.examples))),
        groups=judgement_groups(page.judgements),
        signs=SIGNS,
        rows=_known_rows(page.variants),
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
    return text.encode()


def policy(script: str) -> str:
    """Return the content security policy: no request anywhere, and no script but the one with this digest."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _count(value: int) -> str:
    """Print a count with thin spaces."""
    return f"{value:,}".replace(",", "\u202f")


def _known_rows(variants: Sequence[str]) -> list[tuple[str, Method]]:
    """Return the rows of this run with what they know."""
    return [(variant, method(variant)) for variant in variants]


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


def _path_data(examples: Sequence[Example]) -> JsonValue:
    """Return the head paths for the optional 3-D drawing, rounded to a millimetre."""
    data: list[Any] = [
        [{"kind": path.kind, "points": path.points_m.round(3).tolist()} for path in example.paths]
        for example in examples
    ]
    return data
