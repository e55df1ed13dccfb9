"""Lines that several labels share: rows of methods, alone or once for each horizon."""

from collections.abc import Mapping, Sequence
from itertools import product

from trajpilot_core.paper.published import HORIZONS
from trajpilot_core.report.tables.groups import row_name
from trajpilot_core.studies.paper_tables.base import Line

PRINTED: Mapping[str, str] = {
    "qwen_zs": "Qwen zero-shot",
    "qwen_sft_llm": "Qwen tuned + LLM",
    "qwen_llm_untuned": "Qwen UNTUNED + LLM",
    "visual_only_probe": "Visual-only attentive probe",
    "attentive_probe": "Attentive probe",
    "anticipation_qwen_zs": "Qwen zero-shot",
    "anticipation_qwen_sft_llm": "Qwen tuned + LLM",
    "anticipation_qwen_llm_untuned": "Qwen UNTUNED + LLM",
    "anticipation_no_traj": "No-Traj",
    "anticipation_scorer": "Scorer",
    "anticipation_oracle": "Oracle",
}
"""Row -> its name in the paper's tables, where ours is longer or there is none."""
ATOMIC_ROWS = ("qwen_zs", "qwen_sft_llm", "no_traj", "scorer", "oracle")
"""Rows of the paper's tables of atomic actions, in their order."""
UNTUNED = "qwen_llm_untuned"
"""Printed below them where a run has it; it is not in the paper."""


def printed(row: str) -> str:
    """Return the printed name of a row."""
    return PRINTED.get(row, row_name(row))


def of_methods(rows: Sequence[str]) -> tuple[Line, ...]:
    """Return a line for each row."""
    return tuple(Line((printed(row),), row) for row in rows)


def of_each_horizon(rows: Sequence[str]) -> tuple[Line, ...]:
    """Return a line for each row of each horizon; the horizon is printed once."""
    return tuple(Line((str(h) if row == rows[0] else "", printed(row)), row, h) for h, row in product(HORIZONS, rows))


def further_of(row: str) -> tuple[Line, ...]:
    """Return a line for each horizon of a row that is printed below the others."""
    return tuple(Line((str(h), printed(row)), row, h) for h in HORIZONS)


def rules_of(rows: Sequence[str]) -> tuple[int, ...]:
    """Return the lines above which a new horizon begins."""
    return tuple(range(len(rows), len(rows) * len(HORIZONS), len(rows)))
