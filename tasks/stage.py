"""Tasks of stages: check the store, compute what is missing, report the counts; of world, pages and predictions.

A stage that writes pages ends with a copy in `<root>/reports`, and a summary in the UI and the log.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from prefect import State, Task, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State as StateObject
from prefect.client.schemas.objects import TaskRun
from prefect.states import Completed
from prefect.utilities.annotations import opaque, quote

from schemas.artifacts import ArtifactRef, ShardGroup
from schemas.config import PipelineConfig, RunOptions
from schemas.predict import PlanQuery
from schemas.world import WorldConfig
from tasks.artifacts import (
    PATIENCE_S,
    StageProgress,
    artifact_key,
    is_shown,
    log_line,
    publish_page,
    publish_picture,
    shown,
)
from tasks.fan_out import fan_out
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.execution.groups import compute_group
from trajpilot_core.incoming import literal
from trajpilot_core.report.committed import WARNING, committed_under, link_to, place_documents
from trajpilot_core.stages import EVERY_STAGE

RETRY_DELAYS_S: list[float] = [10.0, 60.0]
NOT_RUN = "NotReady"
"""Prefect's name for the state of a task that does not run because a task before it failed."""
LOG = logging.getLogger("trajpilot")
TITLE = "The report: main figures and location"
PAGES = ("report", "outcome", "pose_sources")
"""Stages that write pages."""


def can_heal(task_: Task[..., object], run: TaskRun, state: StateObject) -> bool:
    """Retry errors that may pass (a disk, a network share, a store); an error in data or code would recur."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, OSError)


RETRIED: dict[str, Any] = {
    "retries": len(RETRY_DELAYS_S),
    "retry_delay_seconds": RETRY_DELAYS_S,
    "retry_condition_fn": can_heal,
    "cache_policy": NO_CACHE,
}
"""Options of both tasks."""


@task(task_run_name="{name}", persist_result=False, **RETRIED)
def run_stage(name: str, config: PipelineConfig, run: RunOptions) -> State[ArtifactRef]:
    """Run one declared stage and draw its pictures; the manifests decide what is fresh, and a retry re-enters there."""
    with StageProgress(name) as progress:
        outcome = execute(EVERY_STAGE[name], config, run, EVERY_STAGE, progress, fan_out(config, run, progress))
        progress.ended = f"nothing to do; {outcome.message()}" if outcome.cached else outcome.message()
    log_line(name, outcome.message(), outcome.seconds)
    key, rows, text = artifact_key(name), outcome.summary(), f"**{literal(name)}**: {literal(outcome.message())}"
    shown(f"table of {name}", lambda: create_table_artifact(table=rows, key=key, description=text), PATIENCE_S)
    # Imported here because it loads torch, which registering a deployment does not need.
    from trajpilot_core.report.figures import figures_of
    from trajpilot_core.report.figures.base import draw

    mark = f"{outcome.ref.fingerprint[:12]}{'' if config.report.frames else ', without frames'}"
    for figure in figures_of(name):  # unless the UI has the picture of just that content
        if not is_shown(artifact_key(f"{name}-{figure.name}"), mark):
            publish_picture(name, draw(figure, committed_under(config, run)), mark)
    state_name = "Cached" if outcome.cached else "Completed"
    return Completed(name=state_name, message=outcome.message(), data=outcome.ref)


@task(task_run_name="{group.stage}", persist_result=False, **RETRIED)
def run_group(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> State[str]:
    """Compute the shards of a group that are missing; the run that started the group folds them into one manifest."""
    with StageProgress(group.stage) as progress:
        outcome = compute_group(config, run, EVERY_STAGE, group, progress)
    log_line(group.stage, outcome.message(), outcome.seconds)
    name = "Completed" if outcome.computed else "Cached"
    return Completed(name=name, message=outcome.message(), data=outcome.message())


def stage_state(
    name: str, config: PipelineConfig, run: RunOptions, read: Sequence[State[ArtifactRef]] = ()
) -> State[ArtifactRef]:
    """Run a stage as a task of the present flow.

    `read` are the final states of the stages that it reads: the arrows of the UI. If one of them failed, the task does
    not run, and its state is called `NOT_RUN`.
    """
    # Prefect also draws an arrow where a task receives an object from another's result, and equal strings are often one
    # object: so it must inspect neither the settings nor the results of earlier stages.
    settings = cast(PipelineConfig, quote(config)), cast(RunOptions, quote(run))
    before = [opaque(state) for state in read]
    return cast(State[ArtifactRef], run_stage(name, *settings, return_state=True, wait_for=before))


def stage_output(name: str, config: PipelineConfig, run: RunOptions) -> ArtifactRef:
    """Run a stage as a task of the present flow and hand on the reference to what it wrote; its error is raised."""
    return stage_state(name, config, run).result()


def group_output(config: PipelineConfig, run: RunOptions, group: ShardGroup) -> str:
    """Compute a group as a task of the present flow and return its counts in words; its error is raised."""
    return cast(State[str], run_group(config, run, group, return_state=True)).result()


@task(task_run_name="world", cache_policy=NO_CACHE, persist_result=False)
def simulate_world(world: WorldConfig, folder: str, workers: int) -> State[str]:
    """Write the simulated world, unless it is complete."""
    from trajpilot_core.simworld.write import write_world

    with StageProgress("world") as progress:
        summary = write_world(world, Path(folder), workers, progress)
    message = f"{summary.n_good} good takes ({summary.n_test} of them test), {summary.n_broken} broken ones; "
    message += f"reused {summary.reused}, written {summary.written}"
    log_line("world", message, progress.seconds)
    state: State[str] = Completed(name="Completed" if summary.written else "Cached", message=message, data=folder)
    return state


@task(task_run_name="place report", cache_policy=NO_CACHE, persist_result=False)
def place_report(report: ArtifactRef, config: PipelineConfig, run: RunOptions) -> State[str]:
    """Copy the report's documents to `<root>/reports`, publish the summary with a link, log main figures and path."""
    # Imported here because it loads torch, which registering a deployment does not need.
    from trajpilot_core.report.summary import main_figures, summary

    path = place_documents(report, run.root)
    committed = committed_under(config, run)
    link = link_to(path)  # none where the UI cannot serve it
    linked = f"[Open the page]({link}) (served by `trajpilot ui` on this root)\n\n" if link else ""
    publish_page("report-summary", TITLE, linked + summary(committed, report.stage, path))
    for line in main_figures(committed, report.stage):
        LOG.info("%s", line)
    LOG.info("%-13s %s", "report", path)
    return Completed(message=f"the report is at {path}", data=path)


