"""Fitting the scorers of one seed: the two temperatures, the loop, and what is kept.

In their entry they have the keys `final/s<seed>/<variant>`; what dev decided is in what holds for all models.

Source: docs/decisions/paper-gaps.md (28 to 32); docs/decisions/scorer.md.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.base import Record
from schemas.results import CurvePoint, ScorerChoice
from schemas.training import Ablation, ScorerConfig
from trajpilot_core.data.chains import ModelFiles, frozen
from trajpilot_core.data.cross_fitting import FINAL, SCORER_NO_GOAL, model_key
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.engine.progress import portion
from trajpilot_core.engine.sink import Sink
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import StoreError
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.dev_scores import sampled_fit
from trajpilot_core.training.loop import Training, fit, index_batches, seeded
from trajpilot_core.training.scorer import (
    NEVER,
    Queries,
    class_weights,
    decide,
    dev_scores,
    gate_targets,
    inputs_at,
    judged,
    plain_mean,
    scorer_loss,
    scores_at,
)
from trajpilot_core.training.scorer_queries import Collected, collect

ENTRY = "scorers"
SHAPE_NO_GOAL = "shape_no_goal"
"""Note of the shape of scorers without a goal; `shape` is that of the others. The number of ends is not noted."""
SCORER = "scorer"
"""Variant of the paper's scorer; the ablated ones are `scorer_<ablation>`."""


class ScorerDecision(Record):
    """What was chosen on dev for one seed."""

    threshold: float
    """A window opens where its gate probability reaches this; above 1: never."""
    knn_temperature: float
    pool_temperature: float


class FittedScorer(NamedTuple):
    """One scorer and its curve."""

    state: dict[str, Tensor]
    shape: ScorerShape
    decision: ScorerDecision
    curve: list[CurvePoint]
    choices: Sequence[ScorerChoice] = ()
    """On dev; none where it was not trained or there is no dev window."""


def fit_scorers(
    data: PlanningData, files: ModelFiles, config: ScorerConfig, seed: int, runtime: Runtime, *, sees_goal: bool = True
) -> dict[str, FittedScorer]:
    """Fit the paper's scorer and its ablations on the same queries; every choice is made on dev.

    Args:
        data: on the device of `runtime`, whose scratch is private to these scorers.
        seed: which chains are read; also of the scorers' own weights, dropout and batches.
        sees_goal: false: only the paper's scorer is fitted, on queries that goal-dropout twins make without a goal.

    Returns:
        Variant -> scorer: `scorer`, and `scorer_<ablation>` for each ablation; without a goal only SCORER_NO_GOAL.

    Raises StoreError: a goal must not be seen, and the chains have no twins.
    """
    config = config if sees_goal else config.replace(ablations=())
    total = epochs_of(config)

    def part(before: int, folder: str = "") -> Runtime:
        return replace(runtime, scratch=runtime.scratch / folder, progress=portion(runtime.progress, before, total))

    collected = collect(data, files, config, seed, part(0, "queries"), sees_goal=sees_goal)
    fitted = {}
    ablations: tuple[Ablation | None, ...] = (None, *config.ablations)
    for n, ablation in enumerate(ablations):
        name = variant_of(ablation) if sees_goal else SCORER_NO_GOAL
        fitted[name] = train_scorer(collected, config, ablation, seed, part(n * config.train.epochs), name)
    return fitted


def epochs_of(config: ScorerConfig) -> int:
    """Return the most epochs of all trainings of one seed, of the scorer and its ablations."""
    return (1 + len(config.ablations)) * config.train.epochs


def variant_of(ablation: Ablation | None) -> str:
    """Return the row of a scorer."""
    return SCORER if ablation is None else f"{SCORER}_{ablation}"


def train_scorer(
    collected: Collected,
    config: ScorerConfig,
    ablation: Ablation | None,
    seed: int,
    runtime: Runtime,
    name: str = SCORER,
) -> FittedScorer:
    """Train one scorer; without training queries its weights stay as initialised and its gate never opens."""
    train, dev, shape, device = collected.train, collected.dev, collected.shape, runtime.device
    with seeded(seed):
        scorer = GateThenRankScorer(config, shape, ablation).to(device)
    if train is None:
        state = {name: value.detach().cpu().clone() for name, value in scorer.state_dict().items()}
        return FittedScorer(state, shape, _decision(config, collected), [])
    where = train.take.device  # of the queries: on the device, or in mapped files
    opens = gate_targets(train, config.margin)
    weights = class_weights(opens)

    def loss(batch: Tensor) -> Tensor:
        gate_B, rank_BK = scorer(inputs_at(train, batch))
        return scorer_loss(gate_B, rank_BK, train.utility[batch].to(device), opens[batch].to(device), weights, config)

    training = Training(
        name=f"final/{name}",
        seed=seed,
        model=scorer,
        cfg=config.train,
        selected="dev/selection",
        loss=loss,
        measure=measurer(scorer, train, dev, config.train.batch, seed),
        batches=lambda generator: index_batches(len(train), config.train.batch, generator, where),
    )
    fitted = fit(training, runtime.scratch / name, device, runtime.progress, runtime.checkpoint_s)
    at = fitted.best_epoch, "dev", "threshold"
    thresholds = [p.value for p in fitted.curve if (p.epoch, p.split, p.quantity) == at]
    decision = _decision(config, collected, *thresholds)
    choices = choices_of(scorer, fitted.best, dev, config, training.name, seed)
    return FittedScorer(fitted.best, shape, decision, fitted.curve, choices)


