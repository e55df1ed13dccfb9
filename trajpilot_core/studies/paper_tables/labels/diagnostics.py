"""Distances between features: kinds of pairs of segments, and approach to the goal.

Source: arXiv 2605.20388, its appendices on diagnostics and on goal progress. The paper's columns are the raw distance
and the cosine, of unnamed takes; here test and training takes are separate, with the standardised distance.
"""

from schemas.arrow import rows_of
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.evaluation.feature_distances import ADJACENT, FAR, QUANTITIES, RANDOM, SAME_ACTION
from trajpilot_core.paper.published import ATOMIC_CORPUS, HORIZONS
from trajpilot_core.studies.paper_tables.base import Column, Line, PaperCell, PaperRun, PaperTable, plain_cell

GEOMETRY, MONOTONICITY = "vjepa_geometry", "monotonicity"
PAIRS = {
    ADJACENT: "Adjacent segments, same recording",
    FAR: "Far segments, same recording",
    SAME_ACTION: "Same action, different recording",
    RANDOM: "Random cross-recording pair",
}
"""Kind of pairs in the paper's data -> its printed name."""
SPLITS = {"test": "Test takes", "train": "Training takes"}
FRACTION = "monotonic_fraction"
PROGRESS = {"train": "Sampled training windows", "test": "All test windows", "null": "Random order, 1/(H-2)!"}
QUANTITY_HEADS = dict(zip(QUANTITIES, ("Mean l1 ↓", "Standardised l1 ↓", "Mean cosine ↑"), strict=True))
STAGE = "diagnostics"


def of_geometry(run: PaperRun) -> list[PaperCell]:
    """Return the distances of the kinds of pairs of a run on atomic descriptions."""
    table = run.read(STAGE, "pair_distances")
    if table is None or run.dataset != ATOMIC_CORPUS:
        return []
    return [
        plain_cell(run, GEOMETRY, row.pairs, row.quantity, row.value, row, dataset=row.split)
        for row in rows_of(PairDistance, table)
    ]


def of_progress(run: PaperRun) -> list[PaperCell]:
    """Return the shares by the raw distance of a run on atomic descriptions, and those of random orders."""
    table = run.read(STAGE, "progress_shares")
    if table is None or run.dataset != ATOMIC_CORPUS:
        return []
    rows = [row for row in rows_of(ProgressShare, table) if row.space == "raw"]
    shares = [plain_cell(run, MONOTONICITY, row.split, FRACTION, row.share, row) for row in rows]
    chances = {row.horizon: row.chance for row in rows}
    return shares + [plain_cell(run, MONOTONICITY, "null", FRACTION, v, horizon=h) for h, v in sorted(chances.items())]


TABLES = (
    PaperTable(
        label=GEOMETRY,
        title="Distances between features of segments",
        heads=("Pair type",),
        lines=tuple(Line((title,), kind) for kind, title in PAIRS.items()),
        columns=tuple(
            Column(head, (metric,), over, split, digits=3)
            for split, over in SPLITS.items()
            for metric, head in QUANTITY_HEADS.items()
        ),
        cells=of_geometry,
        of_methods=False,
        note="Pairs are sampled, one of each kind for each sampled segment; l1 is the mean over the components.",
        recipes=("atomic",),
    ),
    PaperTable(
        label=MONOTONICITY,
        title="True plans that come closer to the goal with every step, in the l1 distance of features",
        heads=("Windows",),
        lines=tuple(Line((title,), row) for row, title in PROGRESS.items()),
        columns=tuple(Column(f"H={h}", (FRACTION,), horizon=h, digits=1) for h in HORIZONS),
        cells=of_progress,
        of_methods=False,
        note="Percent of the windows. Training windows are sampled with the seed.",
        recipes=("atomic",),
    ),
)
