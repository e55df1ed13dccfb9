"""Scorer+, ours: what the training takes know, weighed by the query (docs/decisions/scorer-plus.md).

Axes: B windows of one horizon H.
"""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import SCORER_MODELS, Answers, Gate, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import ReadyPlus, WindowBatch
    from trajpilot_core.retrieval.bank import ChainView
    from trajpilot_core.retrieval.candidates import Candidates


def plus_answers_of(view: "ChainView", found: "Candidates", plus: "ReadyPlus") -> Answers:
    """Answer with Scorer+ where its expected gain over the fallback reaches the threshold, else with the fallback."""
    import torch

    from trajpilot_core.methods.plans import RANKED, rank_plan
    from trajpilot_core.models.ranking import best
    from trajpilot_core.training.scorer_plus import plus_answers, plus_queries

    queries = plus_queries(plus.source, found)
    fallback = rank_plan(found.fallback, view)
    parts = list(plus_answers(plus.scorer, queries, plus.source.statistics))
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
    return None if plus is None else plus_answers_of(batch.view, batch.candidates().found, plus)


METHOD = Method(
    id="scorer_plus",
    name="Scorer+ (ours)",
    knows="endpoint motion, and labels and motion of all training takes with learned weights",
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
    plans=0,
    style=RowStyle("plus", "#8b1a2b", "#ff8a94", width=2.6),
)
