"""The deployments and their forms: those in deployments/prefect.yaml, and one for each stage and each kind of group.

`python -m deployments.declared` runs Prefect's own command line, except that equal parameters are described only once.
"""

import ssl
from collections.abc import Callable
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
from trajpilot_core.stages import EVERY_STAGE

Describe = Callable[[Signature, dict[str, str]], ParameterSchema]
FILE = Path(__file__).parent / "prefect.yaml"


class StageChoices:
    """Marker for a parameter of type RunOptions: its form offers the known stages wherever a stage is expected."""

    @staticmethod
    def __get_pydantic_json_schema__(core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the stage names to the JSON schema of RunOptions; the server validates parameters against it, too."""
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema)["properties"]
        choice = {"type": "string", "enum": list(EVERY_STAGE)}
        for name in ("only", "force"):
            fields[name]["items"] = choice
        fields["from_stage"]["anyOf"] = [choice, {"type": "null"}]
        return schema


AskedRun = Annotated[RunOptions, StageChoices]
"""Options of a deployed run. Prefect reloads deployed.py for each deployment; a class defined here stays the same."""


def prefect_file(config: PipelineConfig) -> dict[str, Any]:
    """Return the Prefect file with a deployment for every stage and its groups; `config` decides which need a GPU."""
    whole: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    wanted = []
    for stage in EVERY_STAGE.values():
        wanted.append((stage.name.replace("_", "-"), stage.summary, "stage", stage.on_gpu(stage.settings(config))))
        of_group = f"A group of {stage.shard_by}s of {stage.name}; started by a run that shares the stage out"
        wanted += [(name, of_group, "group", on_gpu) for name, on_gpu in group_deployments(stage).items()]
    items = [
        {
            "name": name,
            "entrypoint": f"deployments/deployed.py:{name.replace('-', '_')}",
            "description": description,
            "tags": ["trajpilot", tag],
            "work_pool": {
                "name": GPU_POOL if on_gpu else CPU_POOL,
                "work_queue_name": "default",
                "job_variables": dict(whole["definitions"]["job"]),
            },
        }
        for name, description, tag, on_gpu in wanted
    ]
    return {**whole, "deployments": [*whole["deployments"], *items]}


def once(describe: Describe) -> Describe:
    """Return a caching version of `describe`, which describes the parameters of a flow.

    Prefect builds their JSON schema three times when it loads a flow (each parameter alone, then all together) and
    three more times when it deploys it. Nearly all deployments have the same parameters, with a thousand settings.
    """
    known: list[tuple[list[Parameter], dict[str, str], str]] = []

    def described(signature: Signature, docstrings: dict[str, str]) -> ParameterSchema:
        """Return a copy of the description: Prefect may modify it."""
        parameters = list(signature.parameters.values())
        text = next((text for *key, text in known if key == [parameters, docstrings]), None)
        if text is None:
            text = describe(signature, docstrings).model_dump_json()
            known.append((parameters, docstrings, text))
        return ParameterSchema.model_validate_json(text)

    return described


if __name__ == "__main__":
    callables.generate_parameter_schema = once(callables.generate_parameter_schema)  # type: ignore[assignment]
    # Prefect opens four clients per deployment, and each would read all certificates again.
    ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]
    from prefect.cli import app

    app()
