"""Pool-Mean: the similarity-weighted mean of all candidates' plans; nothing is learned."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def plan(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, P): the mean plan; the fallback where nothing was retrieved."""
    from trajpilot_core.methods.plans import with_ends
    from trajpilot_core.retrieval.candidates import pool_mean

    found, temperature = batch.candidates().found, batch.ready().paper.decision.pool_temperature
    return with_ends(found, pool_mean(found, temperature, batch.view.readout))


def answer(batch: "WindowBatch") -> Answers:
    """Rank the labels by the mean plan."""
    from trajpilot_core.methods.plans import rank_plan

    return rank_plan(plan(batch), batch.view, batch.segments)


METHOD = Method(
    id="pool_mean",
    name="Pool-Mean",
    knows="similarity-weighted mean of the plans of all candidates; nothing learned",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("traj", "no_traj"),
    answer=answer,
    against={"endpoint_traj": ""},
    style=RowStyle("circle", "#b8508a", "#e58fbd", dash="9 3 2 3"),
)
