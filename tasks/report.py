"""The report's last step: a copy where people look for it."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.artifacts import ArtifactRef
from schemas.config import RunOptions
from tasks.artifacts import publish_report
from trajpilot_core.report.place import place_documents


@task(task_run_name="place report", cache_policy=NO_CACHE, persist_result=False)
def place_report(report: ArtifactRef, run: RunOptions) -> str:
    """Copy the report's documents to `<root>/reports` and say where they lie."""
    path = place_documents(report, run.root)
    publish_report(path)
    return path