@task(task_run_name="predict", cache_policy=NO_CACHE, persist_result=False)
def predict_plan(query: PlanQuery, run: RunOptions) -> State[str]:
    """Predict, write plan.json and plan.html, and show them."""
    # Imported here because it loads torch, which registering a deployment does not need.
    from trajpilot_core.predict.page import role, sentences
    from trajpilot_core.predict.run import predict

    with StageProgress("predict") as progress:
        plan = predict(query, run, progress)
        progress.ended = f"the plan is at {plan.folder}"
    rows = [
        {"step": role(step.position, plan.plan.horizon), "plan": literal(step.label)}
        | {f"no. {n}": literal(f"{top.label} ({top.score:.2f})") for n, top in enumerate(step.top, start=1)}
        for step in plan.plan.decided.steps
    ]
    title = f"The plan, by {plan.plan.decided.name}"
    shown(title, lambda: create_table_artifact(table=rows, key="predict-plan", description=title), PATIENCE_S)
    lines = [f"**{WARNING}**"] if plan.plan.simulated else []
    lines += [literal(line) for line in (f"The page: {plan.folder}/plan.html", *sentences(plan.plan))]
    publish_page("predict-summary", "The plan, and where its page is", "\n\n".join(lines) + "\n")
    log_line("predict", f"{plan.folder}/plan.html", progress.seconds)
    return Completed(message=progress.ended, data=plan.folder)
