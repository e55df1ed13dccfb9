"""The table of pose sources in a few lines of Markdown, and where its pages lie."""

from schemas.arrow import rows_of
from schemas.pose_sources import PoseScore
from schemas.results import Judgement
from trajpilot_core.markdown_escape import literal
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.pose_page import PoseResults, checks_table, main_table


def poses_summary(committed: Committed, address: str) -> str:
    """Return the summary of the pages whose HTML has that address.

    Raises:
        StoreError: the stage has no output, or it is damaged.
    """
    warning = committed.warning()
    results = PoseResults(
        rows_of(PoseScore, committed.table("pose_sources", "pose_scores")),
        rows_of(Judgement, committed.table("pose_sources", "pose_judgements")),
        (),
        is_simulated=bool(warning),
        is_closed=committed.config.predictor.head == "classes",
    )
    parts = [f"**{warning}**"] if warning else []
    parts += [f"The whole page: {literal(address)}", main_table(results).markdown(), checks_table(results).markdown()]
    return "\n\n".join(parts) + "\n"
