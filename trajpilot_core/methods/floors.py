"""Floors: rows without any model (docs/decisions/paper-gaps.md, D 51).

Axes: B windows of one horizon H, V labels, R ranked answers.
"""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import RANKED, Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.retrieval.bank import ChainView


def label_order(view: "ChainView") -> "tuple[Tensor, Tensor]":
    """Return the RANKED + 1 most frequent middle labels of the fitted windows and their shares; ties by smaller index.

    Returns:
        Long labels and float32 shares, both of shape (min(RANKED + 1, V),), most frequent first.
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
    ceiling=None,
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
    ceiling="no_traj",
    role="floor",
    models=(),
    answer=majority_answers,
    style=RowStyle("none", "#b4bac2", "#555d67", dash="1.5 3"),
)
