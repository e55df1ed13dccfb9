"""The pipeline of the paper from raw files to the report; and the flows around it."""

from pathlib import Path
from typing import cast

from prefect import State, flow, runtime

from flows.dag import run_stages
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from schemas.predict import PlanQuery
from schemas.world import WorldConfig
from tasks.announce import announce_change
from tasks.predict import predict_plan
from tasks.report import PAGES, place_report
from tasks.world import simulate_world
from trajpilot_core.doctor.preflight import require_outside
from trajpilot_core.engine.planning.watch import noticed
from trajpilot_core.stages import STAGES, selected


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


@flow(name="watch", flow_run_name=run_name, persist_result=False)
def watch(config: PipelineConfig, run: RunOptions) -> tuple[str, ...]:
    """Check once whether the data root has changed and a run would have work to do; no file is read.

    Changes are emitted as an event; its automation runs the pipeline.
    """
    news = noticed(STAGES, config, run)
    if news:
        announce_change(run.data_root, news)
    return news


@flow(name="predict", persist_result=False)
def predict(query: PlanQuery, run: RunOptions) -> str:
    """Predict what happens between two clips of a video; return the folder of plan.json and plan.html."""
    return cast(State[str], predict_plan(query, run, return_state=True)).result()
