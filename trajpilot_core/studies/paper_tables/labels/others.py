"""Labels that nothing here fills: their layouts alone. What builds one gives it `cells`, and a file of its own.

Source: arXiv 2605.20388; rows and metrics are called as in `trajpilot_core/paper/tables/<label>.csv`.
"""

from trajpilot_core.studies.paper_tables.base import Column, Line, PaperTable
from trajpilot_core.studies.paper_tables.labels.rows import of_methods

CONDITIONS = {
    "none": "none",
    "text": "text",
    "trajectory": "trajectory",
    "text_and_trajectory": "text + trajectory",
    "shuffled_text": "shuffled text",
    "shuffled_trajectory": "shuffled trajectory",
}
POSES = {
    "aria_to_aria": "Aria → Aria",
    "pi3_to_pi3": "Pi3 → Pi3",
    "aria_to_pi3": "Aria → Pi3",
    "aria_and_pi3_to_pi3": "Aria + Pi3 → Pi3",
}
ENDPOINTS = {
    "segments": "Endpoint segments",
    "R@1": "Endpoint R@1",
    "R@5": "Endpoint R@5",
    "exact_projection": "Exact projection to the text bank",
    "fallback_projection": "Fallback projection",
}
TABLES = (
    PaperTable(
        label="motivation",
        title="Conditions of a predictor of future latents, H=1",
        heads=("Conditioning",),
        lines=tuple(Line((title,), row, 1) for row, title in CONDITIONS.items()),
        columns=(
            Column("Best val l1 ↓", ("val_l1",), digits=4),
            Column("Gain over none", ("gain_over_none",), digits=3),
        ),
    ),
    PaperTable(
        label="pi3_robustness",
        title="Source of head motion at training → at test, Keystep",
        heads=("Setting",),
        lines=tuple(Line((title,), row, dataset="keystep") for row, title in POSES.items()),
        columns=(Column("Mid mAcc ↑", ("Mid mAcc",)), Column("Full mAcc ↑", ("Full mAcc",))),
        always="The command 'trajpilot poses robustness' measures M@1 of the open vocabulary instead.",
    ),
    PaperTable(
        label="qwen3vl_endpoint_cache",
        title="Recognition of the endpoints by a tuned vision-language model",
        heads=("Quantity",),
        lines=tuple(Line((title,), row) for row, title in ENDPOINTS.items()),
        columns=(Column("Count", ("count",), digits=0), Column("Percentage", ("percentage",))),
    ),
    PaperTable(
        label="ek100",
        title="Action anticipation on EPIC-KITCHENS-100, own runs",
        heads=("Method",),
        lines=of_methods(("visual_only_probe", "no_traj", "scorer", "oracle")),
        columns=(
            Column("Verb ↑", ("verb_R@5",)),
            Column("Noun ↑", ("noun_R@5",)),
            Column("Action ↑", ("action_R@5",)),
            Column("Action Acc. ↑", ("action_accuracy",)),
        ),
        rules=(3,),
        always="The rows that the paper takes from the literature are published numbers and stand in no table of ours.",
    ),
    PaperTable(
        label="basketball_shot_outcome",
        title="Outcome of basketball shots",
        heads=("Method",),
        lines=of_methods(("no_traj", "attentive_probe", "scorer", "oracle")),
        columns=(
            Column("Outcome Acc. ↑", ("accuracy",)),
            Column("Balanced Acc. ↑", ("balanced_accuracy",)),
            Column("Made Rec. ↑", ("made_recall",)),
            Column("Miss Rec. ↑", ("miss_recall",)),
        ),
        rules=(3,),
    ),
)
