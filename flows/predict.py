"""A plan for a video of one's own, from the models that a run has trained."""

from typing import cast

from prefect import State, flow

from schemas.config import RunOptions
from schemas.predict import PlanQuery
from tasks.predict import predict_plan


@flow(name="predict", persist_result=False)
def predict(query: PlanQuery, run: RunOptions) -> str:
    """Predict what happens between two clips of a video; return the folder of plan.json and plan.html."""
    return cast(State[str], predict_plan(query, run, return_state=True)).result()
