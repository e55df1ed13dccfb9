"""Conditions of a predictor of the next latent, as the stage `latent_plans` scores them.

Source: arXiv 2605.20388, its first table. The paper's column is the best value on validation data; here the epoch is
chosen on dev and test pairs are scored, next to a row that copies the current latent.
"""

from math import isfinite

from schemas.arrow import rows_of
from schemas.latent import ConditionScore
from trajpilot_core.paper.published import ATOMIC_CORPUS
from trajpilot_core.studies.paper_tables.base import Column, Line, PaperCell, PaperRun, PaperTable, plain_cell

MOTIVATION = "motivation"
CONDITIONS = {
    "copy": "copy of the current latent",
    "none": "none",
    "text": "text",
    "trajectory": "trajectory",
    "text_and_trajectory": "text + trajectory",
    "shuffled_text": "shuffled text",
    "shuffled_trajectory": "shuffled trajectory",
}
STEPS = 1
"""Steps ahead."""


def of_conditions(run: PaperRun) -> list[PaperCell]:
    """Return the cells that a run fills: means over its seeds on test pairs."""
    table = run.read("latent_plans", "latent_conditions")
    rows = [] if table is None or run.dataset != ATOMIC_CORPUS else rows_of(ConditionScore, table)
    cells = []
    for row in rows:
        if row.split == "test" and row.seed is None:
            known = {"horizon": STEPS, "n_takes": row.n_takes, "n_windows": row.n_pairs}
            ends = {"low": row.low, "high": row.high} if isfinite(row.low) else {}
            cells.append(plain_cell(run, MOTIVATION, row.condition, "val_l1", row.l1, **known))
            if row.condition != "none":
                gain = plain_cell(run, MOTIVATION, row.condition, "gain_over_none", row.gain, **known, **ends)
                cells.append(gain)
    return cells


TABLES = (
    PaperTable(
        label=MOTIVATION,
        title="Conditions of a predictor of future latents, H=1",
        heads=("Conditioning",),
        lines=tuple(Line((title,), row, STEPS) for row, title in CONDITIONS.items()),
        columns=(
            Column("l1 ↓", ("val_l1",), digits=4),
            Column("Gain over none", ("gain_over_none",), digits=3),
        ),
        cells=of_conditions,
        of_methods=False,
        stage="latent_plans",
        note="Pairs of test takes; the epoch is chosen on dev. Layer-normalised latents, mean over components.",
        recipes=("atomic_latent",),
    ),
)