def measurer(
    scorer: GateThenRankScorer, train: Queries, dev: Queries | None, batch: int, seed: int
) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: the scores on dev, and on learned queries under the threshold that dev chose.

    The learned queries are sampled by `seed`, per horizon at most as many as dev has; without dev nothing is measured.
    """
    if dev is None:
        return lambda: {"dev/selection": 0.0}
    learned, scored = (
        {int(n): (part.n_mids == n).nonzero()[:, 0].cpu() for n in torch.unique(train.n_mids)} for part in (train, dev)
    )
    sampled = sampled_fit(learned, scored, seed)
    sample = torch.cat([*sampled.values()]) if sampled else None

    def measure() -> dict[str, float]:
        gate_N, choice_N = decide(scorer, dev, batch)
        of_dev = dev_scores(gate_N, choice_N, dev)
        measured = {f"dev/{name}": value for name, value in of_dev.items()}
        if sample is not None:
            gate_N, choice_N = decide(scorer, train, batch, sample)
            scores = scores_at(of_dev["threshold"], gate_N, judged(choice_N, train, sample))
            measured |= {f"train/{name}": value for name, value in scores.items() if name != "threshold"}
        return measured

    return measure


@torch.no_grad()
def choices_of(
    scorer: GateThenRankScorer,
    state: Mapping[str, Tensor],
    dev: Queries | None,
    config: ScorerConfig,
    model: str,
    seed: int,
) -> list[ScorerChoice]:
    """Return what a trained scorer decides on each of N dev queries, to judge it against chance."""
    if dev is None:
        return []
    scorer.load_state_dict(state)
    scorer.eval()
    gate_N, choice_N = decide(scorer, dev, config.train.batch)
    best_NK = dev.valid & (dev.utility == dev.utility.amax(dim=1, keepdim=True))
    first_N = best_NK.gather(1, choice_N[:, None])[:, 0]
    chance_N = best_NK.sum(1).double() / dev.valid.sum(1).clamp_min(1)
    opens_N = gate_targets(dev, config.margin)
    columns = (dev.take, dev.n_mids, gate_N, opens_N, dev.valid.any(1), first_N, chance_N)
    return [
        ScorerChoice(
            model=model,
            seed=seed,
            take=take,
            horizon=n_mids + 2,
            gate=gate,
            should_open=opens,
            is_best=first if some else None,
            chance=chance if some else None,
        )
        for take, n_mids, gate, opens, some, first, chance in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _decision(config: ScorerConfig, collected: Collected, threshold: float = NEVER) -> ScorerDecision:
    """Gather what dev decided; without dev windows the gate stays shut and the temperatures are the grid's highest."""
    horizon = collected.dev.n_mids if collected.dev is not None else torch.empty(0, dtype=torch.long)
    m1 = collected.knn_m1, collected.pool_m1
    knn, pool = (best_temperature(config.temperatures, m1_NT, horizon) for m1_NT in m1)
    return ScorerDecision(threshold=threshold, knn_temperature=knn, pool_temperature=pool)


def best_temperature(grid: tuple[float, ...], m1_NT: Tensor, horizon_N: Tensor) -> float:
    """Return the temperature with the highest plain mean over H of (N, T) M@1; ties to the higher temperature."""
    ranked = [(plain_mean(m1_NT[:, t], horizon_N), temperature) for t, temperature in enumerate(grid)]
    return max(ranked)[1]


class ReadyScorer(NamedTuple):
    """A frozen scorer and what dev decided for it."""

    scorer: GateThenRankScorer
    decision: ScorerDecision


def write_scorers(share: Sink, seed: int, fitted: Mapping[str, FittedScorer]) -> None:
    """Write the scorers of one training into the entry `scorers`: their shape, weights, and one decision per scorer."""
    shape = next(iter(fitted.values())).shape._asdict()
    shape_json = json.dumps({name: size for name, size in shape.items() if name != "ends"}, sort_keys=True)
    about = {SHAPE_NO_GOAL if SCORER_NO_GOAL in fitted else "shape": shape_json}
    for variant, scorer in fitted.items():
        key = model_key(FINAL, seed, variant)
        share.model(ENTRY, key, {name: value.numpy() for name, value in scorer.state.items()})
        about[key] = scorer.decision.model_dump_json()
    share.models(ENTRY, about)


def scorer_config(scorers: Models) -> ScorerConfig:
    """Return the configuration that the scorers were fitted with."""
    return ScorerConfig.model_validate_json(scorers.about["config"])


def load_scorer(
    scorers: Models, seed: int, device: str, ablation: Ablation | None = None, *, sees_goal: bool = True
) -> ReadyScorer:
    """Build the frozen scorer of one seed, or an ablated one, or the one that sees no goal, and read its decision.

    Raises StoreError: there is no such scorer, or it has other parameters.
    """
    key = model_key(FINAL, seed, variant_of(ablation) if sees_goal else SCORER_NO_GOAL)
    if key not in scorers.about:
        known = ", ".join(scorers.about)
        raise StoreError(f"no scorer {key!r} in the entry, which knows {known}; run the stage scorer")
    sizes = json.loads(scorers.about["shape" if sees_goal else SHAPE_NO_GOAL])
    model = GateThenRankScorer(scorer_config(scorers), ScorerShape(**sizes, ends=2 if sees_goal else 1), ablation)
    return ReadyScorer(frozen(model, scorers, key, device), ScorerDecision.model_validate_json(scorers.about[key]))


def load_scorer_without_goal(scorers: Models, seed: int, device: str) -> ReadyScorer | None:
    """Build the scorer of one seed that sees no goal; None where none was fitted."""
    is_fitted = model_key(FINAL, seed, SCORER_NO_GOAL) in scorers.about
    return load_scorer(scorers, seed, device, sees_goal=False) if is_fitted else None
