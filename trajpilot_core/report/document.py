"""A page of tables and charts as one offline HTML file; a box filters the tables by their captions and rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trajpilot_core.report.drawing.legend import Chart
from trajpilot_core.report.offline import render_offline
from trajpilot_core.report.tables.table import Table


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
