"""The labels of the paper, in the order in which paper.tex prints them: the only list.

A new label is one record, in a file here of its own or of its family; LaTeX, CSV, the page, paper.tex and
docs/reproduction.md follow.
"""

from collections.abc import Sequence

from trajpilot_core.report.tables.table import Table
from trajpilot_core.studies.paper_tables.base import PaperCell, PaperTable
from trajpilot_core.studies.paper_tables.labels import planning, scored

LABELS: dict[str, PaperTable] = {table.label: table for table in (*planning.TABLES, *scored.TABLES)}


def tables_of(cells: Sequence[PaperCell]) -> dict[str, Table]:
    """Return label -> its table, whatever was run."""
    return {label: table.table(cells) for label, table in LABELS.items()}
