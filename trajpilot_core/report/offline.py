"""Offline pages, their JSON and LaTeX: one HTML file with its style and pictures, without scripts and requests.

A page that is only tables and charts is one `TablePage`. The report of a corpus with plans has a template of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import JsonValue

from schemas.base import Record
from schemas.results import Judgement
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.row_styles import page_rules
from trajpilot_core.report.tables.table import Table, finite

FORMAT = 1
"""Version of the layout of report.json."""


def records(rows: Sequence[Record]) -> list[JsonValue]:
    """Return records as JSON values."""
    return [finite(row.model_dump(mode="json")) for row in rows]


def dump(value: JsonValue) -> bytes:
    """Serialise with sorted keys, so that equal reports have equal bytes."""
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


REPORT = "trajpilot_core.report"


def render_offline(template: str, **context: object) -> bytes:
    """Render a page; every text of the data is escaped, and no script may run."""
    environment = Environment(
        loader=PackageLoader(REPORT, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(style=Markup(page_rules()), **context).encode()


@dataclass(frozen=True)
class Section:
    """Tables and charts under one heading."""

    id: str
    title: str
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class TablePage:
    """A page of tables and charts."""

    title: str
    banner: str
    """Notice at the top of the page."""
    sections: Sequence[Section]
    facts: Sequence[str] = ()
    verdict: str = ""
    """The answer of the run in a sentence or two; empty where there is none."""
    is_simulated: bool = False

    def html(self) -> bytes:
        """Render the page; every text is escaped, no request leaves it, and no script may run."""
        shown = [replace(part, tables=tuple(table.said_once() for table in part.tables)) for part in self.sections]
        return render_offline("document.html.j2", document=self, sections=shown)

    def documents(
        self, names: tuple[str, str, str], tables: Sequence[Table], notes: Sequence[str], /, **content: JsonValue
    ) -> dict[str, bytes]:
        """Return the page, its JSON and its LaTeX.

        Args:
            names: of the three documents.
            tables: those of the LaTeX file.
            notes: comments at its top.
            content: what the JSON has next to title, verdict and facts; infinite numbers become null.
        """
        head: dict[str, JsonValue] = {
            "title": self.title,
            "simulated": self.is_simulated,
            "verdict": self.verdict,
            "facts": [*self.facts],
        }
        comments = "".join(f"% {' '.join(note.split())}\n" for note in notes)
        latex = comments + "\n".join(table.latex() for table in tables)
        written = dump(finite({**head, **content}))
        return dict(zip(names, (self.html(), written, latex.encode()), strict=True))


def checks_section(judgements: Sequence[Judgement]) -> Section:
    """Return what a stage checked of itself."""
    rows = tuple((judgement.check, judgement.verdict, judgement.detail) for judgement in judgements)
    return Section("checks", "Checks", (Table("Checks", ("check", "verdict", "detail"), rows),))
