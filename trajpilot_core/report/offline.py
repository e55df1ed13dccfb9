"""Offline pages, their JSON and LaTeX: one HTML file with its style, script and pictures, which makes no request.

A page that is only tables and charts is one `TablePage`. The report of a corpus with plans has a template of its own.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

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


def script_json(value: JsonValue) -> str:
    """Serialise for a <script type="application/json"> block: no character of it can end the block."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


REPORT = "trajpilot_core.report"


def render_offline(template: str, script: str, **context: object) -> bytes:
    """Render a page; every text of the data is escaped, and only its own script may run."""
    code = resources.files(REPORT).joinpath("templates", script).read_text(encoding="utf-8")
    environment = Environment(
        loader=PackageLoader(REPORT, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(
        policy=policy(code),
        style=Markup(page_rules()),
        script=Markup(code),
        **context,
    )
    return text.encode()


def policy(script: str) -> str:
    """Return the content security policy: no request anywhere, and no script but the one with this digest."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


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
        """Render the page; every text is escaped, no request leaves it, and only its own script may run."""
        shown = [replace(part, tables=tuple(table.said_once() for table in part.tables)) for part in self.sections]
        return render_offline("document.html.j2", "document.js", document=self, sections=shown)

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
