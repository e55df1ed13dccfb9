"""One flow per stage, to re-run a single stage after a data update, and one for its groups of shards in each pool.

Each is an attribute with the name of the stage or of the deployment of its groups: `features`, `features_gpu_group`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from prefect import Flow, flow

from flows.pipeline import run_name
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from tasks.group_runs import group_deployments
from tasks.stage import PAGES, group_output, place_report, stage_output
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE, selected


def stage_body(stage: str) -> Callable[[PipelineConfig, RunOptions], ArtifactRef]:
    """Return the function of the flow of one declared stage."""

    def run_one(config: PipelineConfig, run: RunOptions) -> ArtifactRef:
        chosen = selected(run.replace(only=run.only or (stage,)), config)
        if chosen != [stage]:
            raise InputError(f"this flow runs {stage} alone, not {', '.join(chosen)}; full-pipeline runs any of them")
        done = stage_output(stage, config, run)
        if stage in PAGES:
            place_report(done, config, run)
        return done

    run_one.__doc__ = f"Run the stage {stage}; the stages that it reads must have run."
    return run_one


@cache
def __getattr__(name: str) -> Flow[..., Any]:
    """Return the flow of a stage of the list, or that of its groups. Deployed, it is loaded from deployed.py."""
    deployment = name.replace("_", "-")
    if name in EVERY_STAGE:
        return flow(name=deployment, flow_run_name=run_name, persist_result=False)(stage_body(name))
    if any(deployment in group_deployments(stage) for stage in EVERY_STAGE.values()):
        about = "Compute a group of shards; started by a run of the stage."
        return flow(name=deployment, description=about, persist_result=False)(group_output)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: no such stage, and no stage has groups so named"
    )
