"""The paper's gate-then-rank Scorer (paper, 3.5), and its ablations (docs/decisions/scorer.md).

Axes: B windows of one horizon H.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from schemas.training import Ablation
from trajpilot_core.methods.base import SCORER_MODELS, Answers, Gate, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.retrieval.bank import ChainView
    from trajpilot_core.retrieval.candidates import Candidates
    from trajpilot_core.training.scorer import Queries
    from trajpilot_core.training.scorer_fit import ReadyScorer

DECIDE_BATCH = 512


def scorer_answers(view: "ChainView", candidates: "Candidates", queries: "Queries", ready: "ReadyScorer") -> Answers:
    """Answer with the highest-ranked candidate where the gate opens, else with the fallback."""
    import torch

    from trajpilot_core.methods.plans import rank_plan, with_ends
    from trajpilot_core.training.scorer import decide

    gate, choice = decide(ready.scorer, queries, DECIDE_BATCH)
    threshold = ready.decision.threshold
    opened = (gate >= threshold) & candidates.valid.any(1)
    here = torch.arange(len(choice), device=choice.device)
    candidate = with_ends(candidates, candidates.plans[here, choice])
    answers = rank_plan(torch.where(opened[:, None, None], candidate, candidates.fallback), view, candidates.segments)
    window = torch.where(opened, candidates.window[here, choice], -1)
    return replace(answers, gate=gate, opened=opened, threshold=threshold, window=window)


def answer(batch: "WindowBatch") -> Answers:
    """Answer with the Scorer."""
    retrieved = batch.candidates()
    return scorer_answers(batch.view, retrieved.found, retrieved.queries, batch.ready().paper)


def _permuted_answers(batch: "WindowBatch") -> Answers:
    from trajpilot_core.training.scorer import queries_of

    strangers = batch.candidates().strangers
    queries = queries_of(batch.view, strangers, batch.ready().config, with_truth=False)
    return scorer_answers(batch.view, strangers, queries, batch.ready().paper)


def without(batch: "WindowBatch", ablation: Ablation) -> Answers | None:
    """Answer with the Scorer that was trained without a part; None where there is none."""
    retrieved, ready = batch.candidates(), batch.ready().ablated.get(ablation)
    return None if ready is None else scorer_answers(batch.view, retrieved.found, retrieved.queries, ready)


SCORER = Method(
    id="scorer",
    name="Scorer",
    knows="endpoint motion, and the middle motion of one retrieved training window, or the No-Traj answer where the "
    "gate stays closed",
    sees="end_motion",
    role="main",
    models=SCORER_MODELS,
    answer=answer,
    against={
        "no_traj": "the whole gain",
        "endpoint_traj": "beyond its own motion during Start and Goal",
        "scorer_permuted": "what the own motion of a candidate adds",
        "scorer_no_labels": "what reading the candidates' labels adds",
        "scorer_no_motion": "what reading their motion, and the plans under it, adds",
        "knn_labels": "beyond a vote of the candidates' labels",
        "pool_mean": "beyond averaging all plans instead of choosing one",
        "oracle": "",
    },
    gate=Gate("a retrieved trajectory was trusted"),
    follows="chosen by the scorer",
    in_gallery=True,
    plans=1,
    style=RowStyle("square", "#0072b2", "#56b4e9"),
)
PERMUTED = replace(
    SCORER,
    id="scorer_permuted",
    name="Scorer, permuted",
    knows="as Scorer, but every candidate has the middle motion of another training window",
    role="ablation",
    answer=_permuted_answers,
    against={},
    part_of="scorer",
    follows=None,
    in_gallery=False,
    plans=None,
    style=RowStyle("triangle", "#17818c", "#9fe0d0", dash="6 2.5"),
)
NO_LABELS = replace(
    PERMUTED,
    id="scorer_no_labels",
    name="Scorer, no labels",
    knows="as Scorer, trained without the candidates' labels",
    models=(*SCORER_MODELS, "scorer_no_labels"),
    answer=partial(without, ablation="no_labels"),
    style=RowStyle("circle", "#4b3fae", "#a79cf5", dash="3 2"),
)
NO_MOTION = replace(
    PERMUTED,
    id="scorer_no_motion",
    name="Scorer, no motion",
    knows="as Scorer, trained without the candidates' motion and the plans under it",
    models=(*SCORER_MODELS, "scorer_no_motion"),
    answer=partial(without, ablation="no_motion"),
    style=RowStyle("diamond", "#a15c00", "#e0a560", dash="9 2 2 2 2 2"),
)
