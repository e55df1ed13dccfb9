"""The flows as they are deployed: a recipe, what a run changes in it, and where it runs.

Both parameters state only differences: `config` from the recipe that `run` names, `run` from the deployment's defaults,
which `trajpilot deploy` sets. So `prefect deployment run full-pipeline` needs no parameters. The form in the UI is
prefilled with the values of the deployment's recipe; only changed fields count (docs/decisions/recipes.md).
Flows of groups of shards are loaded from here because flows do not read the environment.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from prefect import Flow, flow, runtime

from deployments.declared import AskedRun
from deployments.recipes import over, recipe
from deployments.settings import WHOLE, deployed_place, hand_over_api_key
from flows import pipeline, stages
from flows.pipeline import named
from schemas.config import PipelineConfig, RunOptions
from schemas.predict import PlanQuery
from tasks.artifacts import announce
from tasks.group_runs import mark_tasks_of_crashed_runs
from trajpilot_core.engine.settings import remember_run
from trajpilot_core.stages import EVERY_STAGE, selected

T = TypeVar("T")
hand_over_api_key()
DEFAULTS = RunOptions.model_validate(deployed_place())
PREFILLED = recipe(DEFAULTS.recipe)


def run_name() -> str:
    """Name a run after its flow and its options, merged over the deployment's defaults."""
    stated = runtime.flow_run.parameters.get("run", {})
    options = stated if isinstance(stated, RunOptions) else RunOptions.model_validate(stated)
    return named(str(runtime.flow_run.flow_name), over(DEFAULTS, options))


def deployed(name: str, run_it: Callable[[PipelineConfig, RunOptions], T]) -> Flow[[PipelineConfig, RunOptions], T]:
    """Return a flow whose parameters are changes to a recipe instead of a whole configuration; its description is the
    docstring of its body `run_it`."""

    def as_asked(config: PipelineConfig = PREFILLED, run: AskedRun = DEFAULTS) -> T:
        run = over(DEFAULTS, run)
        base = recipe(run.recipe)
        whole = over(base, config, prefill=PREFILLED)
        stage = (name.replace("-", "_"),) if name != WHOLE else ()
        selected(run.replace(only=run.only or stage), whole)  # an unknown stage is refused before it is remembered
        mark_tasks_of_crashed_runs()
        announce(run.recipe, base, whole)
        remember_run(whole, run)
        return run_it(whole, run)

    as_asked.__doc__ = run_it.__doc__
    return flow(name=name, flow_run_name=run_name, persist_result=False)(as_asked)


def predict_as_asked(query: PlanQuery, run: AskedRun = DEFAULTS) -> str:
    """Predict the actions between two clips of a video, with the models under the deployment's root."""
    return pipeline.predict.fn(query, over(DEFAULTS, run))


@cache
def __getattr__(name: str) -> Flow[..., Any]:
    """Return the flow of a deployment: the entrypoint `deployments/deployed.py:features`.

    A flow is built on first access: describing its parameters takes Prefect a good part of a second, and Prefect
    reloads this file for every deployment and run.
    """
    if name == "full_pipeline":
        return deployed(WHOLE, pipeline.full_pipeline.fn)
    if name == "predict":
        return flow(name="predict", flow_run_name=run_name, persist_result=False)(predict_as_asked)
    if name in EVERY_STAGE:
        return deployed(name.replace("_", "-"), stages.stage_body(name))
    if name.endswith("_group"):
        return cast("Flow[..., Any]", getattr(stages, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: no such stage or flow")
