"""Flows of groups of shards, one per stage and pool; a run of the stage starts them."""

from functools import cache

from prefect import Flow, flow

from schemas.artifacts import ShardGroup
from schemas.config import PipelineConfig, RunOptions
from tasks.group_runs import group_deployments
from tasks.stage import group_output
from trajpilot_core.stages import EVERY_STAGE


@cache
def group_flow(name: str) -> Flow[[PipelineConfig, RunOptions, ShardGroup], str]:
    """Build the flow that computes a group of shards of one stage."""

    def run_one(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> str:
        return group_output(config, run, group)

    run_one.__doc__ = "Compute a group of shards; started by a run of the stage."
    return flow(name=name, persist_result=False)(run_one)


def __getattr__(name: str) -> Flow[[PipelineConfig, RunOptions, ShardGroup], str]:
    """Return the flow of groups of a stage, e.g. `flows.groups.features_group` of the deployment features-group.

    Deployed, it is loaded from `deployments/deployed.py`.
    """
    deployment = name.replace("_", "-")
    if not any(deployment in group_deployments(stage) for stage in EVERY_STAGE.values()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: no stage has groups of that name")
    return group_flow(deployment)
