"""Offline pages: one HTML file with its style, script and pictures inside, that requests nothing."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.row_styles import page_rules
from trajpilot_core.report.tables.table import Table

REPORT = "trajpilot_core.report"


def render_offline(template: str, script: str, *, package: str = REPORT, style: str = "", **context: object) -> bytes:
    """Render a page; every text of the data is escaped, and only its own script may run."""
    files = resources.files(REPORT).joinpath("templates")
    code = files.joinpath(script).read_text()
    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template(template).render(
        policy=policy(code),
        style=Markup(files.joinpath("report.css").read_text() + page_rules() + style),
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


def render_document(title: str, banner: str, facts: Sequence[str], sections: Sequence[Section]) -> bytes:
    """Render the page; every text is escaped, no request leaves it, and only its own script may run.

    Args:
        banner: what must be read before all else.
        sections: in the order of the page.
    """
    shown = [replace(one, tables=tuple(table.said_once() for table in one.tables)) for one in sections]
    return render_offline("document.html.j2", "document.js", title=title, banner=banner, facts=facts, sections=shown)
