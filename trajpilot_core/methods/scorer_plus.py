"""Scorer+, ours, and the same without each of its parts (docs/decisions/scorer-plus.md, methods.md).

A structured non-parametric planner: the raw motion of both ends and the label sequences of all training takes, weighed
by the query. No ablation is trained again; `methods.plus_parts` says what is switched off.
Axes: B windows of one horizon H.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.training import PlusPart
from trajpilot_core.methods.base import SCORER_MODELS, Answers, Gate, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.methods.plus_parts import ReadyPlus
    from trajpilot_core.retrieval.bank import ChainView
    from trajpilot_core.retrieval.candidates import Candidates
    from trajpilot_core.training.scorer_plus import PlusQueries


def plus_answers_of(
    view: "ChainView", found: "Candidates", plus: "ReadyPlus", queries: "PlusQueries | None" = None
) -> Answers:
    """Answer with Scorer+ where its expected gain over the fallback reaches the threshold, else with the fallback.

    Args:
        view: the final chain.
        found: candidates of B windows.
        plus: Scorer+, whole or without a part.
        queries: the same windows as it reads them; None: they are made.
    """
    import torch

    from trajpilot_core.methods.plans import RANKED, rank_plan
    from trajpilot_core.models.ranking import best
    from trajpilot_core.training.scorer_plus import plus_answers, plus_queries

    queries = plus_queries(plus.source, found) if queries is None else queries
    fallback = rank_plan(found.fallback, view, found.segments)
    parts = list(plus_answers(plus.scorer, queries, plus.known))
    ranked = [best(part.probability.flatten(0, 1), RANKED) for part in parts]
    ids, scores = (torch.cat([part[i] for part in ranked]).view(fallback.ids.shape) for i in (0, 1))
    gain, decoded = torch.cat([part.gain for part in parts]), torch.cat([part.decoded for part in parts])
    threshold = plus.decision.threshold
    opened = gain >= threshold
    return Answers(
        torch.where(opened[:, None, None], ids, fallback.ids),
        torch.where(opened[:, None, None], scores, fallback.scores),
        gate=gain,
        opened=opened,
        threshold=threshold,
        window=torch.full_like(found.take, -1),
        decoded=torch.where(opened[:, None], decoded, fallback.ids[:, :, 0]),
        opened_scores="probability",
    )


def answer(batch: "WindowBatch") -> Answers | None:
    """Answer with Scorer+; None where it was not trained."""
    plus = batch.ready().plus
    return None if plus is None else plus_answers_of(batch.view, batch.candidates().found, plus, batch.plus_queries)


def without(part: PlusPart) -> "Callable[[WindowBatch], Answers | None]":
    """Return how Scorer+ answers with a part switched off; None where the evaluation was not asked for it."""

    def ablated(batch: "WindowBatch") -> Answers | None:
        plus = batch.ready().plus_without.get(part)
        if plus is None:
            return None
        queries = batch.plus_queries if plus.source.moving else None
        return plus_answers_of(batch.view, batch.candidates().found, plus, queries)

    return ablated


METHOD = Method(
    id="scorer_plus",
    name="Scorer+",
    knows="ours, a structured non-parametric planner: the raw motion of both ends, and the label sequences of all "
    "training takes, with learned weights",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="main",
    models=(*SCORER_MODELS, "endpoint_traj", "scorer_plus"),
    answer=answer,
    against={
        "no_traj": "the whole gain",
        "endpoint_traj": "beyond what its own motion during Start and Goal tells",
        "scorer": "beyond choosing one candidate, as the paper does",
        "knn_labels": "beyond a vote of the candidates' labels",
        "pool_mean": "beyond weights that were not learned",
    },
    gate=Gate(
        "gain",
        "its own sequence stands",
        trusts="It weighs all retrieved windows and training takes together and trusts no single trajectory.",
    ),
    in_gallery=True,
    plans=0,
    style=RowStyle("plus", "#8b1a2b", "#ff8a94", width=2.6),
)


def part_row(part: PlusPart, lacks: str, style: RowStyle) -> Method:
    """Return the row of Scorer+ without a part; `lacks` says for people what it does without."""
    return replace(
        METHOD,
        id=f"scorer_plus_no_{part}",
        name=f"Scorer+, no {part}",
        knows=f"as Scorer+, {lacks}; switched off at answer time, nothing trained again",
        role="ablation",
        answer=without(part),
        against={"scorer_plus": ""},
        part_of="scorer_plus",
        in_gallery=False,
        plans=None,
        style=style,
    )


PART_ROWS: list[Method] = [
    part_row("manner", "but takes are not compared by head motion", RowStyle("circle", "#a3455a", "#f0a0b0", "2 2")),
    part_row("roles", "but no two labels share a role", RowStyle("square", "#2a7f9e", "#7fc8e8", "5 2")),
    part_row(
        "kinship", "but a take prefers only what it did itself", RowStyle("triangle", "#8a6d00", "#e0c060", "8 2")
    ),
    part_row(
        "coupling", "but no take has to explain a whole sequence", RowStyle("diamond", "#5a7d2a", "#a8d070", "2 4")
    ),
    part_row("retrieval", "but without the retrieved candidates' plans", RowStyle("plus", "#7a4fa0", "#c8a0f0", "5 4")),
    replace(
        part_row("motion", "but no head motion of the window is read", RowStyle("none", "#c2601c", "#ffb080", "8 4")),
        sees="ends",
        ceiling="no_traj",
    ),
]
