"""Prediction for a video of your own as a task; the plan is shown in the UI as a table and a page."""

from prefect import State, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed

from schemas.config import RunOptions
from schemas.predict import Plan, PlanQuery
from tasks.artifacts import PATIENCE_S, StageProgress, log_line, publish_page, shown
from trajpilot_core.incoming import literal
from trajpilot_core.report.committed import WARNING

STAGE = "predict"


@task(task_run_name="predict", cache_policy=NO_CACHE, persist_result=False)
def predict_plan(query: PlanQuery, run: RunOptions) -> State[str]:
    """Predict, write plan.json and plan.html, and show them."""
    # Imported here because it loads torch, which registering a deployment does not need.
    from trajpilot_core.predict.page import sentences
    from trajpilot_core.predict.run import predict

    with StageProgress(STAGE) as progress:
        plan = predict(query, run, progress)
        progress.ended = f"the plan is at {plan.folder}"
    rows, title = steps_table(plan.plan), f"The plan, by {plan.plan.decided.name}"
    shown(title, lambda: create_table_artifact(table=rows, key="predict-plan", description=title), PATIENCE_S)
    lines = [f"**{WARNING}**"] if plan.plan.simulated else []
    lines += [literal(line) for line in (f"The page: {plan.folder}/plan.html", *sentences(plan.plan))]
    publish_page("predict-summary", "The plan, and where its page is", "\n\n".join(lines) + "\n")
    log_line(STAGE, f"{plan.folder}/plan.html", progress.seconds)
    return Completed(message=progress.ended, data=plan.folder)


def steps_table(plan: Plan) -> list[dict[str, str]]:
    """Return one row per step: its label, then the top five with their scores."""
    from trajpilot_core.predict.page import role

    return [
        {"step": role(step.position, plan.horizon), "plan": literal(step.label)}
        | {f"no. {n}": literal(f"{top.label} ({top.score:.2f})") for n, top in enumerate(step.top, start=1)}
        for step in plan.decided.steps
    ]
