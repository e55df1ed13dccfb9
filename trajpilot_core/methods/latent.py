"""Planning in the space of the video encoder: rows that the stage `latent_plans` answers (paper, 3.1 and 3.2).

All but No-Traj share one predictor; a separate classifier reads the labels.
Source: docs/decisions/latent-planning.md.
"""

from dataclasses import replace

from trajpilot_core.methods.base import Method, RowStyle

ENTRY = "latent_predictions"
NO_TRAJ_MODELS = ("plan_none", "latent_head")
MODELS = ("plan_trajectory", "latent_head")
NO_TRAJ = Method(
    id="latent_no_traj",
    name="Latent No-Traj",
    knows="predicts latents of the video encoder without any trajectory",
    sees="ends",
    role="control",
    models=NO_TRAJ_MODELS,
    predictions=ENTRY,
    style=RowStyle("circle", "#569690", "#c9b79f", dash="2 2.5"),
)
ORACLE = replace(
    NO_TRAJ,
    id="latent_oracle",
    name="Latent Oracle",
    knows="predicts latents under its own true head motion: a condition, not an upper bound",
    sees="all_motion",
    ceiling="oracle",
    models=MODELS,
    against={NO_TRAJ.id: ""},
    style=RowStyle("diamond", "#3c7a5d", "#8fd0b0"),
)
CEM = replace(
    NO_TRAJ,
    id="cem",
    name="CEM",
    knows="searches head motion whose predicted last middle latent is near the goal's",
    models=MODELS,
    against={NO_TRAJ.id: "what the search adds or takes away"},
    style=RowStyle("square", "#a33b3b", "#f09a9a"),
)
CEM_GOAL = replace(
    CEM,
    id="cem_goal",
    name="CEM, goal step",
    knows="the same; the goal's own step is predicted without seeing it, and compared with it",
    style=RowStyle("square", "#0b0bb8", "#7270c8", dash="5 2"),
)
CEM_BANK = replace(
    CEM,
    id="cem_bank",
    name="CEM-bank",
    knows="chooses by the energy of CEM among retrieved real head motions",
    style=RowStyle("triangle", "#b5651d", "#f0b47a"),
)
RANDOM_BANK = replace(
    CEM,
    id="random_bank",
    name="Random-bank",
    knows="follows one real head motion at random",
    style=RowStyle("triangle", "#777777", "#ffffff", dash="1 3"),
)
CEM_TRUTH = replace(
    CEM,
    id="cem_truth",
    name="CEM-truth",
    knows="searches head motion under which the true labels are the most likely: an upper bound of the search",
    sees="truth",
    ceiling=None,
    style=RowStyle("plus", "#444488", "#c7918a", dash="1 3"),
)
ROWS: list[Method] = [NO_TRAJ, ORACLE, CEM, CEM_GOAL, CEM_BANK, RANDOM_BANK, CEM_TRUTH]
