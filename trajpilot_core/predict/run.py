"""From a query to plan.json and plan.html: the whole prediction, in the order in which it happens."""

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from schemas.config import RunOptions
from schemas.predict import FORMAT, Plan, PlanQuery
from schemas.results import Variant
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import InputError
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.predict.answers import Clips, Given, answer
from trajpilot_core.predict.clock import refuse_idle
from trajpilot_core.predict.drawing import Scene, scene_of
from trajpilot_core.predict.features import clip_features
from trajpilot_core.predict.footage import Footage, open_footage
from trajpilot_core.predict.motion import Found, Search, head_motion
from trajpilot_core.predict.page import render
from trajpilot_core.predict.plan import Texts, nearest, own_take, plan_rows, texts_of
from trajpilot_core.predict.trained import TrainedRoot, open_trained, undertrained
from trajpilot_core.report.json_report import dump, finite
from trajpilot_core.stages.ingest import LATE_START_S
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import GC_WAIT_S, in_use

STEPS = 5
SCRATCH = "trajpilot-predict-"


class WrittenPlan(NamedTuple):
    """A plan, what its pictures are drawn from, and where it was written."""

    plan: Plan
    scene: Scene
    folder: str
    """Holds plan.json and plan.html."""


def predict(query: PlanQuery, run: RunOptions, progress: Progress = no_progress) -> WrittenPlan:
    """Answer a query as `planned` does, and write the answer."""
    plan, scene = planned(query, run, progress)
    return WrittenPlan(plan, scene, written(plan, scene, run))


def planned(query: PlanQuery, run: RunOptions, progress: Progress = no_progress) -> tuple[Plan, Scene]:
    """Answer a query with what was trained under `run.root`; nothing is written below it.

    Args:
        query: the video and what is asked.
        run: root, device, decoders.
        progress: called with (done, total, what).

    Raises:
        InputError: the video, an interval, the horizon or a file of the query cannot be used.
        CheckpointError: the encoder is not the one that the models were trained with.
        StoreError: a stage has not run under the root, or its outputs do not belong together.
    """
    refuse_idle(query)
    with (
        in_use(run.root, GC_WAIT_S, run.protocols),
        tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch,
    ):
        progress(0, STEPS, "reads what was trained")
        root = open_trained(run.root, run.protocols)
        refuse_horizon(query.horizon, root)
        refuse_released(root)
        progress(1, STEPS, "looks at the video")
        footage = open_footage(query, root)
        moved = head_motion(Search(query, footage, root, run, Path(scratch)))
        progress(2, STEPS, "encodes the clips")
        features, encoder = clip_features(footage, root, run, Path(scratch))
        progress(3, STEPS, "plans")
        clips = Clips(features, moved.moved.motions if moved.moved else None)
        own = footage.own.take_id if footage.own else None
        given = answer(root, clips, query.horizon, own, query.seed, resolve_device(run.device))
        plan = plan_of(query, root, footage, moved, given, encoder)
        progress(4, STEPS, "draws the page")
        return plan, scene_of(plan, given, clips, footage, root, run.workers)


def refuse_horizon(horizon: int, root: TrainedRoot) -> None:
    """Refuse a horizon before anything is decoded.

    Raises:
        InputError: the models know no such horizon.
    """
    known = sorted(set(root.inputs.table("windows", ("horizon",))["horizon"].to_pylist()))
    if horizon not in known:
        raise InputError(
            f"--horizon {horizon}: the models under {root.folder.url} were trained for {', '.join(map(str, known))}; "
            "choose one of these (Start and Goal count)"
        )


def refuse_released(root: TrainedRoot) -> None:
    """Refuse models that have seen released features alone: there is no encoder for a video of one's own.

    Raises:
        InputError: the features of the root were released.
    """
    if root.features.source == "released":
        raise InputError(
            f"the models under {root.folder.url} rest on released features ({root.features.released}), which nothing "
            "here can make of a video; train on encoded ones (features.source=encoded) to plan a video of your own"
        )


