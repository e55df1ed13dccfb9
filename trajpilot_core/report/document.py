"""A page of tables and charts as one offline HTML file; a box filters the tables by their captions and rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trajpilot_core.report.drawing.legend import Chart
from trajpilot_core.report.drawing.row_styles import page_rules
from trajpilot_core.report.page import policy
from trajpilot_core.report.table import Table


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
        title: of the page.
        banner: what must be read before all else.
        facts: lines below the title.
        sections: in the order of the page.
    """
    files = resources.files("trajpilot_core.report").joinpath("templates")
    style, script = (files.joinpath(name).read_text() for name in ("report.css", "document.js"))
    style += page_rules()
    environment = Environment(
        loader=PackageLoader("trajpilot_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("document.html.j2").render(
        title=title,
        banner=banner,
        facts=facts,
        sections=sections,
        policy=policy(script),
        style=Markup(style),
        script=Markup(script),
    )
    return text.encode()
