"""Planners of other papers on our features and windows: one model per method, horizon and seed.

Source: paper, 4.1 (baselines) and 4.3; docs/decisions/planners.md.
"""

import logging
from itertools import product

import pyarrow.compute as pc

from schemas.arrow import table_of
from schemas.planners import PlannersConfig
from schemas.results import CurvePoint
from trajpilot_core.data.cross_fitting import chains_in, folds_of
from trajpilot_core.engine.stage import Work
from trajpilot_core.stages.trained import PLANNING, Fits, TrainedStage, Trainings, chain_facts, named, prepared
from trajpilot_core.store.reading import Inputs

log = logging.getLogger("trajpilot")
ENTRY = "planner_models"
VERSION = 1  # raise when the numbers that this stage writes change
FACTS = chain_facts(
    ("segments", "windows", "features", "motions"),  # motions only decide which windows exist
    ("scenario",),
    ("descriptions", "scenario_labels", "label_classes"),
)
"""What decides each training: what the takes that it is fitted and measured on contribute."""


def trainings(inputs: Inputs, cfg: PlannersConfig) -> Trainings:
    """Return every method, seed, and horizon that has windows both to fit on and in dev."""
    windows = inputs.table("windows", ["horizon", "split"])
    fitted, dev = (
        {*windows.filter(pc.equal(windows["split"], split))["horizon"].to_pylist()} for split in ("train", "dev")
    )
    variants = [f"{method}_h{horizon}" for method in cfg.methods for horizon in sorted(fitted & dev)]
    return named(product(chains_in(folds_of(inputs))[:1], cfg.seeds, variants))


def fits(work: Work[PlannersConfig], wanted: Trainings) -> Fits:
    """Prepare the planners; dev chooses the learning rate and the epoch."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import in_classes, load_planning_data
    from trajpilot_core.training.fit_planners import FIT, parts_of, planner_task
    from trajpilot_core.training.jobs import fitted_takes

    data = load_planning_data(work.inputs, "planners")
    if work.config.vocabulary == "classes":
        data = in_classes(data, work.inputs.table("label_classes"))
    task = planner_task(work.inputs, data, chains_of(data)[0])
    shape = {"shape": task.shape().to_json()}
    usable = {name: of for name, of in wanted.items() if parts_of(of[2])[1] in task.fit}
    for name in (name for name in wanted if name not in usable):
        log.warning("planners: %s skipped: no usable windows of its horizon to fit on, or none in dev", name)
        with work.sink.training(name) as share:  # committed without a model
            share.table("planners_curves", table_of(CurvePoint, []))
            share.models(ENTRY, shape)
    jobs, takes = prepared(work, usable, "planners", lambda *_: task), (data.segment_take, data.take_ids)
    return Fits(jobs, FIT, lambda job: shape | fitted_takes(job, *takes))


STAGE = TrainedStage(ENTRY, "planners_curves", trainings, FACTS, fits).stage(
    name="planners",
    reads=(*PLANNING, "take_contents", "scenario_labels", "label_classes", "descriptions"),
    config=PlannersConfig,
    version=VERSION,
    summary="Trains planners of other papers on closed vocabularies (SCHEMA, PDPP, ViterbiPlanNet)",
    lowers=tuple(f"planners.{name}.train.batch" for name in ("schema_net", "pdpp", "viterbi_plan_net")),
    outside_shards=("seeds", "methods", "has_ddpm_row", "samplings"),
)
