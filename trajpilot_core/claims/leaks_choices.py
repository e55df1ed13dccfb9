"""Leak checks of choices: everything is chosen on dev, every row has the same budget, knobs are those that were dated.

Rules and reasons: docs/decisions/claims-checks.md. Axes: N dev windows, T temperatures.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.arrow import rows_of
from schemas.config import PredictorConfig, TrainConfig
from schemas.results import CurvePoint, LeakCheck
from trajpilot_core.claims.material import Material, at_most, none_of, not_run
from trajpilot_core.retrieval.bank import ChainView, chain_view
from trajpilot_core.training.chains import (
    ModelFile,
    ModelFiles,
    alignment_config,
    chains_of,
    held_out_takes,
    load_predictor,
    model_key,
    read_model_files,
    trajectory_latents,
    variants_of,
)
from trajpilot_core.training.data import SPLITS, load_motion_data
from trajpilot_core.training.fit_predictor import variant_latents
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.measures import mid_accuracy, nearest_labels, recall_at
from trajpilot_core.training.scorer import NEVER, Queries, best_threshold, decide, plain_mean
from trajpilot_core.training.scorer_file import FINAL, load_scorer, scorer_config
from trajpilot_core.training.scorer_fit import Decision, dev_set, variant_of

DEV = SPLITS.index("dev")
DECIDE_BATCH = 512
CPU = "cpu"


class Kept(NamedTuple):
    """One trained model: the dev score of its stored weights, computed again, and the best one of its curve."""

    name: str
    found: float
    best: float


def choice_checks(material: Material) -> list[LeakCheck]:
    """Run the checks of checkpoints, thresholds, temperatures, budgets and knobs."""
    with one_thread(CPU):
        return [
            *checkpoint_checks(material),
            *scorer_checks(material),
            budget_check(material),
            knobs_check(material),
        ]


def checkpoint_checks(material: Material) -> list[LeakCheck]:
    """Check that the stored weights of encoders and predictors are those of the best dev epoch of their curves."""
    names = (
        "the stored motion encoders are those of their best dev epoch",
        "the stored predictors are those of their best dev epoch",
    )
    if not material.has("e_tau", "predictors", "alignment_curves", "predictor_curves"):
        return [not_run(name, "this run has no models or no curves") for name in names]
    files = read_model_files(material.inputs)
    found: tuple[list[Kept], list[Kept]] = [], []
    for chain in chains_of(material.data):
        for seed in files.seeds:
            view = chain_view(material.data, files, chain, seed, CPU)
            found[0].append(kept_encoder(material, view, seed))
            found[1].extend(kept_predictors(material, view, files, seed))
    config = material.config
    bounds = ((config.segment_tolerance, "R@5"), (config.choice_tolerance, "M@1"))
    return [kept_check(name, kept, *bound) for name, kept, bound in zip(names, found, bounds, strict=True) if kept]


def kept_check(check: str, kept: Sequence[Kept], bound: float, metric: str) -> LeakCheck:
    """Check that every stored model scores on dev as the best epoch of its curve did."""
    worst = max(kept, key=lambda row: abs(row.found - row.best))
    detail = (
        f"points of dev {metric} between the stored weights and the best epoch, {worst.name} of {len(kept)}: "
        f"{100 * worst.found:.2f} and {100 * worst.best:.2f}"
    )
    return at_most(check, 100 * abs(worst.found - worst.best), bound, detail)


def curve_of(material: Material, entry: str, model: str, seed: int, quantity: str) -> list[float]:
    """Return the dev scores of one model, epoch by epoch."""
    rows = rows_of(CurvePoint, material.inputs.table(entry))
    wanted = (model, seed, "dev", quantity)
    mine = [r for r in rows if (r.model, r.seed, r.split, r.quantity) == wanted and r.epoch > 0]
    return [row.value for row in sorted(mine, key=lambda row: row.epoch)]


def kept_encoder(material: Material, view: ChainView, seed: int) -> Kept:
    """Score the motion encoder of one chain on the dev segments, those without a feature included."""
    data, name = load_motion_data(material.inputs), f"{view.chain.name}/e_tau"
    dev = (data.take_split[data.segment_take] == DEV).nonzero()[:, 0]
    latents = trajectory_latents(view.models.e_tau, data.controls[dev])
    found = recall_at(latents, data.bank, data.labels[dev], 5)
    return Kept(f"{name}, seed {seed}", found, best_of(curve_of(material, "alignment_curves", name, seed, "R@5")))


def kept_predictors(material: Material, view: ChainView, files: ModelFiles, seed: int) -> Iterator[Kept]:
    """Score the predictors of one chain on the dev windows."""
    data = view.data
    dev = {h: w.segments[w.split == DEV] for h, w in data.windows.items()}
    dev = {h: segments for h, segments in dev.items() if len(segments)}
    truth = {h: data.labels[segments] for h, segments in dev.items()}
    for variant in variants_of(view.chain):
        model = load_predictor(files.predictors, view.chain, seed, variant, CPU)

        @torch.inference_mode()
        def predict(segments: Tensor, model: torch.nn.Module = model, variant: str = variant) -> Tensor:
            """Return (N, H, E) predictions for (N, H) segments."""
            latents = variant_latents(view.latents[segments], variant)
            ends = data.features[segments[:, 0]], data.features[segments[:, -1]]
            out: Tensor = model(*ends, latents, segments.shape[1])
            return out

        found = mid_accuracy(nearest_labels(predict, dev, data.bank), truth)["M@1"]
        name = f"{view.chain.name}/{variant}"
        yield Kept(f"{name}, seed {seed}", found, best_of(curve_of(material, "predictor_curves", name, seed, "M@1")))


def best_of(scores: Sequence[float]) -> float:
    """Return the highest score; infinite where there is none, so that a model without a curve does not pass."""
    return max(scores, default=float("inf"))


class Shortfall(NamedTuple):
    """One choice of one seed: points of dev M@1 by which it misses the best choice on dev."""

    name: str
    points: float
    note: str


class Choices(NamedTuple):
    """What was chosen on dev for the scorers, held against dev."""

    temperatures: list[Shortfall]
    thresholds: list[Shortfall]
    strange: list[str]
    """Thresholds that are no gate probability of a dev window."""
    counts: list[str]
    """Numbers of queries or of dev windows that differ from what the folds leave."""


def scorer_checks(material: Material) -> list[LeakCheck]:
    """Check that thresholds and temperatures maximise dev M@1, and that queries are held-out training windows."""
    names = (
        "temperatures of kNN-labels and Pool-Mean are the best on dev",
        "gate thresholds are the best on dev",
        "gate thresholds are gate probabilities of dev windows",
        "scorers learn from held-out training windows and choose on dev windows only",
    )
    if not material.has("e_tau", "predictors", "scorers"):
        return [not_run(name, "this run has no scorer") for name in names]
    files, scorers = read_model_files(material.inputs), ModelFile(*material.inputs.model("scorers"))
    found = Choices([], [], [], [])
    for seed in files.seeds:
        view = chain_view(material.data, files, chains_of(material.data)[0], seed, CPU)
        look_at_choices(material, view, scorers, seed, found)
    if not found.thresholds:
        return [not_run(name, "there is no dev window") for name in names]
    bound, n = material.config.choice_tolerance, len(found.thresholds)
    return [
        shortfall_check(names[0], found.temperatures, bound),
        shortfall_check(names[1], found.thresholds, bound),
        none_of(names[2], found.strange, f"{n} thresholds"),
        none_of(names[3], found.counts, f"{n} scorers; numbers of queries and of dev windows agree"),
    ]


def look_at_choices(material: Material, view: ChainView, scorers: ModelFile, seed: int, found: Choices) -> None:
    """Make the choices of one seed again on the dev windows and add what differs to `found`."""
    config = scorer_config(scorers)
    dev = dev_set(view, config)
    if dev.queries is None:
        return
    decision = Decision.model_validate_json(scorers.metadata[model_key(FINAL, seed, variant_of(None))])
    averages = (
        ("kNN-labels", decision.knn_temperature, dev.knn_m1),
        ("Pool-Mean", decision.pool_temperature, dev.pool_m1),
    )
    for row, stored, m1 in averages:
        name = f"{row}, seed {seed}"
        found.temperatures.append(temperature_shortfall(name, stored, config.temperatures, m1, dev.queries.n_mids))
    for ablation in (None, *config.ablations):
        scorer, decision = load_scorer(scorers, seed, CPU, ablation)
        gate, choice = decide(scorer, dev.queries, DECIDE_BATCH)
        name = f"{variant_of(ablation)}, seed {seed}"
        found.thresholds.append(threshold_shortfall(name, decision.threshold, gate, choice, dev.queries))
        nearest = float((gate.double() - decision.threshold).abs().min())
        if decision.threshold != NEVER and nearest > material.config.gate_tolerance:
            found.strange.append(f"{name}: no dev gate within {nearest:.1e} of {decision.threshold:.6f}")
        found.counts.extend(count_faults(material, name, decision, config.max_queries, len(dev.queries)))


def shortfall_check(check: str, found: Sequence[Shortfall], bound: float) -> LeakCheck:
    """Check that no choice misses the best one on dev."""
    worst = max(found, key=lambda row: row.points)
    detail = f"points of dev M@1 below the best choice, {worst.name} of {len(found)}: {worst.note}"
    return at_most(check, worst.points, bound, detail)


def temperature_shortfall(
    name: str, stored: float, grid: Sequence[float], m1_NT: Tensor, horizon_N: Tensor
) -> Shortfall:
    """Return how far the stored temperature misses the best of the grid; (N, T) M@1 and (N,) horizons of dev."""
    scores = {value: plain_mean(m1_NT[:, t], horizon_N) for t, value in enumerate(grid)}
    best = max(scores, key=lambda value: scores[value])
    points = 100 * (scores[best] - scores.get(stored, 0.0))
    return Shortfall(name, points, f"{stored} is stored, {best} is the best of {len(scores)}")


def threshold_shortfall(name: str, stored: float, gate_N: Tensor, choice_N: Tensor, queries: Queries) -> Shortfall:
    """Return how far the stored threshold misses the best one.

    Args:
        name: scorer and seed.
        stored: threshold.
        gate_N: (N,) gate probabilities of the dev windows.
        choice_N: (N,) chosen candidates.
        queries: the N dev windows.
    """
    chosen = queries.m1.gather(1, choice_N[:, None])[:, 0]
    gain = torch.where(queries.valid.any(1), chosen - queries.fallback_m1, 0.0)

    def gained(threshold: float) -> float:
        return plain_mean(torch.where(gate_N >= threshold, gain, 0.0), queries.n_mids)

    best = best_threshold(gate_N, gain, queries.n_mids)
    return Shortfall(name, 100 * (gained(best) - gained(stored)), f"{stored:.6f} is stored, {best:.6f} is the best")


def count_faults(material: Material, name: str, decision: Decision, most: int, n_dev: int) -> list[str]:
    """Compare the numbers of queries that a scorer learned from and chose on with those that the folds leave it."""
    data = material.data
    held = 0
    for chain in chains_of(data):
        takes = held_out_takes(data.take_split, data.fold, chain)
        held += sum(int(torch.isin(windows.take, takes).sum()) for windows in data.windows.values())
    wanted = {"n_queries": min(held, most), "n_dev": n_dev}
    told = {"n_queries": decision.n_queries, "n_dev": decision.n_dev}
    return [f"{name}: {key} {told[key]}, not {value}" for key, value in wanted.items() if told[key] != value]


def budget_check(material: Material) -> LeakCheck:
    """Check that all predictors, and all scorers, have one size, one set of seeds and one rule for when to stop."""
    check = "every row is trained with the same budget"
    if not material.has("e_tau", "predictors", "predictor_curves"):
        return not_run(check, "this run has no predictors or no curves")
    file = ModelFile(*material.inputs.model("predictors"))
    train = PredictorConfig.model_validate_json(file.metadata["config"]).train
    seeds = alignment_config(ModelFile(*material.inputs.model("e_tau"))).seeds
    faults, n = [], 0
    for chain in chains_of(material.data):
        for variant in variants_of(chain):
            for seed in seeds:
                n += 1
                scores = curve_of(material, "predictor_curves", f"{chain.name}/{variant}", seed, "M@1")
                faults += stop_faults(f"{chain.name}/{variant}, seed {seed}", scores, train)
    faults += size_faults(file, seeds)
    if material.has("scorers", "scorer_curves"):
        config = scorer_config(ModelFile(*material.inputs.model("scorers")))
        for ablation in (None, *config.ablations):
            for seed in seeds:
                n += 1
                name = f"final/{variant_of(ablation)}"
                scores = curve_of(material, "scorer_curves", name, seed, "selection")
                faults += stop_faults(f"{name}, seed {seed}", scores, config.train)
    return none_of(check, faults, f"{n} trainings of {len(seeds)} seeds; at most {train.epochs} epochs a predictor")


def stop_faults(name: str, scores: Sequence[float], train: TrainConfig) -> list[str]:
    """Say where a training did not run to the last epoch, nor until dev had not improved for `patience` epochs."""
    if not scores:
        return [f"{name} was not trained"]
    stale = len(scores) - 1 - list(scores).index(max(scores))
    if len(scores) == train.epochs or (len(scores) < train.epochs and stale == train.patience):
        return []
    return [
        f"{name} ended after {len(scores)} of {train.epochs} epochs, {stale} after its best (patience {train.patience})"
    ]


def size_faults(file: ModelFile, seeds: Sequence[int]) -> list[str]:
    """Say which predictors of the final chain have other tensors than the first."""
    faults = []
    sizes: dict[str, dict[str, tuple[int, ...]]] = {}
    for seed in seeds:
        for variant in variants_of(FINAL):
            key = model_key(FINAL, seed, variant)
            start = len(key) + 1
            sizes[key] = {k[start:]: v.shape for k, v in file.tensors.items() if k.startswith(f"{key}/")}
    first = next(iter(sizes.values()))
    faults += [f"{key} has other tensors than the others" for key, shapes in sizes.items() if shapes != first]
    return faults


def knobs_check(material: Material) -> LeakCheck:
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
