"""Look whether the data root has changed, and say so to Prefect; the automation that listens runs the pipeline."""

from prefect import flow

from flows.naming import run_name
from schemas.config import PipelineConfig, RunOptions
from tasks.announce import announce_change
from trajpilot_core.engine.planning.watch import noticed
from trajpilot_core.stages import STAGES


@flow(name="watch", flow_run_name=run_name, persist_result=False)
def watch(config: PipelineConfig, run: RunOptions) -> tuple[str, ...]:
    """Look once whether the data root has changed and a run would have work to do; no file of it is read."""
    news = noticed(STAGES, config, run)
    if news:
        announce_change(run.data_root, news)
    return news
