"""Retrieval attention: one model of the final chain per seed and variant (docs/decisions/retrieval-attention.md)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.arrow import table_of
from schemas.results import CurvePoint
from schemas.training import AttentionConfig, AttentionVariant
from trajpilot_core.data.contributions import Contributions, folds_of, horizons_of, part_of
from trajpilot_core.data.cross_fitting import E_TAU, Chain, attention_row, chains, model_key, seeds_of
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.stages.needs_of_attention import attention_needs
from trajpilot_core.stages.predictor import TAKES_GIVE, make_task, pending_of

if TYPE_CHECKING:
    from trajpilot_core.data.planning import PlanningData
    from trajpilot_core.retrieval.neighbours import Neighbours
    from trajpilot_core.store.tensors import Models
    from trajpilot_core.training.fit_attention import AttentionTask
    from trajpilot_core.training.jobs import TrainingJob

ENTRY = "attention_models"
VERSION = 1  # raise when the numbers that this stage writes change


def trainings(chain: Chain, seeds: Iterable[int], cfg: AttentionConfig) -> dict[str, tuple[Chain, int, str]]:
    """Return training -> its chain, seed and variant."""
    return {model_key(chain, seed, variant): (chain, seed, variant) for seed in seeds for variant in cfg.variants}


def sources(inputs: Inputs, cfg: AttentionConfig, data_root: str) -> list[Source]:
    """Return one source per training: its E_tau, and what the takes that it is fitted and measured on contribute."""
    fold_of, e_tau = folds_of(inputs), inputs.parts("e_tau")
    chain = chains(1 + max(fold_of.values()))[0]
    facts: dict[str, JsonValue] = {
        **Contributions.read(inputs, TAKES_GIVE).facts(fold_of, chain),
        "text bank": part_of(inputs, "text_bank"),
        "horizons": horizons_of(inputs),
    }
    return [
        Source(name, facts={**facts, "E_tau": e_tau[model_key(chain, seed, E_TAU)]})
        for name, (_, seed, _) in trainings(chain, seeds_of(e_tau), cfg).items()
    ]


def run(work: Work[AttentionConfig]) -> None:
    """Find the neighbours of all windows once, fit what is asked for, keep the best epoch on dev."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.retrieval.neighbours import neighbours_of_windows
    from trajpilot_core.training.fit_attention import attention_shape, attention_tensors, train_attention
    from trajpilot_core.training.jobs import OWN, SHARED, fitted_takes, hand_over, put_tensors, run_jobs
    from trajpilot_core.training.loop import one_thread

    if not work.pending:
        return
    data, e_tau, device = load_planning_data(work.inputs, "attention"), work.inputs.models("e_tau"), work.runtime.device
    chain, shared = chains_of(data)[0], work.runtime.scratch / "attention"
    with one_thread(device):
        near = neighbours_of_windows(data.to(device), chain, work.config, work.runtime.progress)
    jobs: list[TrainingJob] = []
    shape = ""
    for (_, seed), variants in pending_of(work.pending, trainings(chain, seeds_of(e_tau.keys), work.config)).items():
        task = task_of_seed(data, e_tau, chain, seed, near, device)
        tensors, shape = attention_tensors(task), attention_shape(task).to_json()
        if not jobs:
            put_tensors(shared, SHARED, tensors[0])
        put_tensors(shared / f"s{seed}", OWN, tensors[1])
        jobs += [job_of(chain, seed, variant, work) for variant in variants]

    def ended(job: "TrainingJob") -> None:
        with work.sink.training(job.key) as share:
            share.table("attention_curves", table_of(CurvePoint, hand_over(job, ENTRY, share)))
            share.models(ENTRY, {"shape": shape, **fitted_takes(job, data.segment_take, data.take_ids)})

    run_jobs(jobs, train_attention, work.runtime, ended)


def task_of_seed(
    data: "PlanningData",
    e_tau: "Models",
    chain: Chain,
    seed: int,
    near: "Mapping[str, Mapping[int, Neighbours]]",
    device: str,
) -> "AttentionTask":
    """Return the tensors of one seed: those of a predictor of the chain, the states of its E_tau, and the neighbours.

    Raises:
        TrainingError: there is nothing to fit on, or nothing in dev (`stages.predictor.make_task`).
    """
    from trajpilot_core.data.chains import load_e_tau, trajectory_states
    from trajpilot_core.training.fit_attention import AttentionTask

    plan = make_task(data, e_tau, chain, seed, device)
    states = trajectory_states(load_e_tau(e_tau, chain, seed, device), data.motions.to(device)).cpu()
    return AttentionTask(plan, states, near)


def job_of(chain: Chain, seed: int, variant: str, work: Work[AttentionConfig]) -> "TrainingJob":
    """Return one training, whose tensors lie in scratch."""
    from trajpilot_core.training.jobs import chain_job

    shared = work.runtime.scratch / "attention"
    name = attention_row(cast(AttentionVariant, variant))
    return chain_job(work, chain, seed, variant, shared / f"s{seed}", shared, name)


def conclude(work: Work[AttentionConfig]) -> None:
    """Write the settings of the models, and an empty table of curves where none was asked for; rows are windows."""
    if not work.config.variants:
        work.sink.table("attention_curves", table_of(CurvePoint, []))
    work.sink.models(ENTRY, {"config": work.config.model_dump_json()})
    windows = work.inputs.table("windows", ["split"])["split"]
    n_windows = len(windows) - int(pc.sum(pc.equal(windows, "test")).as_py() or 0)
    work.sink.count(n_windows, n_windows)


STAGE = Stage(
    name="attention",
    reads=("takes", "take_contents", "segments", "windows", "motions", "features", "text_bank", "folds", "e_tau"),
    writes=(ENTRY, "attention_curves"),
    config=AttentionConfig,
    run=run,
    version=VERSION,
    summary="Trains causal predictors that read retrieved training windows: labels, head motion or both",
    shard_by="training",
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    needs=attention_needs,
    conclude=conclude,
    outside_shards=("variants",),
    may_be_empty=True,
)
