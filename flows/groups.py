"""Flows of groups of takes, one per stage and pool that computes it; a run of the stage starts them."""

from prefect import Flow, flow

from schemas.config import PipelineConfig, RunOptions
from schemas.groups import TakeGroup
from tasks.group import group_output


def group_flow(name: str) -> Flow[[PipelineConfig, RunOptions, TakeGroup], str]:
    """Build the flow of that name, which computes a group of takes of one stage."""

    def run_one(config: PipelineConfig, run: RunOptions, group: TakeGroup) -> str:
        return group_output(config, run, group)

    run_one.__doc__ = "Compute a group of takes for a run of a stage, which starts this itself."
    return flow(name=name, persist_result=False)(run_one)


features_group = group_flow("features-group")
trajectories_group = group_flow("trajectories-group")
trajectories_gpu_group = group_flow("trajectories-gpu-group")
