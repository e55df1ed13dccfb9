"""Labels that nothing here fills: their layouts alone. What builds one gives it `cells`, and a file of its own.

Source: arXiv 2605.20388; rows and metrics are called as in `trajpilot_core/paper/tables/<label>.csv`.
"""

from trajpilot_core.studies.paper_tables.base import Column, Line, PaperTable

CONDITIONS = {
    "none": "none",
    "text": "text",
    "trajectory": "trajectory",
    "text_and_trajectory": "text + trajectory",
    "shuffled_text": "shuffled text",
    "shuffled_trajectory": "shuffled trajectory",
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
)
