"""The pipeline end to end, in the order of the paper's method: from raw files to the report."""

from prefect import flow

from flows.naming import run_name
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from tasks.report import place_report
from tasks.stage import stage_output
from trajpilot_core.pipeline import selected


@flow(name="full-pipeline", flow_run_name=run_name, persist_result=False)
def full_pipeline(config: PipelineConfig, run: RunOptions) -> dict[str, ArtifactRef]:
    """Run every stage (or those that `run` selects); what is fresh is reused.

    ingest -> trajectories, features, text_bank -> alignment -> predictor -> scorer -> evaluation -> report
    """
    done = {name: stage_output(name, config, run) for name in selected(run)}
    if "report" in done:
        place_report(done["report"], config, run)
    return done
