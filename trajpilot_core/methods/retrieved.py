"""Rows without a learned choice: floors, Top-1, Pool-Mean and kNN-labels (docs/decisions/paper-gaps.md, D 51).

Axes: B windows of one horizon H, V labels, R ranked answers.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.methods.base import RANKED, Answers, Method, RowStyle
from trajpilot_core.methods.predictors import ranked_by

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.retrieval.bank import ChainView


def _nearest_answer(batch: "WindowBatch") -> Answers:
    from trajpilot_core.methods.plans import rank_plan, with_ends

    candidates = batch.candidates().found
    answers = rank_plan(with_ends(candidates, candidates.plans[:, 0]), batch.view, batch.segments)
    return replace(answers, window=candidates.window[:, 0])


def mean_plan(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, P): the mean plan of all candidates; the fallback where nothing was retrieved."""
    from trajpilot_core.methods.plans import with_ends
    from trajpilot_core.retrieval.candidates import pool_mean

    candidates, temperature = batch.candidates().found, batch.ready().paper.decision.pool_temperature
    return with_ends(candidates, pool_mean(candidates, temperature, batch.view.readout))


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
    ids, scores = best(votes(batch), RANKED)
    some = batch.candidates().found.valid.any(1)[:, None, None]
    return Answers(torch.where(some, ids, fallback.ids), torch.where(some, scores, fallback.scores))


POOL_MEAN = Method(
    id="pool_mean",
    name="Pool-Mean",
    knows="similarity-weighted mean of the plans of all candidates; nothing learned",
    sees="end_motion",
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
    role="control",
    models=("traj", "no_traj"),
    answer=_nearest_answer,
    against={"endpoint_traj": ""},
    follows="nearest retrieved",
    in_gallery=True,
    style=RowStyle("triangle", "#7a6212", "#cdb45a", dash="5 4"),
)


def label_order(view: "ChainView") -> "tuple[Tensor, Tensor]":
    """Return the most frequent middle labels of the fitted windows, long, and their shares, float32; ties by index.

    Both have shape (min(RANKED + 1, V),), most frequent first.
    """
    import torch

    from trajpilot_core.data.chains import fit_takes
    from trajpilot_core.models.ranking import best

    data = view.data
    takes, labels = fit_takes(data, view.chain), data.labels
    mids = [labels[w.segments[torch.isin(w.take, takes)][:, 1:-1]].flatten() for w in data.windows.values()]
    counts = torch.bincount(torch.cat(mids), minlength=len(data.bank)).float()
    ids, values = best((counts / counts.sum().clamp_min(1))[None], RANKED + 1)
    return ids[0], values[0]


def majority_answers(batch: "WindowBatch") -> Answers:
    """Answer every position with the most frequent middle labels of the fitted windows."""
    ids, shares = (values[:RANKED].expand(*batch.segments.shape, -1) for values in label_order(batch.view))
    return Answers(ids, shares)


def previous_answers(truth_BH: "Tensor", order: "tuple[Tensor, Tensor]") -> Answers:
    """Answer position t with the true label of t - 1, then the most frequent labels; position 0 as `majority`.

    It reads the truth one step late, which no other row does: a measure of what is trivial, not a method (D 51).
    """
    import torch

    ids, shares = order
    ranked = min(RANKED, len(ids))
    previous = truth_BH[:, :-1, None]
    repeated = (ids == previous).long()
    rest = repeated.argsort(dim=-1, stable=True)[..., : ranked - 1]
    others, other_shares = ids[rest], shares[rest]
    later = torch.cat([previous, others], dim=-1)
    later_scores = torch.cat([torch.ones_like(previous, dtype=shares.dtype), other_shares], dim=-1)
    first = [values[:ranked].expand(len(truth_BH), 1, -1) for values in order]
    return Answers(torch.cat([first[0], later], 1), torch.cat([first[1], later_scores], 1))


PREVIOUS = Method(
    id="previous",
    name="Previous",
    knows="repeats the TRUE label of the step before, which no planner knows; untrained floor that sees the truth, "
    "never bold",
    sees="truth",
    role="floor",
    models=(),
    answer=lambda batch: previous_answers(batch.view.data.labels[batch.segments], label_order(batch.view)),
    style=RowStyle("none", "#98a0aa", "#6d7681", dash="1.5 3"),
)
MAJORITY = Method(
    id="majority",
    name="Majority",
    knows="the most frequent training label; untrained floor",
    sees="ends",
    role="floor",
    models=(),
    answer=majority_answers,
    style=RowStyle("none", "#b4bac2", "#555d67", dash="1.5 3"),
)
