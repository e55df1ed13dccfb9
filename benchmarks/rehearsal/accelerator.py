"""What the trainings and the evaluation of a recipe would take on a GPU: operations and memory, derived, not measured.

Steps of alignment, predictor and scorer are traced at their real sizes on torch's `meta` device, which computes
nothing: matrix products are counted, and so are the bytes that the backward pass keeps. Losses and the rest are by
formula.
Axes: B batch, H horizon, K candidates, M middle steps, V labels, E text width, T training takes.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.rehearsal.settings import TEXT_WIDTH
from benchmarks.rehearsal.sizes import DEV_SHARE, TEST_SHARE, Sizes
from schemas.config import PipelineConfig
from schemas.vjepa import VJEPA_SIZES
from trajpilot_core.data.cross_fitting import Chain, chains, trained_variants
from trajpilot_core.methods import METHODS
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerInputs, ScorerShape
from trajpilot_core.training.scorer_queries import query_bytes

ADAM = 16
"""Bytes of a parameter in training: itself, its gradient and two moments, fp32."""


class Card(NamedTuple):
    """A GPU, as the arguments of the command describe it."""

    tflops: float
    """Of bf16 products."""
    fp32_tflops: float
    utilisation: float
    """Share of either that is reached."""
    memory_gib: float

    def hours(self, need: "Need") -> float:
        """Return how long a part takes."""
        tflops = self.fp32_tflops if need.is_fp32 else self.tflops
        return need.operations / (tflops * 1e12 * self.utilisation) / 3600


class Need(NamedTuple):
    """What one part asks of a GPU."""

    part: str
    operations: float
    memory: float
    """Bytes that must lie on the device at once, at least."""
    how: str
    is_fp32: bool = False
    """Its products are computed in fp32 on a GPU, too."""


class Step(NamedTuple):
    """One step of a training."""

    operations: float
    kept: float
    """Bytes of activations until the backward pass."""

    def plus(self, other: "Step") -> "Step":
        """Return both together."""
        return Step(self.operations + other.operations, self.kept + other.kept)


def pooled(tokens: int, labels: int) -> Step:
    """Return the loss that compares so many predictions with the labels of their batch (models of the text space).

    On a GPU its table has as many columns as there are labels, or predictions where those are fewer
    (`training.losses.numbered`); logits, counted logits and what is masked of them are kept, in fp32.
    """
    columns = min(tokens, labels)
    return Step(3 * 2 * tokens * columns * TEXT_WIDTH, 4 * 4 * tokens * columns)


def traced(model: nn.Module, loss: Callable[[], Tensor]) -> Step:
    """Return what one step, forward and backward, computes and keeps."""
    own = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return value

    counter = FlopCounterMode(display=False)
    with counter, torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        loss().backward()  # type: ignore[no-untyped-call]
    return Step(counter.get_total_flops(), sum(kept.values()))


def alignment_step(config: PipelineConfig, labels: int) -> Step:
    """Return a step of E_tau: (B, 16, 6) motions against the labels of the batch."""
    cfg = config.alignment
    with torch.device("meta"):
        model, batch = TrajectoryEncoder(cfg, TEXT_WIDTH), cfg.train.batch
        motions = torch.empty(batch, 16, 6)
        return traced(model, lambda: model(motions).sum()).plus(pooled(batch, labels))


def predictor_step(config: PipelineConfig, horizon: int, labels: int) -> Step:
    """Return a step of the predictor on windows of one horizon."""
    cfg, batch = config.predictor, config.predictor.train.batch
    tokens = config.features.n_frames // 2 if config.features.tokens == "temporal" else 1
    shape = PredictorShape(VJEPA_SIZES[config.features.model].width, tokens, TEXT_WIDTH, config.ingest.max_horizon)
    with torch.device("meta"):
        model = CausalPredictor(cfg, shape)
        clip = torch.empty(batch, tokens, shape.feature_width, dtype=torch.float16)
        latents = torch.empty(batch, horizon, TEXT_WIDTH)
        step = traced(model, lambda: model(clip, clip, latents, horizon).sum())
    return step.plus(pooled(batch * horizon, labels))


def scorer_shape(config: PipelineConfig) -> ScorerShape:
    """Return the widths of a scorer."""
    width = VJEPA_SIZES[config.features.model].width
    return ScorerShape(2 * width + 2 * TEXT_WIDTH, TEXT_WIDTH, config.ingest.max_horizon - 2)


def scorer_step(config: PipelineConfig) -> Step:
    """Return a step of the gate-then-rank scorer."""
    cfg, batch, mids = config.scorer, config.scorer.train.batch, config.ingest.max_horizon - 2
    shape = scorer_shape(config)
    with torch.device("meta"):
        model, each = GateThenRankScorer(cfg, shape), (batch, cfg.candidates, mids, TEXT_WIDTH)
        plans, latents, texts = (torch.empty(each) for _ in range(3))
        valid, n_mids = torch.empty(batch, cfg.candidates).bool(), torch.empty(batch).long()
        query, fallback = torch.empty(batch, shape.query), torch.empty(batch, mids, TEXT_WIDTH)
        inputs = ScorerInputs(query, fallback, plans, latents, texts, valid, n_mids)

        def loss() -> Tensor:
            gate_B, rank_BK = model(inputs)
            total: Tensor = gate_B.mean() + rank_BK.mean()
            return total

        return traced(model, loss)


def needs(config: PipelineConfig, sizes: Sizes) -> list[Need]:
    """Return what the parts of a whole run of `config` ask for: all chains, seeds and epochs, early stops ignored."""
    return [
        of_alignment(config, sizes),
        of_predictor(config, sizes),
        *of_scorer(config, sizes),
        of_answers(config, sizes),
    ]


def chains_of(config: PipelineConfig) -> tuple[Chain, ...]:
    """Return the chains of models."""
    return chains(config.alignment.folds)


def horizons_of(config: PipelineConfig) -> range:
    """Return the horizons."""
    return range(config.ingest.min_horizon, config.ingest.max_horizon + 1)


def windows(sizes: Sizes, horizon: int, share: float) -> float:
    """Return how many windows of one horizon a share of the takes has."""
    return share * (sizes.segments - (horizon - 1) * sizes.takes)


def fitted_share(config: PipelineConfig, chain: Chain) -> float:
    """Return the share of all the takes that a chain is fitted on."""
    cfg = config.alignment
    left_out = cfg.holdout_share if cfg.folds == 1 else cfg.fold_share or 1 / cfg.folds
    return (1 - DEV_SHARE - TEST_SHARE) * (1 - (left_out if chain.fold is not None else 0))


def of_alignment(config: PipelineConfig, sizes: Sizes) -> Need:
    """Return the trainings of E_tau, each epoch with its measure of train and dev in the whole bank."""
    cfg, step = config.alignment, alignment_step(config, sizes.labels)
    total, trainings = 0.0, 0
    for chain in chains_of(config):
        fitted = sizes.segments * fitted_share(config, chain)
        measured = 2 * (fitted + DEV_SHARE * sizes.segments) * sizes.labels * TEXT_WIDTH
        each = fitted / cfg.train.batch * step.operations + measured + step.operations / 3 * fitted / cfg.train.batch
        total += len(cfg.seeds) * cfg.train.epochs * each
        trainings += len(cfg.seeds)
    held = step.kept + 4 * sizes.segments * 96 + 4 * sizes.labels * TEXT_WIDTH
    return Need("alignment", total, held, f"{trainings} trainings of {cfg.train.epochs} epochs")


def of_predictor(config: PipelineConfig, sizes: Sizes) -> Need:
    """Return the trainings of the predictors, each epoch with its measure of dev."""
    cfg, seeds = config.predictor, len(config.alignment.seeds)
    steps = {h: predictor_step(config, h, sizes.labels) for h in horizons_of(config)}
    total, trainings = 0.0, 0
    for chain in chains_of(config):
        each = 0.0
        for h, step in steps.items():
            each += windows(sizes, h, fitted_share(config, chain)) / cfg.train.batch * step.operations
            dev = windows(sizes, h, DEV_SHARE)
            each += dev / cfg.train.batch * step.operations / 3 + dev * (h - 2) * 2 * sizes.labels * TEXT_WIDTH
        models = seeds * len(trained_variants(chain, cfg))
        total, trainings = total + models * cfg.train.epochs * each, trainings + models
    width = VJEPA_SIZES[config.features.model].width
    held = max(step.kept for step in steps.values()) + ADAM * parameters(config)
    held += 2 * sizes.segments * width + 4 * sizes.segments * TEXT_WIDTH
    return Need("predictor", total, held, f"{trainings} trainings of {cfg.train.epochs} epochs; activations in fp32")


def parameters(config: PipelineConfig) -> int:
    """Return the parameters of one predictor."""
    shape = PredictorShape(VJEPA_SIZES[config.features.model].width, 1, TEXT_WIDTH, config.ingest.max_horizon)
    with torch.device("meta"):
        return sum(p.numel() for p in CausalPredictor(config.predictor, shape).parameters())


def query_operations(config: PipelineConfig, sizes: Sizes) -> float:
    """Return the operations of one query of the mean horizon: K roll-outs, and each plan against the whole bank."""
    hs = horizons_of(config)
    k, batch = config.scorer.candidates, config.predictor.train.batch
    roll_out = sum(predictor_step(config, h, sizes.labels).operations / 3 / batch for h in hs) / len(hs)
    mids = sum(h - 2 for h in hs) / len(hs)
    tokens = mids / (mids + 2 * config.predictor.queries)
    return k * (mids * 2 * sizes.labels * TEXT_WIDTH + roll_out * tokens)


def query_counts(config: PipelineConfig, sizes: Sizes) -> tuple[float, float]:
    """Return the training and the dev queries of one seed."""
    every = sum(windows(sizes, h, 1.0) for h in horizons_of(config))
    cfg = config.alignment
    held = cfg.holdout_share if cfg.folds == 1 else min(1.0, cfg.folds * (cfg.fold_share or 1 / cfg.folds))
    limit, dev = config.scorer.max_queries, DEV_SHARE * every
    return min(limit, (1 - DEV_SHARE - TEST_SHARE) * held * every), dev / -(-dev // limit)


def of_scorer(config: PipelineConfig, sizes: Sizes) -> list[Need]:
    """Return the queries, and the scorer with its ablations."""
    cfg, seeds, (train, dev) = config.scorer, len(config.alignment.seeds), query_counts(config, sizes)
    query = scorer_shape(config)
    disk = (train + dev) * query_bytes(query, cfg.candidates)
    at_once = 1024 * cfg.candidates * query.max_mids * TEXT_WIDTH * 4 * 2
    step = scorer_step(config)
    fits = seeds * (1 + len(cfg.ablations)) * cfg.train.epochs / cfg.train.batch
    return [
        Need(
            "queries",
            seeds * (train + dev) * query_operations(config, sizes),
            at_once,
            f"{train + dev:,.0f} queries a seed; {disk / 1e9:.0f} GB on disk, or on the device where they fit",
            is_fp32=True,
        ),
        Need("scorer", fits * step.operations * (train + dev / 3), step.kept, f"{fits * train:,.0f} steps"),
    ]


def of_answers(config: PipelineConfig, sizes: Sizes) -> Need:
    """Return the evaluation: candidates, every label ranked at every step for every row, and shuffles."""
    hs, seeds = horizons_of(config), len(config.alignment.seeds)
    tested = sum(windows(sizes, h, TEST_SHARE) for h in hs)
    ranked = sum(windows(sizes, h, TEST_SHARE) * h for h in hs) * 2 * sizes.labels * TEXT_WIDTH
    rows = len([one for one in METHODS if one.answer is not None]) + config.evaluation.shuffles
    total = tested * query_operations(config, sizes) + rows * ranked
    held = 1024 * hs[-1] * sizes.labels * 4 * 4
    what = f"{tested:,.0f} windows, {rows} rows and shuffles, {seeds} seeds"
    return Need("evaluation", seeds * total, held, what, is_fp32=True)
