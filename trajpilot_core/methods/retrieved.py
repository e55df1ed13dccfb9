"""Top-1, Pool-Mean and kNN-labels: rows that use the retrieved windows without a learned choice among them."""

from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.methods.base import RANKED, Answers, Method, RowStyle
from trajpilot_core.methods.predictors import ranked_by

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def nearest_answer(batch: "WindowBatch") -> Answers:
    """Predict with the motion of the first candidate."""
    from trajpilot_core.methods.plans import rank_plan, with_ends

    found = batch.candidates().found
    answers = rank_plan(with_ends(found, found.plans[:, 0]), batch.view, batch.segments)
    return replace(answers, window=found.window[:, 0])


def mean_plan(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, P): the mean plan of all candidates; the fallback where nothing was retrieved."""
    from trajpilot_core.methods.plans import with_ends
    from trajpilot_core.retrieval.candidates import pool_mean

    found, temperature = batch.candidates().found, batch.ready().paper.decision.pool_temperature
    return with_ends(found, pool_mean(found, temperature, batch.view.readout))


def votes(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, V): weight of the candidates that have each label at each step; sums to 1, or to 0 without any."""
    from trajpilot_core.retrieval.candidates import label_votes

    temperature = batch.ready().paper.decision.knn_temperature
    return label_votes(batch.candidates().found, batch.view.data, temperature)


def vote_answer(batch: "WindowBatch") -> Answers:
    """Answer with the vote; with the fallback where nothing was retrieved."""
    import torch

    from trajpilot_core.methods.plans import rank_plan
    from trajpilot_core.models.ranking import best

    fallback = rank_plan(batch.fallback, batch.view, batch.segments)
    ids, scores = best(votes(batch).flatten(0, 1), RANKED)
    some = batch.candidates().found.valid.any(1)[:, None, None]
    shape = fallback.ids.shape
    ids_BHR = torch.where(some, ids.view(shape), fallback.ids)
    return Answers(ids_BHR, torch.where(some, scores.view(shape), fallback.scores))


POOL_MEAN = Method(
    id="pool_mean",
    name="Pool-Mean",
    knows="similarity-weighted mean of the plans of all candidates; nothing learned",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("traj", "no_traj"),
    answer=ranked_by(mean_plan),
    against={"endpoint_traj": ""},
    style=RowStyle("circle", "#b8508a", "#e58fbd", dash="9 3 2 3"),
)
KNN_LABELS = Method(
    id="knn_labels",
    name="kNN-labels",
    knows="weighted vote of the candidates' labels; no trajectory",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("no_traj",),
    answer=vote_answer,
    against={"endpoint_traj": ""},
    style=RowStyle("square", "#d55e00", "#ff8f45", dash="9 3 2 3"),
)
"""Source: D 47."""
TOP1 = Method(
    id="top1",
    name="Top-1",
    knows="the middle motion of the nearest candidate, always",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("traj", "no_traj"),
    answer=nearest_answer,
    against={"endpoint_traj": ""},
    follows="nearest retrieved",
    in_gallery=True,
    style=RowStyle("triangle", "#7a6212", "#cdb45a", dash="5 4"),
)
