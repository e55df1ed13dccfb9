"""Which deployments there are, and their forms: those of deployments/prefect.yaml, and of each stage that it lacks.

The file names every stage of this checkout (a test compares), so that Prefect's own commands find them there and
schedules can be added. A stage that is new to the list is deployed all the same. `python -m deployments.declared` is
Prefect's own command, except that equal parameters are described once.
"""

import ssl
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import yaml
from prefect.utilities import callables
from prefect.utilities.callables import ParameterSchema
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from deployments.settings import CPU_POOL, GPU_POOL
from schemas.config import PipelineConfig, RunOptions
from tasks.group_runs import group_deployments
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.stages import EVERY_STAGE

Describe = Callable[[Signature, dict[str, str]], ParameterSchema]
FILE = Path(__file__).parent / "prefect.yaml"


class StageChoices:
    """Marks a parameter of type RunOptions: where it asks for a stage, its form offers those of the list."""

    @staticmethod
    def __get_pydantic_json_schema__(core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Put the names of the stages into the JSON schema of RunOptions; the server checks parameters by it, too."""
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema)["properties"]
        one = {"type": "string", "enum": list(EVERY_STAGE)}
        for name in ("only", "force"):
            fields[name]["items"] = one
        fields["from_stage"]["anyOf"] = [one, {"type": "null"}]
        return schema


AskedRun = Annotated[RunOptions, StageChoices]
"""Options of a deployed run. Prefect loads deployed.py anew for each deployment; one class here makes them equal."""


def prefect_file(path: Path = FILE, stages: Mapping[str, AnyStage] = EVERY_STAGE) -> dict[str, Any]:
    """Return a Prefect file with a deployment for each stage and its groups; those that it has stay as they are."""
    whole: dict[str, Any] = yaml.safe_load(path.read_text())
    present = {item["name"] for item in whole["deployments"]}
    wanted = [item for stage in stages.values() for item in deployments_of(stage, whole["definitions"]["job"])]
    return {**whole, "deployments": whole["deployments"] + [item for item in wanted if item["name"] not in present]}


def deployments_of(stage: AnyStage, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the Prefect file states of a stage and of its groups of shards.

    Args:
        stage: the stage.
        job: the job variables of every deployment.
    """
    pool = f"{{{{ ${pool_variable(stage)} }}}}" if callable(stage.uses_gpu) else fixed_pool(stage.uses_gpu)
    wanted = [(stage.name.replace("_", "-"), stage.summary, "stage", pool)]
    of_group = f"A group of {stage.shard_by}s of {stage.name}; a run that shares the stage out starts it"
    wanted += [(name, of_group, "group", fixed_pool(on_gpu)) for name, on_gpu in group_deployments(stage).items()]
    return [
        {
            "name": name,
            "entrypoint": f"deployments/deployed.py:{name.replace('-', '_')}",
            "description": description,
            "tags": ["trajpilot", tag],
            "work_pool": {"name": pool, "work_queue_name": "default", "job_variables": dict(job)},
        }
        for name, description, tag, pool in wanted
    ]


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


def once(describe: Describe) -> Describe:
    """Return a function that describes the parameters of a flow as `describe` does, equal parameters once.

    Prefect describes them as a JSON schema three times when it loads a flow (each parameter alone, then all together)
    and three times more when it deploys it. Nearly all deployments have the same, with a thousand settings in them.
    """
    known: list[tuple[list[Parameter], dict[str, str], str]] = []

    def described(signature: Signature, docstrings: dict[str, str]) -> ParameterSchema:
        """Return a copy of the description of these parameters: Prefect may change what it gets."""
        asked = list(signature.parameters.values())
        text = next((text for parameters, texts, text in known if (parameters, texts) == (asked, docstrings)), None)
        if text is None:
            text = describe(signature, docstrings).model_dump_json()
            known.append((asked, docstrings, text))
        return ParameterSchema.model_validate_json(text)

    return described


if __name__ == "__main__":
    callables.generate_parameter_schema = once(callables.generate_parameter_schema)  # type: ignore[assignment]
    # Prefect opens four clients for a deployment, each of which would read all certificates again.
    ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]
    from prefect.cli import app

    app()
