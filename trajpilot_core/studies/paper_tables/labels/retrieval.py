"""What a pool of retrieved windows could give at most, by its size.

Source: arXiv 2605.20388, its appendix on retrieval headroom: atomic actions, H=5; docs/decisions/scorer.md.
"""

from statistics import mean

from schemas.arrow import rows_of
from schemas.results import Headroom
from trajpilot_core.evaluation.comparison import EVALUATION
from trajpilot_core.paper.published import ATOMIC_CORPUS
from trajpilot_core.studies.paper_tables.base import Column, Line, PaperCell, PaperRun, PaperTable, plain_cell

HEADROOM = "retrieval_headroom"
HORIZON = 5
POOLS = (1, 5, 16, 64)
QUANTITIES = {
    "same_step_recall": "same_step_recall",
    "any_step_recall": "any_step_recall",
    "cosine_local": "endpoint_cosine",
    "cosine_random": "endpoint_cosine_random",
}
"""Quantity as the paper's data call it -> field of `Headroom`."""


def of_headroom(run: PaperRun) -> list[PaperCell]:
    """Return the means over the seeds at H=5 for the paper's sizes of the pool."""
    table = run.read(EVALUATION, "headroom")
    if table is None or run.dataset != ATOMIC_CORPUS:
        return []
    rows = [row for row in rows_of(Headroom, table) if row.horizon == HORIZON]
    return [
        plain_cell(
            run,
            HEADROOM,
            f"top_{pool}",
            quantity,
            mean(getattr(row, name) for row in mine),
            horizon=HORIZON,
            n_windows=mine[0].n_windows,
        )
        for pool in POOLS
        if (mine := [row for row in rows if row.pool == pool])
        for quantity, name in QUANTITIES.items()
    ]


TABLES = (
    PaperTable(
        label=HEADROOM,
        title=f"What a pool of retrieved windows holds, H={HORIZON}",
        heads=("Pool",),
        lines=tuple(Line((f"top-{pool}",), f"top_{pool}", HORIZON) for pool in POOLS),
        columns=(
            Column("Mid same-step recall", ("same_step_recall",)),
            Column("Mid any-step recall", ("any_step_recall",)),
            Column("Cosine local / random", ("cosine_local", "cosine_random"), digits=3),
        ),
        cells=of_headroom,
        of_methods=False,
        note="Recall in percent; means over the seeds. A pool that is larger than the run's setting was not run.",
        recipes=("atomic",),
    ),
)
