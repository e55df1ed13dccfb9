"""The paper's results as data: one CSV per printed table, one number per line, as printed.

Source: arXiv 2605.20388. `trajpilot_core/paper/tables` holds all of its number tables; the report sets those of its own
corpus and vocabulary next to ours.
"""

import csv
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple, TypeVar

HORIZONS = (3, 4, 5, 6, 7, 8)
ATOMIC = "atomic_results_full"
ATOMIC_CORPUS = "egoexo4d_atomic"
OPEN_METRICS = ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq")
CLOSED_FULL, CLOSED_OVERALL, CLOSED_SETTINGS = "coarse_planning_full", "coarse_planning_overall", "closed_vocab_hparams"
"""Closed benchmarks per horizon, their means over the horizons, their hyperparameters."""
BENCHMARKS: Mapping[str, str] = {"egoexo4d_keystep": "keystep", "goalstep": "goalstep", "egoper": "egoper"}
"""Corpus -> what the tables of closed benchmarks call it, in their order."""
CLOSED_ROWS = ("schema", "pdpp", "viterbi_plan_net", "no_traj", "scorer", "oracle")
"""Rows of those tables, by our ids, in their order."""
OURS = {"viterbiplannet": "viterbi_plan_net", "mAcc": "Mid mAcc"}
"""Row or metric as the tables name it -> as we do, where that differs."""
CLOSED_ATOMIC = "egoexo4d_atomic_closed"
"""What the numbers of the running text call the 1,165 classes of atomic descriptions."""
HEADROOM_FIELDS = {
    "same_step_recall": "same_step_recall",
    "any_step_recall": "any_step_recall",
    "cosine_local": "endpoint_cosine",
    "cosine_random": "endpoint_cosine_random",
}
"""Quantity of retrieval_headroom -> field of `schemas.results.Headroom`."""
ACTION_METRICS = {"verb_R@5": "Verb", "noun_R@5": "Noun", "action_R@5": "Action", "action_accuracy": "Action Acc."}
"""Metric of ek100 -> ours."""

ANTICIPATION, GOAL_SEEN, GOAL_MASKED = (
    "atomic_anticipation_full",
    "goal_dropout_fullgoal",
    "goal_dropout_anticipation_full",
)
FUTURE = {"M@1": "Future R@1", "M@5": "Future R@5", "MSeq": "Future Seq"}
"""Metric -> what these tables call it: the steps between Start and the place of the Goal (D 48)."""
FULL = {"F@1": "Full R@1", "F@5": "Full R@5", "FSeq": "Full Seq"}
ANTICIPATING: Mapping[str, Mapping[str, str]] = {
    ANTICIPATION: {
        "qwen_zs": "anticipation_qwen_zs",
        "qwen_sft_llm": "anticipation_qwen_sft_llm",
        "no_traj": "anticipation_no_traj",
        "scorer": "anticipation_scorer",
        "oracle": "anticipation_oracle",
    },
    GOAL_SEEN: {
        "no_dropout_traj": "oracle",
        "goal_dropout_traj": "oracle_goal_dropout",
        "no_dropout_no_traj": "no_traj",
        "goal_dropout_no_traj": "no_traj_goal_dropout",
    },
    GOAL_MASKED: {
        "no_dropout_traj": "anticipation_oracle_no_dropout",
        "goal_dropout_traj": "anticipation_oracle",
        "no_dropout_no_traj": "anticipation_no_traj_no_dropout",
        "goal_dropout_no_traj": "anticipation_no_traj",
    },
}
"""Table of anticipation or goal dropout -> its row -> ours."""

MetricT = TypeVar("MetricT", bound=str)
TablePlace = int | str
"""A horizon, or how a mean over all horizons weighs: `plain` each alike, `sample` each window alike."""
PlacedValues = dict[tuple[TablePlace, str, str], float]
"""(place, row, metric) -> percentage; ED in steps."""


class PublishedTable(NamedTuple):
    """Results of the paper on one corpus and vocabulary, in our names."""

    source: str
    """Where they are printed."""
    values: PlacedValues


def table_rows(file: str) -> list[dict[str, str]]:
    """Return the lines of one data file, its columns as printed."""
    text = resources.files("trajpilot_core.paper").joinpath("tables", f"{file}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def published_of(corpus: str, *, is_closed: bool) -> PublishedTable | None:
    """Return what the paper prints of a corpus; None where it prints nothing that a planner's run could be held to.

    `is_closed`: answers are classes of atomic descriptions, not labels.
    """
    if corpus == ATOMIC_CORPUS and is_closed:
        source = "arXiv 2605.20388, section 4.2, closed vocabulary, means over all windows"
        return PublishedTable(source, _values("text", "sample", CLOSED_ATOMIC))
    if corpus == ATOMIC_CORPUS:
        source = "arXiv 2605.20388, full per-horizon results of open-vocabulary planning on atomic actions"
        return PublishedTable(source, _values(ATOMIC, "sample"))
    if corpus not in BENCHMARKS or is_closed:
        return None
    source, dataset = "arXiv 2605.20388, closed-vocabulary planning, per horizon and averaged", BENCHMARKS[corpus]
    return PublishedTable(source, _values(CLOSED_FULL, "plain", dataset) | _values(CLOSED_OVERALL, "plain", dataset))


def _values(file: str, mean: str, dataset: str = "") -> PlacedValues:
    """Return the numbers of a file, of one data set where it is named; `mean`: the place of those without a horizon."""
    values: PlacedValues = {}
    for row in table_rows(file):
        if not dataset or row["dataset"] == dataset:
            place = int(row["horizon"]) if row["horizon"] else mean
            variant, metric = (OURS.get(row[name], row[name]) for name in ("row", "metric"))
            values[place, variant, metric] = float(row["value"])
    return values


def published_anticipation(corpus: str, *, is_closed: bool) -> PublishedTable | None:
    """Return what the paper prints of anticipation and goal dropout; None but for atomic actions, open vocabulary.

    What its table of planning prints more exactly is left out, and so is the second print of one number.
    """
    if corpus != ATOMIC_CORPUS or is_closed:
        return None
    metrics = {printed: metric for metric, printed in (FUTURE | FULL).items()}
    planned, values = _values(ATOMIC, "sample"), PlacedValues()
    for table, rows in ANTICIPATING.items():
        for row in table_rows(table):
            place = int(row["horizon"]) if row["horizon"] else "sample"
            key = (place, rows.get(row["row"], row["row"]), metrics[row["metric"]])
            if key not in planned:
                values.setdefault(key, float(row["value"]))
    source = "arXiv 2605.20388, full per-horizon results of anticipation and its appendix on goal dropout"
    return PublishedTable(source, values)


def published_events(file: str, metrics: Mapping[str, MetricT]) -> dict[str, dict[MetricT, float]]:
    """Return row -> metric -> percentage of a table of events; `metrics`: metric as printed -> as ours."""
    values: dict[str, dict[MetricT, float]] = {}
    for row in table_rows(file):
        values.setdefault(row["row"], {})[metrics[row["metric"]]] = float(row["value"])
    return values
