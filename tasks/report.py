"""Last step of a stage that writes pages: a copy in `<root>/reports`, and a summary in the UI and the log."""

import logging

from prefect import State, task
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed

from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from tasks.artifacts import publish_page
from trajpilot_core.report.committed import committed_under
from trajpilot_core.report.publish import place_documents
from trajpilot_core.report.ui.link import link_to

LOG = logging.getLogger("trajpilot")
TITLE = "The report: main figures and location"
PAGES = ("report", "outcome", "pose_sources")
"""Stages that write pages."""


def linked(path: str) -> str:
    """Return a line with the link to a page; empty where the UI cannot serve it."""
    link = link_to(path)
    return f"[Open the page]({link}) (served by `trajpilot ui` on this root)\n\n" if link else ""


@task(task_run_name="place report", cache_policy=NO_CACHE, persist_result=False)
def place_report(report: ArtifactRef, config: PipelineConfig, run: RunOptions) -> State[str]:
    """Copy the report's documents to `<root>/reports`, publish the summary with a link, log main figures and path."""
    # Imported here because it loads torch, which registering a deployment does not need.
    from trajpilot_core.report.ui.summary import SUMMARIES, main_figures

    path = place_documents(report, run.root)
    committed = committed_under(config, run)
    publish_page("report-summary", TITLE, linked(path) + SUMMARIES[report.stage](committed, path))
    for line in main_figures(committed, report.stage):
        LOG.info("%s", line)
    LOG.info("%-13s %s", "report", path)
    return Completed(message=f"the report is at {path}", data=path)
