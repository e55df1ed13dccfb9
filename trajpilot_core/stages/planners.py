"""Planners of other papers on our features and windows: one model per method, horizon and seed.

Source: paper, 4.1 (baselines) and 4.3; docs/decisions/planners.md.
"""

import logging
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.arrow import table_of
from schemas.planners import PlannersConfig
from schemas.results import CurvePoint
from trajpilot_core.data.contributions import Contributions, chains_in, folds_of, horizons_of, part_of
from trajpilot_core.data.cross_fitting import Chain, model_key
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work

if TYPE_CHECKING:
    from trajpilot_core.training.jobs import TrainingJob

log = logging.getLogger("trajpilot")
ENTRY = "planner_models"
VERSION = 1  # raise when the numbers that this stage writes change
TAKES_GIVE = ("segments", "windows", "features", "motions")
"""Entries that trainings read of each take; motions decide which windows there are, and nothing else here."""


def trainings(chain: Chain, horizons: list[int], cfg: PlannersConfig) -> dict[str, tuple[int, str]]:
    """Return training -> its seed and variant."""
    variants = [f"{method}_h{horizon}" for method in cfg.methods for horizon in horizons]
    return {model_key(chain, seed, variant): (seed, variant) for seed in cfg.seeds for variant in variants}


def horizons_in(inputs: Inputs) -> list[int]:
    """Return the horizons of which there are windows to fit on and in dev, ascending; the others have no planner."""
    windows = inputs.table("windows", ["horizon", "split"])
    found = [
        set(pc.unique(windows.filter(pc.equal(windows["split"], split))["horizon"]).to_pylist())
        for split in ("train", "dev")
    ]
    return sorted(int(horizon) for horizon in set.intersection(*found))


def sources(inputs: Inputs, cfg: PlannersConfig, data_root: str) -> list[Source]:
    """Return one source per training: what the takes that it is fitted and measured on contribute."""
    if not cfg.methods:
        return []
    takes, fold_of = Contributions.read(inputs, TAKES_GIVE, ("scenario",)), folds_of(inputs)
    chain = chains_in(fold_of)[0]
    facts: dict[str, JsonValue] = {
        **takes.facts(fold_of, chain),
        "text bank": part_of(inputs, "text_bank"),
        "descriptions": part_of(inputs, "descriptions"),
        "scenario labels": part_of(inputs, "scenario_labels"),
        "label classes": part_of(inputs, "label_classes"),
        "horizons": horizons_of(inputs),
    }
    return [Source(name, facts=facts) for name in trainings(chain, horizons_in(inputs), cfg)]


def run(work: Work[PlannersConfig]) -> None:
    """Fit what is asked for, and keep the learning rate and epoch that dev chooses."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import in_classes, load_planning_data
    from trajpilot_core.training.fit_planners import parts_of, train_planner
    from trajpilot_core.training.jobs import best_trial, chain_job, fitted_takes, put_task, run_jobs
    from trajpilot_core.training.planner_task import planner_task

    if not work.pending:
        return
    data = load_planning_data(work.inputs, "planners")
    if work.config.vocabulary == "classes":
        data = in_classes(data, work.inputs.table("label_classes"))
    chain, scratch = chains_of(data)[0], work.runtime.scratch / "planners"
    task = planner_task(work.inputs, data, chain)
    shape = task.shape().to_json()
    put_task(scratch, scratch, task)
    asked = {source.shard for source in work.pending}
    known = trainings(chain, horizons_in(work.inputs), work.config)
    jobs = []
    for name, (seed, variant) in known.items():
        if name in asked and parts_of(variant)[1] in task.fit:
            jobs.append(chain_job(work, chain, seed, variant, scratch, scratch))
        elif name in asked:
            leave_out(work, name, shape)

    def ended(job: "TrainingJob") -> None:
        chosen = best_trial(job, len(work.config.rates))
        with work.sink.training(job.key) as share:
            share.model(ENTRY, job.key, {name: value.numpy() for name, value in chosen.weights.items()})
            share.table("planners_curves", table_of(CurvePoint, chosen.curve))
            share.models(ENTRY, {"shape": shape, **fitted_takes(job, data.segment_take, data.take_ids)})

    run_jobs(jobs, train_planner, work.runtime, ended)


def leave_out(work: Work[PlannersConfig], name: str, shape: str) -> None:
    """Commit a training without a model: of its horizon no window has all features and motions, or none in dev."""
    log.warning("planners: %s is left out: no usable windows of its horizon to fit on, or none in dev", name)
    with work.sink.training(name) as share:
        share.table("planners_curves", table_of(CurvePoint, []))
        share.models(ENTRY, {"shape": shape})


def conclude(work: Work[PlannersConfig]) -> None:
    """Write the settings of the models, and empty tables where none were asked for; rows are windows."""
    if not work.config.methods:
        work.sink.table("planners_curves", table_of(CurvePoint, []))
    work.sink.models(ENTRY, {"config": work.config.model_dump_json()})
    n_windows = work.inputs.table("windows", ["horizon"]).num_rows
    work.sink.count(n_windows, n_windows)


STAGE = Stage(
    name="planners",
    reads=(
        "takes",
        "take_contents",
        "segments",
        "scenario_labels",
        "label_classes",
        "windows",
        "motions",
        "features",
        "text_bank",
        "descriptions",
        "folds",
    ),
    writes=(ENTRY, "planners_curves"),
    config=PlannersConfig,
    run=run,
    version=VERSION,
    summary="Trains planners of other papers on closed vocabularies (SCHEMA, PDPP, ViterbiPlanNet)",
    shard_by="training",
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    lowers=tuple(f"planners.{name}.train.batch" for name in ("schema_net", "pdpp", "viterbi_plan_net")),
    conclude=conclude,
    outside_shards=("seeds", "methods", "has_ddpm_row", "samplings"),
    may_be_empty=True,
)
