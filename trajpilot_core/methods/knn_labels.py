"""kNN-labels: a weighted vote of the retrieved windows' labels, without any trajectory (D 47)."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def answer(batch: "WindowBatch") -> Answers:
    """Answer with the vote; with the fallback where nothing was retrieved."""
    import torch

    from trajpilot_core.methods.plans import RANKED, rank_plan
    from trajpilot_core.models.ranking import best
    from trajpilot_core.retrieval.candidates import label_votes

    found, temperature = batch.candidates().found, batch.ready().paper.decision.knn_temperature
    votes = label_votes(found, batch.view.data, temperature)
    fallback = rank_plan(batch.fallback, batch.view)
    ids, scores = best(votes.flatten(0, 1), RANKED)
    some = found.valid.any(1)[:, None, None]
    shape = fallback.ids.shape
    ids_BHR = torch.where(some, ids.view(shape), fallback.ids)
    return Answers(ids_BHR, torch.where(some, scores.view(shape), fallback.scores))


METHOD = Method(
    id="knn_labels",
    name="kNN-labels",
    knows="weighted vote of the candidates' labels; no trajectory",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("no_traj",),
    answer=answer,
    against={"endpoint_traj": ""},
    style=RowStyle("square", "#d55e00", "#ff8f45", dash="9 3 2 3"),
)
