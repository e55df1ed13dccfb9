"""Flows of groups of shards as they are deployed: those of `flows.groups`, in a process that holds the API key.

A worker reads them from here, because `vlm` asks servers that want a key, and flows read no environment.
"""

from prefect import Flow

from deployments.settings import hand_over_api_key, hand_over_store_limit
from flows import groups
from schemas.config import PipelineConfig, RunOptions
from schemas.groups import ShardGroup

hand_over_api_key()
hand_over_store_limit()


def __getattr__(name: str) -> Flow[[PipelineConfig, RunOptions, ShardGroup], str]:
    """Return the flow of groups of a stage, e.g. `features_group` of the deployment features-group."""
    flow: Flow[[PipelineConfig, RunOptions, ShardGroup], str] = getattr(groups, name)
    return flow
