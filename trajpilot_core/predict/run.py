"""From a query to plan.json and plan.html: all steps of a prediction in order."""

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from schemas.config import RunOptions
from schemas.predict import Plan, PlanQuery
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError
from trajpilot_core.predict.answers import Clips, answer_with, load_chain, refuse_horizon
from trajpilot_core.predict.footage import clip_features, open_footage
from trajpilot_core.predict.motion import head_motion
from trajpilot_core.predict.page import Scene, render, scene_of
from trajpilot_core.predict.plan import plan_of
from trajpilot_core.predict.trained import open_trained
from trajpilot_core.report.offline import dump
from trajpilot_core.report.tables.table import finite
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import GC_WAIT_S, in_use

STEPS = 5
SCRATCH = "trajpilot-predict-"


class WrittenPlan(NamedTuple):
    """A plan and its folder."""

    plan: Plan
    folder: str
    """Contains plan.json and plan.html."""


def predict(query: PlanQuery, run: RunOptions, progress: Progress = no_progress) -> WrittenPlan:
    """Answer a query as `planned` does, and write plan.json and plan.html."""
    plan, scene = planned(query, run, progress)
    folder = open_folder(query.out or run.root)
    below = "" if query.out else f"{name_of(plan)}/"
    folder.replace(f"{below}plan.json", dump(finite(plan.model_dump(mode="json"))))
    folder.replace(f"{below}plan.html", render(plan, scene))
    return WrittenPlan(plan, f"{folder.url}/{below}".rstrip("/"))


def name_of(plan: Plan) -> str:
    """Return the name of a plan's folder: the video, the intervals, the horizon."""
    video = plan.own_take.name if plan.own_take else Path(plan.query.video).stem
    (begin, _), (_, end) = plan.query.start_s, plan.query.goal_s
    text = f"predict-{video}-{begin:g}-{end:g}-h{plan.horizon}"
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", text)[:150]


def planned(query: PlanQuery, run: RunOptions, progress: Progress = no_progress) -> tuple[Plan, Scene]:
    """Answer a query with the models under `run.root`; nothing is written there.

    Raises:
        InputError: the video, an interval, the horizon or a file of the query cannot be used.
        CheckpointError: the models were trained with another encoder.
        StoreError: a stage has not run under the root, or its outputs do not belong together.
    """
    with in_use(run.root, GC_WAIT_S), tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
        progress(0, STEPS, "reading models and tables")
        root = open_trained(run.root)
        refuse_horizon(query.horizon, {row["horizon"] for row in root.rows("windows", ("horizon",))})
        if root.features.source == "released":
            raise InputError(
                f"the models under {root.folder.url} use released features ({root.features.released}), which cannot be "
                "computed from a video here; train on encoded features (features.source=encoded) to plan your own video"
            )
        progress(1, STEPS, "probing the video")
        footage = open_footage(query, root)
        poses = head_motion(query, footage, root, run, Path(scratch))
        progress(2, STEPS, "encoding the clips")
        features, encoder = clip_features(footage, root, run, Path(scratch))
        progress(3, STEPS, "planning")
        clips = Clips(features, poses.motions)
        chain = load_chain(root, query.seed, resolve_device(run.device))
        given = answer_with(chain, clips, query.horizon, footage.own.take_id if footage.own else None)
        plan = plan_of(query, root, footage, poses, given, encoder)
        progress(4, STEPS, "rendering the page")
        return plan, scene_of(plan, given, clips, footage, root, run.workers)
