"""Which deployments there are: those of deployments/prefect.yaml, and of every stage of the list that it lacks.

The file names every stage of this checkout (a test compares), so that Prefect's own commands find them there and
schedules can be added. A stage that is new to the list is deployed all the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deployments.settings import CPU_POOL, GPU_POOL
from schemas.config import PipelineConfig
from tasks.group_runs import group_deployments
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.stages import EVERY_STAGE

FILE = Path(__file__).parent / "prefect.yaml"


def prefect_file(path: Path = FILE, stages: Mapping[str, AnyStage] = EVERY_STAGE) -> dict[str, Any]:
    """Return a Prefect file with a deployment for each stage and its groups; those that it has stay as they are."""
    whole: dict[str, Any] = yaml.safe_load(path.read_text())
    present = {item["name"] for item in whole["deployments"]}
    wanted = [item for stage in stages.values() for item in deployments_of(stage, whole["definitions"]["job"])]
    return {**whole, "deployments": whole["deployments"] + [item for item in wanted if item["name"] not in present]}


def deployments_of(stage: AnyStage, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the Prefect file says of a stage and of its groups of shards.

    Args:
        stage: the stage.
        job: the job variables of every deployment.
    """
    pool = f"{{{{ ${pool_variable(stage)} }}}}" if callable(stage.uses_gpu) else fixed_pool(stage.uses_gpu)
    entry = f"deployments/deployed.py:{stage.name}"
    found = [declaration(stage.name.replace("_", "-"), entry, stage.summary, "stage", pool, job)]
    for name, on_gpu in group_deployments(stage).items():
        entry = f"deployments/groups.py:{name.replace('-', '_')}"
        what = f"A group of {stage.shard_by}s of {stage.name}; a run that shares the stage out starts it"
        found.append(declaration(name, entry, what, "group", fixed_pool(on_gpu), job))
    return found


def declaration(
    name: str, entrypoint: str, description: str, tag: str, pool: str, job: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one deployment as a Prefect file has it."""
    return {
        "name": name,
        "entrypoint": entrypoint,
        "description": description,
        "tags": ["trajpilot", tag],
        "work_pool": {"name": pool, "work_queue_name": "default", "job_variables": dict(job)},
    }


def fixed_pool(on_gpu: bool) -> str:
    """Return the pool of what does or does not run a model."""
    return GPU_POOL if on_gpu else CPU_POOL


def pool_variable(stage: AnyStage) -> str:
    """Return the variable of the environment by which the Prefect file gets the pool of a stage."""
    return f"TRAJPILOT_POOL_{stage.name.upper()}"


def pools_by_recipe(config: PipelineConfig, stages: Mapping[str, AnyStage] = EVERY_STAGE) -> dict[str, str]:
    """Return variable -> pool of the stages that run a model under some settings only, under those of a recipe."""
    chosen = [stage for stage in stages.values() if callable(stage.uses_gpu)]
    return {pool_variable(stage): fixed_pool(stage.on_gpu(stage.settings(config))) for stage in chosen}