def plan_of(query: PlanQuery, root: TrainedRoot, footage: Footage, moved: Found, given: Given, encoder: str) -> Plan:
    """Put the record together."""
    texts: Texts = texts_of(root)
    deciding: Variant | None = REFERENCE if moved.is_unasked_mixture else None
    rows = plan_rows(given, texts, undertrained(root, given.seed), deciding)
    return Plan(
        format=FORMAT,
        simulated=root.is_simulated,
        query=query,
        video_sha256=footage.sha256,
        duration_s=footage.probe.duration_s,
        fps=footage.probe.fps,
        root=root.folder.url,
        corpus=root.corpora,
        seed=given.seed,
        horizon=query.horizon,
        own_take=own_take(footage, texts),
        motion=moved.moved.motion if moved.moved else None,
        encoder=encoder,
        keys={stage: manifest.key for stage, manifest in root.manifests.items()},
        notes=notes(query, root, footage, moved, any(row.undertrained for row in rows)),
        rows=rows,
        nearest=nearest(given, texts),
    )


def notes(query: PlanQuery, root: TrainedRoot, footage: Footage, moved: Found, weak: bool) -> tuple[str, ...]:
    """State what must be known before the plan is believed."""
    said = [f"Rows of plugins are not asked: {', '.join(root.plugin_rows)}."] if root.plugin_rows else []
    said += [f"No head motion, so only No-Traj answers: {'; '.join(moved.notes)}."] if moved.moved is None else []
    said += [] if moved.moved is None else [f"{note}." for note in moved.notes]
    if moved.moved is not None and moved.is_unasked_mixture:
        said.append(f"So No-Traj decides; --poses {moved.moved.motion.source} asks for the other rows all the same.")
    if query.trajectory is not None and query.trajectory_offset_s is not None and moved.moved is not None:
        said.append(f"Without a timesync file: {moved.moved.motion.clock}. A wrong guess costs the Endpoint rows.")
    if footage.own is not None:
        learned = {
            "train": "the models were trained on it: the plan flatters",
            "dev": "checkpoints and thresholds were chosen on it: the plan flatters",
            "test": "no model has seen it",
        }[footage.own.split]
        said.append(
            f"This video is the take {footage.own.name} of the models' own corpus, split {footage.own.split}: "
            f"{learned}. Nothing of it is retrieved."
        )
    if footage.probe.start_s > LATE_START_S:
        said.append(
            f"The first picture is shown at {footage.probe.start_s:.2f} s of the file's own clock; here seconds count "
            "from that picture."
        )
    cap_s = root.ingest.interval_cap_s
    longest = max(end - begin for begin, end in (footage.start_s, footage.goal_s))
    if cap_s is not None and longest > 2 * cap_s + 1 / footage.probe.fps:
        said.append(f"A clip lasts {longest:g} s; the models know clips of at most {2 * cap_s:g} s.")
    if weak:
        said.append(
            "UNDERTRAINED: by the evaluation of this root, models of the rows marked so were not trained enough."
        )
    return tuple(said)


def written(plan: Plan, scene: Scene, run: RunOptions) -> str:
    """Write plan.json and plan.html; return their folder."""
    place = plan.query.out
    folder = open_folder(place or run.root, run.protocols)
    below = "" if place else f"{name_of(plan)}/"
    folder.replace(f"{below}plan.json", dump(finite(plan.model_dump(mode="json"))))
    folder.replace(f"{below}plan.html", render(plan, scene))
    return f"{folder.url}/{below}".rstrip("/")


def name_of(plan: Plan) -> str:
    """Return what the folder of a plan is called: the video, the intervals, the horizon."""
    whose = plan.own_take.name if plan.own_take else Path(plan.query.video).stem
    (begin, _), (_, end) = plan.query.start_s, plan.query.goal_s
    text = f"predict-{whose}-{begin:g}-{end:g}-h{plan.horizon}"
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", text)[:150]
