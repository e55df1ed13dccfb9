"""The outcome of shots in a few lines of Markdown: every row with its interval, and where the pages lie."""

from schemas.arrow import rows_of
from schemas.outcome import OutcomeMetric, ShotScore
from schemas.results import Judgement
from trajpilot_core.evaluation.shot_rows import MODELS, SHOT_NAMES, not_run
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.markdown_escape import literal
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.outcome_page import HEADERS, value_of
from trajpilot_core.report.tables.names import LEGEND, marked
from trajpilot_core.report.tables.table import Table

SHOWN: tuple[OutcomeMetric, ...] = ("accuracy", "auc")


def outcome_summary(committed: Committed, address: str) -> str:
    """Return the summary of the pages whose HTML has that address.

    Raises:
        StoreError: the stage has no output, or it is damaged.
    """
    scores = rows_of(ShotScore, committed.table("outcome", "shot_scores"))
    judged = rows_of(Judgement, committed.table("outcome", "outcome_judgements"))
    found = {(one.row, one.metric): one for one in scores if one.seed is None}
    weak = undertrained_rows(judged, MODELS)
    rows = tuple(
        (marked(name, row, weak), *(str(value_of(found[row, metric])) for metric in SHOWN))
        for row, name in SHOT_NAMES.items()
        if (row, SHOWN[0]) in found
    )
    table = Table("", ("row", *(f"{HEADERS[metric]}, %" for metric in SHOWN)), rows).markdown().strip()
    good = sum(one.verdict == "holds" for one in judged)
    warning = committed.warning()
    parts = [f"**{warning}**"] if warning else []
    parts += [
        f"The whole page: {literal(address)}",
        "### Outcome of test shots, mean of the seeds, with intervals over takes",
        table,
        *([LEGEND] if weak else []),
        *not_run(one.row for one in scores),
        f"{good} of {len(judged)} checks hold.",
    ]
    return "\n\n".join(parts) + "\n"
