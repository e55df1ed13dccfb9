"""What the rows of the tables are called, what each may see, and which trained models it rests on."""

from typing import NamedTuple

from trajpilot_core.evaluation.paper_claims import SCORER_MODELS


class Row(NamedTuple):
    """One row of the tables, for people."""

    name: str
    knows: str
    """What the row is given beside the Start and Goal clips."""
    models: tuple[str, ...]
    """Models that must be trained for the row to mean anything, as `evaluation.paper_claims.model_of` names them."""


ROWS: dict[str, Row] = {
    "no_traj": Row("No-Traj", "no trajectory at all", ("no_traj",)),
    "endpoint_traj": Row("Endpoint-Traj", "its own head motion during Start and Goal, none between",
                         ("endpoint_traj",)),
    "scorer": Row("Scorer", "endpoint motion, and the middle motion of one retrieved training window, or the No-Traj "
                  "answer where the gate stays closed", SCORER_MODELS),
    "scorer_plus": Row("Scorer+ (ours)", "endpoint motion, and labels and motion of all training takes with learned "
                       "weights", (*SCORER_MODELS, "endpoint_traj", "scorer_plus")),
    "oracle": Row("Oracle", "its own true head motion, middle included: a condition, not an upper bound", ("traj",)),
    "scorer_permuted": Row("Scorer, permuted", "as Scorer, but every candidate carries the middle motion of another "
                           "training window", SCORER_MODELS),
    "scorer_no_labels": Row("Scorer, no labels", "as Scorer, trained without the candidates' labels",
                            (*SCORER_MODELS, "scorer_no_labels")),
    "scorer_no_motion": Row("Scorer, no motion", "as Scorer, trained without the candidates' motion and the plans "
                            "under it", (*SCORER_MODELS, "scorer_no_motion")),
    "pool_mean": Row("Pool-Mean", "similarity-weighted mean of the plans of all candidates; nothing learned",
                     ("traj", "no_traj")),
    "knn_labels": Row("kNN-labels", "weighted vote of the candidates' labels; no trajectory", ("no_traj",)),
    "top1": Row("Top-1", "the middle motion of the nearest candidate, always", ("traj", "no_traj")),
    "shuffled": Row("Shuffled", "endpoint motion, and the middle motion of another test window", ("traj",)),
    "previous": Row("Previous", "repeats the TRUE label of the step before, which no planner knows; untrained floor "
                    "that sees the truth, never bold", ()),
    "majority": Row("Majority", "the most frequent training label; untrained floor", ()),
}  # fmt: skip
"""In the order of the tables: the main rows, the Scorer without parts, then controls."""

NOT_BUILT = (
    "not built: the closed-vocabulary planners SCHEMA, PDPP and ViterbiPlanNet, CEM over trajectories, a prompted "
    "vision-language model"
)
"""Rows that the design names and that this implementation lacks; printed below the main table."""
MAIN = ("no_traj", "endpoint_traj", "scorer", "scorer_plus", "oracle")
"""The paper's rows, the attribution row and our method: shown per horizon in full."""
OPEN_METRICS = ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq")
"""Columns of the paper's open-vocabulary table."""
SEQUENCE_METRICS = ("SR", "mAcc", "mIoU", "ED")
DESCRIPTIONS = {
    "M@1": "middle steps right at the first answer",
    "M@5": "middle steps with the truth among five answers",
    "MSeq": "windows with every middle step right",
    "F@1": "all steps right at the first answer, Start and Goal included",
    "F@5": "all steps with the truth among five answers",
    "FSeq": "windows with every step right",
    "SR": "success rate: every step of the decoded sequence right (FSeq)",
    "mAcc": "steps of the decoded sequence that are right",
    "mIoU": "overlap of the sets of true and decoded labels, per window",
    "ED": "edit distance in steps, lower is better",
}


def row_name(variant: str) -> str:
    """Return the printed name of a row; an unknown one keeps its own."""
    return ROWS[variant].name if variant in ROWS else variant


def in_order(variants: set[str]) -> list[str]:
    """Sort variants as the tables print them; unknown ones last, by name."""
    place = {variant: index for index, variant in enumerate(ROWS)}
    return sorted(variants, key=lambda variant: (place.get(variant, len(place)), variant))
