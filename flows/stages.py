"""One flow per stage, to re-run a single stage after a data update. Each is an attribute with the stage's name."""

from collections.abc import Callable
from functools import cache

from prefect import Flow, flow

from flows.pipeline import run_name
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from tasks.stage import PAGES, place_report, stage_output
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
def stage_flow(stage: str) -> Flow[[PipelineConfig, RunOptions], ArtifactRef]:
    """Build the flow of one declared stage."""
    return flow(name=stage.replace("_", "-"), flow_run_name=run_name, persist_result=False)(stage_body(stage))


def __getattr__(name: str) -> Flow[[PipelineConfig, RunOptions], ArtifactRef]:
    """Return the flow of a stage of the list: `flows.stages.features`."""
    if name not in EVERY_STAGE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: there is no such stage")
    return stage_flow(name)
