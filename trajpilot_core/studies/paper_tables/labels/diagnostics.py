"""What distances between features say: kinds of pairs of segments, and approach to the goal.

Source: arXiv 2605.20388, its appendices on diagnostics and on goal progress. The paper's columns are the raw distance
and the cosine, of unnamed takes; test and training takes stand apart here, and the standardised distance next to both.
"""

from trajpilot_core.paper.published import HORIZONS
from trajpilot_core.studies.paper_tables.base import Column, Line, PaperTable

GEOMETRY, MONOTONICITY = "vjepa_geometry", "monotonicity"
PAIRS = {
    "adjacent_same_recording": "Adjacent segments, same recording",
    "far_same_recording": "Far segments, same recording",
    "same_action_other_recording": "Same action, different recording",
    "random_other_recording": "Random cross-recording pair",
}
"""Kind of pairs as the paper's data call it -> as it is printed."""
SPLITS = {"test": "Test takes", "train": "Training takes"}
PROGRESS = {"train": "Drawn training windows", "test": "All test windows", "null": "Random order, 1/(H-2)!"}
TABLES = (
    PaperTable(
        label=GEOMETRY,
        title="Distances between features of segments",
        heads=("Pair type",),
        lines=tuple(Line((title,), kind) for kind, title in PAIRS.items()),
        columns=tuple(
            Column(head, (metric,), over, split, digits=3)
            for split, over in SPLITS.items()
            for metric, head in (
                ("mean_l1", "Mean l1 ↓"),
                ("mean_cosine", "Mean cosine ↑"),
                ("standardised_l1", "Standardised l1 ↓"),
            )
        ),
        of_methods=False,
    ),
    PaperTable(
        label=MONOTONICITY,
        title="True plans that come closer to the goal with every step, in the l1 distance of features",
        heads=("Windows",),
        lines=tuple(Line((title,), row) for row, title in PROGRESS.items()),
        columns=tuple(Column(f"H={h}", ("monotonic_fraction",), horizon=h, digits=1) for h in HORIZONS),
        of_methods=False,
    ),
)
