"""Leak checks of trainings: the best dev epoch is kept, all rows have one budget, settings are those that were dated.

Rules and reasons: docs/decisions/claims-checks.md.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from schemas.arrow import rows_of
from schemas.results import CurvePoint, LeakCheck
from schemas.training import PredictorConfig, ScorerConfig, TrainConfig
from trajpilot_core.data.chains import (
    ModelFiles,
    alignment_config,
    chains_of,
    load_predictor,
    open_model_files,
    predictor_config,
    trajectory_latents,
)
from trajpilot_core.data.cross_fitting import FINAL, SCORER_NO_GOAL, model_key, trained_variants
from trajpilot_core.data.planning import SPLITS, load_motion_data
from trajpilot_core.retrieval.bank import ChainView, chain_view
from trajpilot_core.stages.predictor import make_task
from trajpilot_core.store.tensors import Models
from trajpilot_core.studies.claims.leaks.context import LeakContext, Miss, none_of, not_run, worst_of
from trajpilot_core.training.dev_scores import recalls_at
from trajpilot_core.training.fit_predictor import is_measured_with_goal, measurer
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer_file import scorer_config
from trajpilot_core.training.scorer_fit import variant_of

DEV = SPLITS.index("dev")
CPU = "cpu"


def choice_checks(material: LeakContext) -> list[LeakCheck]:
    """Run the checks of checkpoints, budgets and settings."""
    with one_thread(CPU):
        return [
            *checkpoint_checks(material),
            budget_check(material),
            knobs_check(material),
        ]


def checkpoint_checks(material: LeakContext) -> list[LeakCheck]:
    """Check that the stored weights of encoders and predictors are those of the best dev epoch of their curves."""
    names = (
        "the stored motion encoders are those of their best dev epoch",
        "the stored predictors are those of their best dev epoch",
    )
    if not material.has("e_tau", "predictors", "alignment_curves", "predictor_curves"):
        return [not_run(name, "this run has no models or no curves") for name in names]
    files, config = open_model_files(material.inputs), material.config
    found: tuple[list[Miss], list[Miss]] = [], []
    for chain in chains_of(material.data):
        for seed in files.seeds:
            view = chain_view(material.data, files, chain, seed, CPU)
            found[0].append(encoder_miss(material, view, seed))
            found[1].extend(predictor_misses(material, view, files, seed))
    what = "points of dev {} between the stored weights and the best epoch"
    return [
        worst_of(names[0], found[0], config.segment_tolerance, what.format("R@5")),
        worst_of(names[1], found[1], config.choice_tolerance, what.format("M@1")),
    ]


def curve_of(material: LeakContext, entry: str, model: str, seed: int, quantity: str) -> list[float]:
    """Return the dev scores of one model, epoch by epoch."""
    rows = rows_of(CurvePoint, material.inputs.table(entry))
    wanted = (model, seed, "dev", quantity)
    mine = [r for r in rows if (r.model, r.seed, r.split, r.quantity) == wanted and r.epoch > 0]
    return [row.value for row in sorted(mine, key=lambda row: row.epoch)]


def encoder_miss(material: LeakContext, view: ChainView, seed: int) -> Miss:
    """Score the motion encoder of one chain on the dev segments, those without a feature included."""
    data, name = load_motion_data(material.inputs), f"{view.chain.name}/e_tau"
    dev = (data.take_split[data.segment_take] == DEV).nonzero()[:, 0]
    latents = trajectory_latents(view.models.e_tau, data.motions[dev])
    found = recalls_at(latents, data.bank, data.labels[dev], (5,))[5]
    return _miss(name, seed, found, curve_of(material, "alignment_curves", name, seed, "R@5"))


def predictor_misses(material: LeakContext, view: ChainView, files: ModelFiles, seed: int) -> Iterator[Miss]:
    """Score the predictors of one chain on the dev windows, as their training does."""
    task = make_task(view.data, files.e_tau, view.chain, seed, CPU)
    cfg = predictor_config(files.predictors)
    for variant in trained_variants(view.chain, cfg):
        name = f"{view.chain.name}/{variant}"
        with torch.inference_mode():
            model = load_predictor(files.predictors, view.chain, seed, variant, CPU)
            found = measurer(model, task, variant, sees_goal=is_measured_with_goal(cfg, variant))()["dev/M@1"]
        yield _miss(name, seed, found, curve_of(material, "predictor_curves", name, seed, "M@1"))


def _miss(name: str, seed: int, found: float, curve: Sequence[float]) -> Miss:
    """Compare a score with the best of a curve; infinitely far without one, so that no model without a curve passes."""
    best = max(curve, default=float("inf"))
    return Miss(f"{name}, seed {seed}", 100 * abs(found - best), f"{100 * found:.2f} and {100 * best:.2f}")


def budget_check(material: LeakContext) -> LeakCheck:
    """Check that all predictors, and all scorers, have one size, one set of seeds and one rule for when to stop."""
    check = "every row is trained with the same budget"
    if not material.has("e_tau", "predictors", "predictor_curves"):
        return not_run(check, "this run has no predictors or no curves")
    predictors = material.inputs.models("predictors")
    cfg = predictor_config(predictors)
    seeds = alignment_config(material.inputs.models("e_tau")).seeds
    trainings = predictor_trainings(material, cfg)
    if material.has("scorers", "scorer_curves"):
        trainings += scorer_trainings(scorer_config(material.inputs.models("scorers")))
    faults = size_faults(predictors, seeds)
    for entry, model, quantity, budget in trainings:
        for seed in seeds:
            scores = curve_of(material, entry, model, seed, quantity)
            faults += stop_faults(f"{model}, seed {seed}", scores, budget)
    n = len(trainings) * len(seeds)
    return none_of(check, faults, f"{n} trainings of {len(seeds)} seeds; at most {cfg.train.epochs} epochs a predictor")


class Planned(NamedTuple):
    """One training that every seed must have."""

    entry: str
    """Table of its curve."""
    model: str
    quantity: str
    """The dev score that selects its epoch."""
    train: TrainConfig


def predictor_trainings(material: LeakContext, cfg: PredictorConfig) -> list[Planned]:
    """Return the predictors of every chain."""
    return [
        Planned("predictor_curves", f"{chain.name}/{variant}", "M@1", cfg.train)
        for chain in chains_of(material.data)
        for variant in trained_variants(chain, cfg)
    ]


def scorer_trainings(config: ScorerConfig) -> list[Planned]:
    """Return the scorer, its ablations, and Scorer+, which has a budget of its own (three numbers are trained)."""
    variants = [variant_of(ablation) for ablation in (None, *config.ablations)]
    found = [Planned("scorer_curves", f"final/{variant}", "selection", config.train) for variant in variants]
    if config.anticipates:
        found.append(Planned("scorer_curves", f"final/{SCORER_NO_GOAL}", "selection", config.train))
    if config.plus is None:
        return found
    return [*found, Planned("scorer_curves", "final/scorer_plus", "log likelihood", config.plus.train)]


def stop_faults(name: str, scores: Sequence[float], train: TrainConfig) -> list[str]:
    """Report where a training did not run to the last epoch, nor until dev had not improved for `patience` epochs."""
    if not scores:
        return [f"{name} was not trained"]
    stale = len(scores) - 1 - list(scores).index(max(scores))
    if len(scores) == train.epochs or (len(scores) < train.epochs and stale == train.patience):
        return []
    return [
        f"{name} ended after {len(scores)} of {train.epochs} epochs, {stale} after its best (patience {train.patience})"
    ]


def size_faults(predictors: Models, seeds: Sequence[int]) -> list[str]:
    """Return which predictors of the final chain have other tensors than the first."""
    variants = trained_variants(FINAL, predictor_config(predictors))
    keys = [model_key(FINAL, seed, variant) for seed in seeds for variant in variants]
    sizes = [shapes_of(predictors, key) for key in keys]
    pairs = zip(keys, sizes, strict=True)
    return [f"{key} has other tensors than the others" for key, shapes in pairs if shapes != sizes[0]]


def shapes_of(models: Models, key: str) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of the parameters of one model; empty where there is no such model."""
    return {name: value.shape for name, value in models.read(key).items()} if key in models.keys else {}


def knobs_check(material: LeakContext) -> LeakCheck:
    """Check that the world is the one that the dated configuration asks for, dated no later than the run."""
    stored, dated, fixed_on, computed_on = material.provenance
    faults = []
    if stored.digest() != material.world.config.digest():
        faults.append("the world that was given is not the one of world.json")
    for name, value in dated:
        if getattr(stored, name) != value:
            faults.append(f"{name} is {getattr(stored, name)}, the dated configuration says {value}")
    latest = max(fixed_on, stored.fixed_on)
    if computed_on is not None and latest > computed_on:
        faults.append(f"the knobs were fixed on {latest}, after the run of {computed_on}")
    check = "the knobs of the world are those of the dated configuration"
    if computed_on is None and not faults:
        return not_run(check, "the knobs agree, but nobody noted when the run began")
    return none_of(check, faults, f"fixed on {latest}, no later than the run")
