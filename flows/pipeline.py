"""The pipeline end to end, as the paper's method has it: from raw files to the report."""

from prefect import flow

from flows.dag import run_stages
from flows.naming import run_name
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from tasks.report import PAGES, place_report
from trajpilot_core.doctor.preflight import require_outside
from trajpilot_core.stages import selected


@flow(name="full-pipeline", flow_run_name=run_name, persist_result=False)
def full_pipeline(config: PipelineConfig, run: RunOptions) -> dict[str, ArtifactRef]:
    """Run every stage (or those that `run` selects); what is fresh is reused.

    ingest -> trajectories, features, text_bank -> alignment -> predictor -> scorer -> evaluation -> report,
    or, where outcomes of events are predicted: ... -> alignment -> outcome
    """
    names = selected(run, config)
    require_outside(config, run, names)
    done = run_stages(names, config, run)
    for name in PAGES:
        if name in done:
            place_report(done[name], config, run)
    return done
