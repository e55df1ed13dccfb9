"""The whole pipeline on the simulated world, offline."""

from prefect import flow

from flows.naming import run_name
from flows.pipeline import full_pipeline
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from schemas.world import WorldConfig
from tasks.world import simulate_world


@flow(name="demo", flow_run_name=run_name, persist_result=False)
def demo(world: WorldConfig, config: PipelineConfig, run: RunOptions) -> dict[str, ArtifactRef]:
    """Write the simulated world into `run.data_root`, then run the full pipeline on it."""
    simulate_world(world, run.data_root, run.workers)
    return full_pipeline(config, run)
