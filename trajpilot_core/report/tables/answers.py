"""How the answers of vision-language models were parsed, and the table of the recogniser of single segments.

Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

from collections.abc import Sequence

from schemas.vlm import EndpointScore, VlmCount
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.table import Table, Value
from trajpilot_core.vlm.score import STUB_ROW

STUB_NOTE = " STUB: these answers are made up for a test; no model was run."
ENDPOINTS = {
    "segments": "unique endpoints",
    "R@1": "R@1",
    "R@5": "R@5",
    "exact_projection": "text is a label of the bank",
    "fallback_projection": "nearest label by the text encoder",
    "failed": "not parsed",
}
"""Row of the table `endpoint_cache` -> its printed name."""
SEGMENTS = ": segments"
"""Suffix of the names of counts of single segments."""


def answer_tables(counts: Sequence[VlmCount], endpoints: Sequence[EndpointScore]) -> list[Table]:
    """Return the tables of answers and of recognised endpoints; empty where no model was queried."""
    return [*([_reading(counts)] if counts else []), *([_endpoints(endpoints)] if endpoints else [])]


def _reading(counts: Sequence[VlmCount]) -> Table:
    """Return a line for each row and horizon: how many answers and labels were parsed, and how."""
    lines = [
        (
            _name(one),
            str(one.horizon),
            f"{one.n_answers:,}",
            _share(one.n_failed, one.n_answers),
            _share(one.n_repaired, one.n_answers),
            f"{one.n_labels:,}",
            _share(one.n_exact, one.n_labels),
            _share(one.n_projected, one.n_labels),
            _share(one.n_blank, one.n_labels),
        )
        for one in counts
    ]
    header = ("row", "H", "answers", "failed", "repaired", "labels", "in the bank", "projected", "left open")
    note = (
        "Percent of the answers and of their labels. Failed: no JSON was found; counted as wrong at every step, never "
        "left out. Repaired: too long or too short, cut or filled. Projected: not in the bank, replaced by the nearest."
    )
    stub = STUB_NOTE if any(one.is_stub for one in counts) else ""
    return Table("How the answers of vision-language models were parsed", header, tuple(lines), note + stub)


def _endpoints(rows: Sequence[EndpointScore]) -> Table:
    """Return the recogniser's table in the paper's layout."""
    lines = [(ENDPOINTS[row.row], f"{row.count:,}", Value(row.percentage)) for row in rows]
    note = "Over the unique segments at the ends of the queried windows; answers that were not parsed count as wrong."
    stub = STUB_NOTE if any(row.is_stub for row in rows) else ""
    adapters = {row.adapter for row in rows if row.adapter}
    by = f"the tuned model {', '.join(adapters)}" if adapters else "an UNTUNED model"
    title = "Recognised endpoints" if stub else f"Endpoints as recognised by {by}"
    return Table(title, ("", "count", "percent"), tuple(lines), note + stub)


def _name(one: VlmCount) -> str:
    """Return the printed name of a row, or of its queries about single segments; a stub has its own name."""
    row = one.variant.removesuffix(SEGMENTS)
    name = row_name(STUB_ROW if one.is_stub and row != one.variant else row)
    return f"{name}, single segments" if row != one.variant else name


def _share(part: int, whole: int) -> Value | str:
    """Return a percentage; a dash where the total is zero."""
    return Value(100 * part / whole) if whole else "–"
