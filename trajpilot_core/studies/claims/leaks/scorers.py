"""Leak checks of the scorers: choices made again on dev, numbers of queries, and what weights contain of foreign takes.

Rules and reasons: docs/decisions/claims-checks.md. Axes: N dev windows, T temperatures.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.results import LeakCheck
from schemas.training import ScorerConfig
from trajpilot_core.data.chains import chains_of, held_out_takes, open_model_files
from trajpilot_core.data.cross_fitting import FINAL, model_key
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.models.role_chain import Sparse
from trajpilot_core.retrieval.bank import ChainView, build_bank, chain_view
from trajpilot_core.store.tensors import Models
from trajpilot_core.studies.claims.leaks.context import LeakContext, Miss, none_of, not_run, worst_of
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer import NEVER, Queries, best_threshold, decide, plain_mean
from trajpilot_core.training.scorer_file import load_plus, load_scorer, scorer_config
from trajpilot_core.training.scorer_fit import ScorerDecision, variant_of
from trajpilot_core.training.scorer_plus import plus_dev_scores
from trajpilot_core.training.scorer_plus_fit import PlusData, PlusDecision
from trajpilot_core.training.scorer_plus_statistics import plus_source
from trajpilot_core.training.scorer_queries import DevSet, collect_windows, dev_rows

CPU = "cpu"
DECIDE_BATCH = 512
NAMES = (
    "temperatures of kNN-labels and Pool-Mean are the best on dev",
    "gate thresholds are the best on dev",
    "gate thresholds are gate values of dev windows",
    "scorers learn from held-out training windows and choose on dev windows only",
    "bank and Scorer+ hold nothing of dev and test takes",
)


BELOW_BEST = "points of dev M@1 below the best choice"


class Choices(NamedTuple):
    """What was chosen on dev for the scorers, held against dev."""

    temperatures: list[Miss]
    thresholds: list[Miss]
    strange: list[str]
    """Thresholds that are no gate probability of a dev window."""
    counts: list[str]
    """Numbers of queries or of dev windows that differ from what the folds leave."""


def scorer_checks(material: LeakContext) -> list[LeakCheck]:
    """Check choices, numbers of queries, and that retrieval and Scorer+ hold nothing of foreign takes."""
    if not material.has("e_tau", "predictors", "scorers"):
        return [not_run(name, "this run has no scorer") for name in NAMES]
    files, scorers = open_model_files(material.inputs), material.inputs.models("scorers")
    found = Choices([], [], [], [])
    foreign: list[str] = []
    with one_thread(CPU):
        for seed in files.seeds:
            view = chain_view(material.data, files, chains_of(material.data)[0], seed, CPU)
            check_choices(material, view, scorers, seed, found)
            foreign += [f"seed {seed}: {part}" for part in foreign_parts(view, scorer_config(scorers))]
    if not found.thresholds:
        return [not_run(name, "there is no dev window") for name in NAMES]
    bound, n = material.config.choice_tolerance, len(found.thresholds)
    return [
        worst_of(NAMES[0], found.temperatures, bound, BELOW_BEST),
        worst_of(NAMES[1], found.thresholds, bound, BELOW_BEST),
        none_of(NAMES[2], found.strange, f"{n} thresholds"),
        none_of(NAMES[3], found.counts, f"{n} scorers; numbers of queries and of dev windows agree"),
        none_of(NAMES[4], foreign, "the same where the content of all dev and test takes is exchanged"),
    ]


def check_choices(material: LeakContext, view: ChainView, scorers: Models, seed: int, found: Choices) -> None:
    """Make the choices of one seed again on the dev windows and add what differs to `found`."""
    config = scorer_config(scorers)
    with tempfile.TemporaryDirectory(prefix="trajpilot-queries-") as folder:
        rows_of = dev_rows(material.data, config.max_queries)
        collector = collect_windows(view, "dev", rows_of, config, seed, Path(folder))
        dev = collector.dev_set()
        if dev.queries is not None:
            hold_against_dev(material, scorers, seed, dev, dev.queries, collector.plus_data(), found)


def hold_against_dev(
    material: LeakContext,
    scorers: Models,
    seed: int,
    dev: DevSet,
    queries: Queries,
    data: PlusData | None,
    found: Choices,
) -> None:
    """Add to `found` what differs between the stored choices of one seed and those that N dev queries give again."""
    config = scorer_config(scorers)
    decision = ScorerDecision.model_validate_json(scorers.about[model_key(FINAL, seed, variant_of(None))])
    averages = (
        ("kNN-labels", decision.knn_temperature, dev.knn_m1),
        ("Pool-Mean", decision.pool_temperature, dev.pool_m1),
    )
    for row, stored, m1_NT in averages:
        means = [plain_mean(m1_N, queries.n_mids) for m1_N in m1_NT.T]
        m1_of = dict(zip(config.temperatures, means, strict=True))
        best = max(m1_of, key=lambda value: m1_of[value])
        figures = f"{stored} is stored, {best} is the best of {len(m1_of)}"
        points = 100 * (m1_of[best] - m1_of.get(stored, 0.0))
        found.temperatures.append(Miss(f"{row}, seed {seed}", points, figures))
    for ablation in (None, *config.ablations):
        scorer, decision = load_scorer(scorers, seed, CPU, ablation)
        gate, choice = decide(scorer, queries, DECIDE_BATCH)
        name = f"{variant_of(ablation)}, seed {seed}"
        found.thresholds.append(threshold_miss(name, decision.threshold, gate, choice, queries))
        nearest = float((gate.double() - decision.threshold).abs().min())
        if decision.threshold != NEVER and nearest > material.config.gate_tolerance:
            found.strange.append(f"{name}: no dev gate within {nearest:.1e} of {decision.threshold:.6f}")
        found.counts.extend(count_faults(material, name, decision, config.max_queries, len(queries)))
    if data is not None and config.plus is not None:
        plus, chosen = load_plus(scorers, config.plus, seed, CPU)
        name, scores = f"scorer_plus, seed {seed}", plus_dev_scores(plus, data.dev, data.statistics[FINAL.name])
        check_plus(material, name, chosen, scores, found)
        found.counts.extend(count_faults(material, name, chosen, config.max_queries, len(queries)))


def check_plus(
    material: LeakContext, name: str, chosen: PlusDecision, scores: Mapping[str, float], found: Choices
) -> None:
    """Hold the threshold of Scorer+ and its dev score against those that dev gives again."""
    stored, best = chosen.dev.get("M@1", 0.0), scores["M@1"]
    note = f"M@1 {100 * stored:.2f} is stored, {100 * best:.2f} found"
    found.thresholds.append(Miss(name, 100 * abs(best - stored), note))
    gap = abs(scores["threshold"] - chosen.threshold)
    if gap > material.config.gate_tolerance:
        found.strange.append(f"{name}: {chosen.threshold:.6f} is stored, {scores['threshold']:.6f} is the best on dev")


def foreign_parts(view: ChainView, config: ScorerConfig) -> list[str]:
    """Return what the bank and Scorer+ hold that changes when the content of dev and test takes is exchanged.

    Their segments get each other's labels in reverse, and other features and motions; the models stay.
    """
    other = replace(view, data=exchanged(view.data), latents=exchanged_rows(view.data, view.latents))
    changed = []
    for horizon in view.data.windows:
        banks = [build_bank(one, horizon, config.key) for one in (view, other)]
        changed += [f"{name} of the bank, H={horizon}" for name in differing(*banks)]
    if config.plus is not None:
        sources = [plus_source(one, config) for one in (view, other)]
        for part in ("statistics", "takes", "motion", "recognition"):
            mine, theirs = (getattr(source.fitted, part) for source in sources)
            changed += [f"{part} of Scorer+ ({name})" for name in differing(mine, theirs)]
    return changed


def exchanged(data: PlanningData) -> PlanningData:
    """Return the data with the labels, features and motions of dev and test segments in reverse order."""
    labels, features, motions = (exchanged_rows(data, values) for values in (data.labels, data.features, data.motions))
    return replace(data, labels=labels, features=features, motions=motions)


def exchanged_rows(data: PlanningData, values: Tensor) -> Tensor:
    """Return (S, ...) values with the rows of dev and test segments in reverse order."""
    rows = (data.take_split[data.segment_take] != SPLITS.index("train")).nonzero()[:, 0]
    out = values.clone()
    out[rows] = values[rows.flip(0)]
    return out


def differing(mine: object, theirs: object) -> list[str]:
    """Return the names of the tensors in which two equal records differ; `values` for two bare tensors."""
    if isinstance(mine, Tensor) and isinstance(theirs, Tensor):
        both = [part.to_dense() if part.is_sparse else part for part in (mine, theirs)]
        return [] if torch.equal(*both) else ["values"]
    names = [f.name for f in fields(mine)] if is_dataclass(mine) else list(getattr(mine, "_fields", ()))
    pairs = ((name, getattr(mine, name), getattr(theirs, name)) for name in names)
    return [name for name, a, b in pairs if isinstance(a, Tensor | Sparse) and differing(a, b)]


def threshold_miss(name: str, stored: float, gate_N: Tensor, choice_N: Tensor, queries: Queries) -> Miss:
    """Return how far the stored threshold misses the best one.

    Args:
        name: scorer and seed.
        stored: threshold.
        gate_N: shape (N,), gate probabilities of the dev windows.
        choice_N: shape (N,), chosen candidates.
        queries: the N dev windows.
    """
    chosen = queries.m1.gather(1, choice_N[:, None])[:, 0]
    gain = torch.where(queries.valid.any(1), chosen - queries.fallback_m1, 0.0)

    def gained(threshold: float) -> float:
        return plain_mean(torch.where(gate_N >= threshold, gain, 0.0), queries.n_mids)

    best = best_threshold(gate_N, gain, queries.n_mids)
    return Miss(name, 100 * (gained(best) - gained(stored)), f"{stored:.6f} is stored, {best:.6f} is the best")


def count_faults(
    material: LeakContext, name: str, decision: ScorerDecision | PlusDecision, most: int, n_dev: int
) -> list[str]:
    """Compare the numbers of queries that a scorer learned from and chose on with those that the folds leave it."""
    data = material.data
    takes = [held_out_takes(data.take_split, data.fold, chain) for chain in chains_of(data)]
    held = sum(int(torch.isin(windows.take, own).sum()) for own in takes for windows in data.windows.values())
    wanted = (("n_queries", decision.n_queries, min(held, most)), ("n_dev", decision.n_dev, n_dev))
    return [f"{name}: {key} {noted}, not {value}" for key, noted, value in wanted if noted != value]
