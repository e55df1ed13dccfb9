"""One flow per stage that can be shared out: a group of its takes, started by a run of the stage."""

from prefect import Flow, flow

from schemas.config import PipelineConfig, RunOptions
from schemas.groups import TakeGroup
from tasks.group import group_output


def group_flow(stage: str) -> Flow[[PipelineConfig, RunOptions, TakeGroup], str]:
    """Build the flow that computes a group of takes of one stage."""

    def run_one(config: PipelineConfig, run: RunOptions, group: TakeGroup) -> str:
        return group_output(config, run, group)

    run_one.__doc__ = f"Compute a group of takes for a run of {stage}, which starts this itself."
    return flow(name=f"{stage.replace('_', '-')}-group", persist_result=False)(run_one)


features_group = group_flow("features")
trajectories_group = group_flow("trajectories")
