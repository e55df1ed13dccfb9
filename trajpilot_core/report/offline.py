"""Offline pages, their JSON and LaTeX: one HTML file with its style and pictures, without scripts and requests.

A page is a verdict, facts and a list of sections with tables and charts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import JsonValue

from schemas.base import Record
from schemas.results import Judgement
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.row_styles import page_rules
from trajpilot_core.report.drawing.sheets import svg
from trajpilot_core.report.tables import latex
from trajpilot_core.report.tables.table import Table, finite

FORMAT = 3
"""Version of the layout of report.json."""


def records(rows: Sequence[Record]) -> list[JsonValue]:
    """Return records as JSON values."""
    return [finite(row.model_dump(mode="json")) for row in rows]


def dump(value: JsonValue) -> bytes:
    """Serialise with sorted keys, so that equal reports have equal bytes."""
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def rendered(template: str, **context: object) -> Markup:
    """Render a template, in which every text of the data is escaped and no script may run."""
    environment = Environment(
        loader=PackageLoader("trajpilot_core.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return Markup(environment.get_template(template).render(style=Markup(page_rules()), **context))


@dataclass(frozen=True)
class Section:
    """Tables and charts under one heading."""

    id: str
    title: str
    tables: Sequence[Table] = ()
    charts: Sequence[Sequence[Chart]] = ()
    """Each group is one figure with one legend."""
    text: str = ""
    n_open: int = 1
    """Number of tables, from the first on, that are not folded."""
    body: str = ""
    """Further content below the tables, as Markup."""


@dataclass(frozen=True)
class Page:
    """A page of sections."""

    title: str
    banner: str
    """Notice at the top of the page; empty for none."""
    sections: Sequence[Section]
    facts: Sequence[str] = ()
    verdict: str = ""
    """The answer of the run in a sentence or two; empty where there is none."""
    is_simulated: bool = False
    question: str = ""
    """What the verdict answers; empty where it needs no question."""
    state: str = ""
    """`helps` or `hurts` colours the verdict."""
    alarm: str = ""
    """Reason not to rely on the page; empty for none."""
    opening: Section | None = None
    """A chart next to a table, on the first screen."""
    checked: Sequence[tuple[str, str]] = ()
    """(`ok`, `mixed` or `open`, text) of each group of checks, on the first screen."""

    def html(self) -> bytes:
        """Render the page; every text is escaped, no request leaves it, and no script may run."""
        return rendered("document.html.j2", page=self, svg=svg).encode()

    def documents(
        self, names: tuple[str, str, str], tables: Sequence[Table], note: str, /, **content: JsonValue
    ) -> dict[str, bytes]:
        """Return the page, its JSON and its LaTeX.

        Args:
            names: of the three documents.
            tables: those of the LaTeX file.
            note: what the numbers are measured on, part of every caption in LaTeX.
            content: what the JSON has next to title, verdict and facts; infinite numbers become null.
        """
        head: dict[str, JsonValue] = {
            "title": self.title,
            "simulated": self.is_simulated,
            "verdict": self.verdict,
            "facts": [*self.facts],
        }
        written = dump(finite({**head, **content}))
        return dict(zip(names, (self.html(), written, latex.document(tables, note).encode()), strict=True))


def checks_section(judgements: Sequence[Judgement]) -> Section:
    """Return what a stage checked of itself."""
    return Section("checks", "Checks", (checks_table("Checks", judgements),))


def checks_table(title: str, judgements: Sequence[Judgement]) -> Table:
    """Return checks with their verdicts."""
    rows = tuple((judgement.check, judgement.verdict, judgement.detail) for judgement in judgements)
    return Table(title, ("check", "verdict", "detail"), rows)
