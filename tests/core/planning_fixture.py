"""A small planning corpus in tensors, with the model files of its chains: labels show in motion and appearance."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.config import AlignmentConfig, PredictorConfig, ScorerConfig, TrainConfig
from trajpilot_core.models.alignment import TrajectoryEncoder, channel_scale
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape, feature_scales
from trajpilot_core.training.chains import ModelFile, ModelFiles, chains, fitting_takes, model_key, variants_of
from trajpilot_core.training.data import PlanningData, WindowSet

TRAIN = TrainConfig(epochs=3, patience=None, batch=64, lr=2e-3, precision="fp32")
ALIGNMENT = AlignmentConfig(width=16, layers=1, heads=2, hidden=16, dropout=0.0, folds=1, seeds=(0,), train=TRAIN)
PREDICTOR = PredictorConfig(width=16, layers=1, heads=2, hidden=16, queries=2, dropout=0.0, train=TRAIN)
SCORER = ScorerConfig(candidates=5, prefetch=8, width=16, heads=2, layers=1, dropout=0.0, train=TRAIN)


@dataclass(frozen=True)
class World:
    """Sizes of the corpus."""

    train: int = 10
    dev: int = 3
    test: int = 4
    segments: int = 7
    labels: int = 12
    embed: int = 16
    features: int = 10
    horizons: tuple[int, ...] = (3, 4)
    folds: int = 1


def planning_data(world: World = World(), seed: int = 0) -> PlanningData:
    """Draw a corpus; the first takes are training ones, then dev, then test."""
    g = torch.Generator().manual_seed(seed)
    n_takes = world.train + world.dev + world.test
    split = torch.tensor([0] * world.train + [1] * world.dev + [2] * world.test)
    segment_take = torch.arange(n_takes).repeat_interleave(world.segments)
    labels = torch.randint(world.labels, (len(segment_take),), generator=g)
    look, motion = torch.randn(world.labels, world.features, generator=g), torch.randn(world.labels, 16, 6, generator=g)
    noise = torch.randn(len(labels), world.features, generator=g), torch.randn(len(labels), 16, 6, generator=g)
    fold = torch.full((n_takes,), -2)
    held = torch.arange(world.train)
    fold[: world.train] = held % world.folds if world.folds > 1 else torch.where(held % 3 == 0, 0, -1)
    take_ids = tuple(f"toy:{i:02d}" for i in range(n_takes))
    return PlanningData(
        take_ids=take_ids,
        participants=tuple(f"p{i % 5}" if i % 4 else "" for i in range(n_takes)),
        captures=take_ids,
        segment_ids=tuple(f"{take_ids[t]}:{i % world.segments:04d}" for i, t in enumerate(segment_take.tolist())),
        label_ids=tuple(f"l{i:02d}" for i in range(world.labels)),
        features=(look[labels] + 0.7 * noise[0])[:, None].half(),
        controls=0.1 * (motion[labels] + 0.5 * noise[1]),
        labels=labels,
        bank=F.normalize(torch.randn(world.labels, world.embed, generator=g), dim=1),
        segment_take=segment_take,
        take_split=split,
        fold=fold,
        windows={h: _windows(take_ids, split, world.segments, h) for h in world.horizons},
        rejects=[],
    )


def _windows(take_ids: tuple[str, ...], split: Tensor, segments: int, horizon: int) -> WindowSet:
    """All windows of one horizon, in order of their ids."""
    starts = [(take, first) for take in range(len(take_ids)) for first in range(segments - horizon + 1)]
    take = torch.tensor([take for take, _ in starts])
    rows = [[t * segments + first + i for i in range(horizon)] for t, first in starts]
    ids = tuple(f"{take_ids[t]}:h{horizon}:{first:04d}" for t, first in starts)
    return WindowSet(ids, take, split[take], torch.tensor(rows))


def model_files(data: PlanningData, folds: int = 1, seeds: tuple[int, ...] = (0,)) -> ModelFiles:
    """Untrained models of every chain and seed, in the layout of the stages."""
    torch.manual_seed(7)
    alignment = ALIGNMENT.replace(folds=folds, seeds=seeds)
    shape = PredictorShape(data.features.shape[2], data.features.shape[1], data.bank.shape[1], max(data.windows))
    e_tau, predictors = {}, {}
    for chain in chains(folds):
        fitted = torch.isin(data.segment_take, fitting_takes(data.take_split, data.fold, chain))
        for seed in seeds:
            encoder = TrajectoryEncoder(alignment, data.bank.shape[1])
            encoder.scale.copy_(channel_scale(data.controls[fitted]))
            e_tau |= _flat(model_key(chain, seed, "e_tau"), encoder)
            for variant in variants_of(chain):
                predictor = CausalPredictor(PREDICTOR, shape)
                mean, scale = feature_scales(data.features[fitted])
                predictor.feature_mean.copy_(mean)
                predictor.feature_scale.copy_(scale)
                predictors |= _flat(model_key(chain, seed, variant), predictor)
    about = {"config": alignment.model_dump_json(), "text_width": str(data.bank.shape[1])}
    return ModelFiles(
        ModelFile(e_tau, about),
        ModelFile(predictors, {"config": PREDICTOR.model_dump_json(), "shape": shape.to_json()}),
    )


def _flat(key: str, model: torch.nn.Module) -> dict[str, object]:
    return {f"{key}/{name}": value.detach().numpy() for name, value in model.state_dict().items()}
