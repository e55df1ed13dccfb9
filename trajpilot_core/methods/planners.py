"""SCHEMA, PDPP and ViterbiPlanNet, retrained on our features and windows; each also with scenario masks.

Rows of closed vocabularies: they are absent where the stage `planners` has trained nothing. Source: paper, 4.1;
docs/decisions/planners.md. Axes: B windows of one horizon H, A actions, R ranked answers.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from schemas.planners import PLANNERS, PlannerName
from trajpilot_core.methods.base import RANKED, Answers, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def by_planner(
    batch: "WindowBatch", method: PlannerName, *, masked: bool = False, ddpm: bool = False
) -> Answers | None:
    """Answer with a planner's own decoding, and the matching ranking; None where it was not trained."""
    from trajpilot_core.methods.planner_models import planned
    from trajpilot_core.models.ranking import best

    if batch.planners is None:
        return None
    plan = planned(batch.planners, method, batch.view.data, batch.segments, masked=masked, ddpm=ddpm)
    if plan is None:
        return None
    ids, scores = best(plan.scores, RANKED)
    return Answers(ids, scores.float(), decoded=plan.decoded)


def _row(planner: PlannerName, name: str, knows: str, style: RowStyle) -> Method:
    """Return the row of a planner with the decoding of its original."""
    return Method(
        id=planner,
        name=name,
        knows=knows,
        sees="ends",
        role="main",
        models=(planner,),
        has_model_per_horizon=True,
        answer=partial(by_planner, method=planner),
        against={"no_traj_no_prior": "beyond our predictor without transitions", "graph_only": "beyond the graph"},
        in_gallery=True,
        style=style,
    )


def _masked(planner: PlannerName, row: Method) -> Method:
    """Return the row of the same planner that answers only labels seen in training for the scenario of the take."""
    return replace(
        row,
        id=f"{planner}_masked",
        name=f"{row.name}, masked",
        knows=f"as {row.name}, and the scenario of the take: only its labels are answered",
        role="ablation",
        part_of=planner,
        in_gallery=False,
        answer=partial(by_planner, method=planner, masked=True),
        style=RowStyle(row.style.mark, "#2a7f9e", "#7fc8e8", dash="5 2"),
    )


SCHEMA = _row(
    "schema",
    "SCHEMA",
    "features of Start and Goal, sentences about states, transitions of the training takes",
    RowStyle("triangle", "#7b3f00", "#d9a066"),
)
PDPP = _row(
    "pdpp",
    "PDPP",
    "features of Start and Goal; a plan is one sample of a diffusion",
    RowStyle("square", "#4a4e9a", "#a3a6e8"),
)
VITERBI_PLAN_NET = _row(
    "viterbi_plan_net",
    "ViterbiPlanNet",
    "features of Start and Goal, transitions of the training takes inside the model",
    RowStyle("diamond", "#2f6f3e", "#86c794"),
)
DDPM = replace(
    PDPP,
    id="pdpp_ddpm",
    name="PDPP, DDPM",
    knows="as PDPP; the sample is made with DDPM at all times of the diffusion",
    role="ablation",
    part_of=PDPP.id,
    in_gallery=False,
    answer=partial(by_planner, method="pdpp", ddpm=True),
    style=RowStyle(PDPP.style.mark, "#c2601c", "#ffb080", dash="1 3"),
)
"""Absent where `PlannersConfig.answers_ddpm` is off."""
PLAIN = (SCHEMA, PDPP, VITERBI_PLAN_NET)
ROWS: list[Method] = [*PLAIN, *(_masked(planner, row) for planner, row in zip(PLANNERS, PLAIN, strict=True)), DDPM]
