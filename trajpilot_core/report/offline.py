"""Offline pages, their JSON and LaTeX: one HTML file with its style, script and pictures, which makes no request.

A page that is only tables and charts is one `TablePage`. The report of a corpus with plans has a template of its own.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import JsonValue

from schemas.results import Judgement
from trajpilot_core.report import json_report
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.row_styles import page_rules
from trajpilot_core.report.tables.table import Table

REPORT = "trajpilot_core.report"


def render_offline(template: str, script: str, *, package: str = REPORT, style: str = "", **context: object) -> bytes:
    """Render a page; every text of the data is escaped, and only its own script may run."""
    files = resources.files(REPORT).joinpath("templates")
    code = files.joinpath(script).read_text(encoding="utf-8")
    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(
        policy=policy(code),
        style=Markup(files.joinpath("report.css").read_text(encoding="utf-8") + page_rules() + style),
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

    def json(self, **content: JsonValue) -> bytes:
        """Return title, verdict, facts and `content` as JSON; infinite numbers become null."""
        head: dict[str, JsonValue] = {
            "title": self.title,
            "simulated": self.is_simulated,
            "verdict": self.verdict,
            "facts": [*self.facts],
        }
        return json_report.dump(json_report.finite({**head, **content}))


def latex_file(tables: Sequence[Table], *notes: str) -> bytes:
    """Return tables as one LaTeX file with notes as comments at its top."""
    head = "".join(f"% {' '.join(note.split())}\n" for note in notes)
    return (head + "\n".join(table.latex() for table in tables)).encode()


def checks_table(judgements: Sequence[Judgement], title: str = "Checks", check: str = "check") -> Table:
    """Return what a stage checked of itself."""
    rows = tuple((judgement.check, judgement.verdict, judgement.detail) for judgement in judgements)
    return Table(title, (check, "verdict", "detail"), rows)
