"""Retrieval attention: a causal predictor whose tokens read retrieved training windows, and what it is without a part.

Two by two: head motion of the query's ends given or not, that of the retrieved windows given or not, and one row that
retrieves nothing; equal parameters and steps (docs/decisions/retrieval-attention.md).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.training import AttentionVariant
from trajpilot_core.data.cross_fitting import ATTENTION, attention_row
from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def plan_of(row: str) -> "Callable[[WindowBatch], Tensor | None]":
    """Return what plans (B, H, E) for a row; None where the run has not trained it."""
    return lambda batch: batch.attention_plans.get(row)


def answer_of(row: str) -> "Callable[[WindowBatch], Answers | None]":
    """Return how a row answers: labels ranked by its plan."""

    def answer(batch: "WindowBatch") -> Answers | None:
        from trajpilot_core.methods.plans import rank_plan

        plan_BHE = plan_of(row)(batch)
        return None if plan_BHE is None else rank_plan(plan_BHE, batch.view, batch.segments)

    return answer


METHOD = Method(
    id=ATTENTION,
    name="Retrieval attention",
    knows="its own head motion during Start and Goal, and labels and head motion of retrieved training windows",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="main",
    models=(ATTENTION,),
    answer=answer_of(ATTENTION),
    against={
        attention_row("query_motion"): "what the retrieved windows' head motion adds, its own motion given",
        attention_row("alone"): "what retrieval adds",
        "endpoint_traj": "beyond the paper's predictor under its own motion during Start and Goal",
        "hmm_motion": "beyond transitions and looks, fitted in closed form",
    },
    in_gallery=True,
    style=RowStyle("cross", "#9000d8", "#c060ff", dash="10 2 2 2"),
)


def variant_row(variant: AttentionVariant, name: str, lacks: str, style: RowStyle) -> Method:
    """Return the row of a variant; it was trained like the main row, but for what it is not given."""
    row = attention_row(variant)
    return replace(
        METHOD,
        id=row,
        name=f"Retrieval attention, {name}",
        knows=f"as Retrieval attention, trained without {lacks}",
        role="ablation",
        models=(row,),
        answer=answer_of(row),
        against={},
        part_of=ATTENTION,
        in_gallery=False,
        style=style,
    )


VARIANT_ROWS: list[Method] = [
    variant_row(
        "query_motion",
        "its own motion",
        "the head motion of retrieved windows",
        RowStyle("circle", "#a3455a", "#f0a0b0", "2 2"),
    ),
    replace(
        variant_row(
            "retrieved_motion",
            "retrieved motion",
            "its own head motion",
            RowStyle("square", "#2a7f9e", "#7fc8e8", "5 2"),
        ),
        sees="ends",
        ceiling="no_traj",
        against={attention_row("no_motion"): "what the retrieved windows' head motion adds, its own motion not given"},
    ),
    replace(
        variant_row(
            "no_motion",
            "no motion",
            "any head motion: it reads labels of retrieved windows",
            RowStyle("triangle", "#8a6d00", "#e0c060", "8 2"),
        ),
        sees="ends",
        ceiling="no_traj",
    ),
    replace(
        variant_row("alone", "no retrieval", "retrieved windows", RowStyle("plus", "#c2601c", "#ffb080", "2 4")),
        against={"endpoint_traj": "beyond the paper's predictor: the state of E_tau before its head"},
    ),
]
