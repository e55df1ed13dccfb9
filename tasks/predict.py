"""A plan for a video of one's own as a task; what it says stands in the UI as a table, a picture and a page."""

from prefect import State, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed

from schemas.config import RunOptions
from schemas.predict import Plan, PlanQuery
from tasks.artifacts import PATIENCE_S, StageProgress, log_line, publish_page, publish_picture
from tasks.showing import shown
from trajpilot_core.markdown_escape import literal
from trajpilot_core.predict.page import gate_said, role
from trajpilot_core.predict.picture import paths_picture
from trajpilot_core.predict.run import predict
from trajpilot_core.report.committed import WARNING

STAGE = "predict"


@task(task_run_name="predict", cache_policy=NO_CACHE, persist_result=False)
def predict_plan(query: PlanQuery, run: RunOptions) -> State[str]:
    """Predict, write plan.json and plan.html, and show them."""
    with StageProgress(STAGE) as progress:
        made = predict(query, run, progress)
        progress.ended = f"the plan lies at {made.folder}"
    rows, title = steps_table(made.plan), f"The plan, by {made.plan.decided.name}"
    shown(title, lambda: create_table_artifact(table=rows, key="predict-plan", description=title), PATIENCE_S)
    publish_picture(STAGE, paths_picture(made.scene, simulated=made.plan.simulated), made.plan.video_sha256[:12])
    publish_page("predict-summary", "The plan, and where its page lies", summary(made.plan, made.folder))
    log_line(STAGE, f"{made.folder}/plan.html", progress.seconds)
    return Completed(message=progress.ended, data=made.folder)


def steps_table(plan: Plan) -> list[dict[str, str]]:
    """Return one row a step: its label, then the five best with their scores."""
    return [
        {"step": role(step.position, plan.horizon), "plan": literal(step.label)}
        | {f"no. {n}": literal(f"{top.label} ({top.score:.2f})") for n, top in enumerate(step.top, start=1)}
        for step in plan.decided.steps
    ]


def summary(plan: Plan, place: str) -> str:
    """Return a plan in a few lines of Markdown; texts of the data stay texts."""
    lines = [f"**{WARNING}**"] if plan.simulated else []
    lines += [f"The page: {literal(place)}/plan.html"]
    lines += [f"- {literal(note)}" for note in plan.notes]
    for row in plan.rows:
        steps = literal(" → ".join(step.label for step in row.steps))
        lines.append(f"**{literal(row.name)}**{' (decides)' if row.decides else ''}: {steps}")
        if row.gate is not None:
            whose = f", that of {literal(row.trusted.take)}" if row.trusted else ""
            lines.append(f"{literal(gate_said(row))}{whose}")
    return "\n\n".join(lines) + "\n"
