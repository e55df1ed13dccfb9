"""Causal predictors, per seed: three checkpoints of the final chain, two of each fold's, and goal-dropout twins of
traj and no_traj where they are asked for (paper, 3.4; docs/decisions/closed-vocabulary.md, anticipation.md)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from schemas.annotation import SHORTEST_PLAN
from schemas.arrow import table_of
from schemas.results import CurvePoint
from schemas.training import PredictorConfig
from trajpilot_core.data.contributions import Contributions, folds_of, horizons_of, part_of
from trajpilot_core.data.cross_fitting import (
    E_TAU,
    VARIANTS,
    Chain,
    chains,
    is_twin,
    model_key,
    seeds_of,
    trained_variants,
)
from trajpilot_core.data.imported_fits import with_imported
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.stages.pretrained import initial_fits, initial_weights

if TYPE_CHECKING:
    from trajpilot_core.data.cross_fitting import Chain
    from trajpilot_core.data.planning import PlanningData
    from trajpilot_core.store.tensors import Models
    from trajpilot_core.training.fit_predictor import PredictorTask
    from trajpilot_core.training.jobs import TrainingJob

VERSION = 6  # raise when the numbers that this module writes change
TAKES_GIVE = ("segments", "windows", "motions", "features")
"""Entries that trainings read of each take."""


def trainings(folds: int, seeds: Iterable[int], cfg: PredictorConfig) -> dict[str, tuple[Chain, int, str]]:
    """Return training -> its chain, seed and variant."""
    return {
        model_key(chain, seed, variant): (chain, seed, variant)
        for chain in chains(folds)
        for seed in seeds
        for variant in trained_variants(chain, cfg)
    }


def sources(inputs: Inputs, cfg: PredictorConfig, data_root: str) -> list[Source]:
    """Return one source per training: its E_tau, and what the takes that it is fitted and measured on contribute."""
    takes, fold_of = Contributions.read(inputs, TAKES_GIVE), folds_of(inputs)
    e_tau = inputs.parts("e_tau")
    every: dict[str, JsonValue] = {"text bank": part_of(inputs, "text_bank"), "horizons": horizons_of(inputs)}
    folds = 1 + max(fold_of.values())
    facts = {chain: {**takes.facts(fold_of, chain), **every} for chain in chains(folds)}
    known = trainings(folds, seeds_of(e_tau), cfg)
    begun = initial_weights(inputs, cfg, known, fold_of)

    def facts_of(name: str) -> dict[str, JsonValue]:
        chain, seed, variant = known[name]
        given = {**facts[chain], "E_tau": e_tau[model_key(chain, seed, E_TAU)], **begun.get(name, {})}
        return {**given, **masking_facts(cfg, variant)}

    return [Source(name, facts=facts_of(name)) for name in known]


def masking_facts(cfg: PredictorConfig, variant: str) -> dict[str, JsonValue]:
    """Return what the training of a variant depends on of the settings that stand outside its key.

    A setting without effect on it, or at its default, is left out: the key of a training that has it is what it was.
    """
    facts: dict[str, JsonValue] = {"goal dropout": cfg.twin_goal_dropout} if is_twin(variant) else {}
    if is_twin(variant) and cfg.anticipates:
        facts["selected"] = "without a goal"
    if cfg.masked_goal_target != "dropped" and (is_twin(variant) or cfg.goal_dropout > 0):
        facts["masked goal target"] = cfg.masked_goal_target
    return facts


def run(work: Work[PredictorConfig]) -> None:
    """Fit predictors of chains and seeds on the windows of their takes, keep the best epoch on dev."""
    from trajpilot_core.data.chains import fold_count
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.fit_predictor import predictor_shape, train_predictor
    from trajpilot_core.training.initial_weights import places_for
    from trajpilot_core.training.jobs import SHARED, fitted_takes, hand_over, put_tensors, run_jobs

    data = load_planning_data(work.inputs, "predictor")
    e_tau = work.inputs.models("e_tau")
    known = trainings(fold_count(data.fold), seeds_of(e_tau.keys), work.config)
    before = initial_fits(work.config)
    jobs: list[TrainingJob] = []
    floors: dict[str, list[CurvePoint]] = {}
    shape = ""
    for (chain, seed), variants in pending_of(work.pending, known).items():
        task = make_task(data, e_tau, chain, seed, work.runtime.device)
        task = replace(task, max_horizon=places_for(task.max_horizon, work.config))
        if not shape:
            shape = predictor_shape(task, work.config.head).to_json()
            put_tensors(work.runtime.scratch / "predictor", SHARED, task.tensors()[0])
        floors[model_key(chain, seed, VARIANTS[0])] = floor_rows(task, chain, seed)
        jobs += chain_jobs(task, chain, seed, variants, work)

    def ended(job: "TrainingJob") -> None:
        with work.sink.training(job.key) as share:
            rows = floors.get(job.key, []) + hand_over(job, "predictors", share)
            share.table("predictor_curves", table_of(CurvePoint, rows))
            fitted = with_imported(fitted_takes(job, data.segment_take, data.take_ids), before, data.take_ids)
            share.models("predictors", {"shape": shape, **fitted})

    run_jobs(jobs, train_predictor, work.runtime, ended)


def pending_of(
    pending: Sequence[Source], known: Mapping[str, tuple[Chain, int, str]]
) -> dict[tuple[Chain, int], tuple[str, ...]]:
    """Return (chain, seed) -> the variants that are to be trained, in the order of `known`."""
    asked = {source.shard for source in pending}
    found: dict[tuple[Chain, int], tuple[str, ...]] = {}
    for name, (chain, seed, variant) in known.items():
        if name in asked:
            found[chain, seed] = (*found.get((chain, seed), ()), variant)
    return found


def conclude(work: Work[PredictorConfig]) -> None:
    """Write the settings of the models; count and reject training and dev windows, evaluation counts those of test."""
    from trajpilot_core.data.planning import count_windows

    found = count_windows(work.inputs, "predictor")
    work.sink.models("predictors", {"config": work.config.model_dump_json()})
    kept = sum(n for split, n in found.kept.items() if split != "test")
    lost = [row for row in found.rejects if found.split_of[row.take] != "test"]
    work.sink.reject(lost)
    work.sink.count(kept + sum(row.n_units for row in lost), kept)


def make_task(data: "PlanningData", e_tau: "Models", chain: "Chain", seed: int, device: str) -> "PredictorTask":
    """Return the tensors of one chain and seed: its latents, the windows of its takes, and all dev windows.

    Raises:
        TrainingError: no window to fit on, or none in dev, or windows without a step between Start and Goal.
    """
    import torch

    from trajpilot_core.data.chains import fit_takes, load_e_tau, trajectory_latents
    from trajpilot_core.data.planning import rows_of_takes
    from trajpilot_core.training.fit_predictor import PredictorTask

    if min(data.windows, default=SHORTEST_PLAN) < SHORTEST_PLAN:
        raise TrainingError(
            f"windows of {min(data.windows)} segments leave no step to plan between Start and Goal, {SHORTEST_PLAN} is "
            "least; a corpus of such windows (basketball) waits for a head of its own: end its run before predictor"
        )
    takes = fit_takes(data, chain)
    fit = {h: w.segments[torch.isin(w.take, takes)] for h, w in data.windows.items()}
    dev = {h: w.segments[w.split == 1] for h, w in data.windows.items()}
    fit, dev = ({h: s for h, s in part.items() if len(s)} for part in (fit, dev))
    if not fit or not dev:
        raise TrainingError(
            f"chain {chain.name}: windows of {len(fit)} horizons to fit on and of {len(dev)} in dev; both are needed: "
            "look at the rejects of ingest, trajectories and features"
        )
    encoder = load_e_tau(e_tau, chain, seed, device)
    latents = trajectory_latents(encoder, data.motions.to(device)).cpu()
    rows = rows_of_takes(data.segment_take, takes)
    return PredictorTask(data.features, latents, data.labels, data.bank, rows, fit, dev, max(data.windows))


def chain_jobs(
    task: "PredictorTask", chain: "Chain", seed: int, variants: tuple[str, ...], work: Work[PredictorConfig]
) -> "list[TrainingJob]":
    """Write a chain's own tensors to scratch and return its trainings, one per variant."""
    from trajpilot_core.training.jobs import OWN, chain_job, put_tensors

    scratch = work.runtime.scratch / "predictor"
    own = scratch / f"{chain.name}-s{seed}"
    put_tensors(own, OWN, task.tensors()[1])
    return [chain_job(work, chain, seed, variant, own, scratch) for variant in variants]


def floor_rows(task: "PredictorTask", chain: "Chain", seed: int) -> list[CurvePoint]:
    """Return the dev scores of the rows that need no model, as epoch 0 of `<chain>/majority` and `<chain>/previous`."""
    from trajpilot_core.training.dev_scores import floor_scores

    labels = [{h: task.labels[segments] for h, segments in part.items()} for part in (task.fit, task.dev)]
    scores = floor_scores(labels[0], labels[1], len(task.bank))
    return [
        CurvePoint(model=f"{chain.name}/{row}", seed=seed, epoch=0, split="dev", quantity=name, value=value)
        for row, values in scores.items()
        for name, value in values.items()
    ]


STAGE = Stage(
    name="predictor",
    reads=("takes", "take_contents", "segments", "windows", "motions", "features", "text_bank", "folds", "e_tau"),
    writes=("predictors", "predictor_curves"),
    config=PredictorConfig,
    run=run,
    version=VERSION,
    summary="Trains the causal predictors, with and without trajectories",
    shard_by="training",
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    lowers=("predictor.train.batch",),
    conclude=conclude,
    outside_shards=("pretrained", "twin_goal_dropout", "anticipates", "masked_goal_target"),
)
