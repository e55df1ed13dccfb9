"""kNN-labels: a weighted vote of the retrieved windows' labels, without any trajectory (D 47)."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def votes(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, V): the weight of the candidates that have each label at each step; sums to 1, or 0 for none."""
    from trajpilot_core.retrieval.candidates import label_votes

    temperature = batch.ready().paper.decision.knn_temperature
    return label_votes(batch.candidates().found, batch.view.data, temperature)


def answer(batch: "WindowBatch") -> Answers:
    """Answer with the vote; with the fallback where nothing was retrieved."""
    import torch

    from trajpilot_core.methods.plans import RANKED, rank_plan
    from trajpilot_core.models.ranking import best

    fallback = rank_plan(batch.fallback, batch.view, batch.segments)
    ids, scores = best(votes(batch).flatten(0, 1), RANKED)
    some = batch.candidates().found.valid.any(1)[:, None, None]
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
