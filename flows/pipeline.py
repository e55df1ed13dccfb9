"""The pipeline of the paper from raw files to the report, its stages as tasks, and the flows around it.

The arrows of the UI show which stages each reads.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from prefect import State, flow, runtime

from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from schemas.predict import PlanQuery
from schemas.world import WorldConfig
from tasks.stage import NOT_RUN, PAGES, place_report, predict_plan, simulate_world, stage_state
from trajpilot_core.doctor.weights import require_outside
from trajpilot_core.engine.key import upstream
from trajpilot_core.errors import StagesFailedError, TrajPilotError
from trajpilot_core.stages import EVERY_STAGE, selected

LOG = logging.getLogger("trajpilot")


def run_stages(names: Sequence[str], config: PipelineConfig, run: RunOptions) -> dict[str, ArtifactRef]:
    """Run stages in the order of the pipeline and return their outputs.

    A stage that failed or does not run is logged immediately; those that do not read it still run.

    Raises:
        StagesFailedError: stages failed; names each, and those that did not run because of it. Those that do not depend
            on them were finished first.
        RuntimeError: the same, with a bug of the program among the causes.
    """
    after = upstream({name: stage.under(config) for name, stage in EVERY_STAGE.items()}, names)
    ended: dict[str, State[ArtifactRef]] = {}
    errors: dict[str, Exception] = {}
    for name in names:
        state = ended[name] = stage_state(name, config, run, [ended[other] for other in after[name]])
        if state.name == NOT_RUN:
            missing = ", ".join(other for other in after[name] if not ended[other].is_completed())
            LOG.error("%-13s not run: it reads %s", name, missing)
        elif not state.is_completed():
            error = state.result(raise_on_failure=False)
            errors[name] = error if isinstance(error, Exception) else RuntimeError(state.message or state.name)
            LOG.error("%-13s failed: %s: %s", name, type(errors[name]).__name__, errors[name])
    if not errors:
        return {name: state.result() for name, state in ended.items()}
    not_run = [name for name, state in ended.items() if state.name == NOT_RUN]
    message = "; ".join(f"{name} failed: {type(error).__name__}: {error}" for name, error in errors.items())
    message += f". Not run because of that: {', '.join(not_run)}" if not_run else ""
    faults = [error for error in errors.values() if not isinstance(error, TrajPilotError | OSError)]
    if faults:
        raise RuntimeError(message) from faults[0]
    raise StagesFailedError(message) from next(iter(errors.values()))


def run_name() -> str:
    """Name the current flow run by its parameter `run`."""
    stated = runtime.flow_run.parameters["run"]
    return named(str(runtime.flow_run.flow_name), RunOptions.model_validate(stated))


def named(flow_name: str, run: RunOptions) -> str:
    """Return the name of a flow run, e.g. `full-pipeline · demo, from scorer · runs/demo`."""
    chosen = [*(f"only {name}" for name in run.only), *([f"from {run.from_stage}"] if run.from_stage else [])]
    chosen += [f"force {name}" for name in run.force]
    here, root = Path.cwd(), Path(run.root)
    short = str(root.relative_to(here)) if root.is_absolute() and root.is_relative_to(here) else run.root
    return f"{flow_name} · {', '.join([run.recipe, *chosen])} · {short}"


@flow(name="full-pipeline", flow_run_name=run_name, persist_result=False)
def full_pipeline(config: PipelineConfig, run: RunOptions) -> dict[str, ArtifactRef]:
    """Run every stage (or those that `run` selects); fresh outputs are reused.

    ingest -> trajectories, features, text_bank -> alignment -> predictor -> scorer -> evaluation -> report,
    or, where outcomes of events are predicted: ... -> alignment -> outcome
    """
    names = selected(run, config)
    require_outside(config, run, names)
    done = run_stages(names, config, run)
    for name in PAGES:
        if name in done:
            place_report(done[name], config, run)
    return done


@flow(name="demo", flow_run_name=run_name, persist_result=False)
def demo(world: WorldConfig, config: PipelineConfig, run: RunOptions) -> dict[str, ArtifactRef]:
    """Write the simulated world into `run.data_root`, then run the full pipeline on it, offline."""
    simulate_world(world, run.data_root, run.workers)
    return full_pipeline(config, run)


@flow(name="predict", persist_result=False)
def predict(query: PlanQuery, run: RunOptions) -> str:
    """Predict what happens between two clips of a video; return the folder of plan.json and plan.html."""
    return cast(State[str], predict_plan(query, run, return_state=True)).result()
